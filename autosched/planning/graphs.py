"""Stretches of launches as CUDA graphs, in an arena that is kept for them.

The arena serves one call at a time. A call that comes while another enqueues, from another thread, or while the caller
captures a graph, is launched as a loop, in memory of its own; one on another stream than the last one's waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autosched.machine.memory import memory_for
from autosched.planning.layout import Memory
from autosched.planning.runs import Run, StretchLaunches, allocating, batch_of
from autosched.planning.stream_order import StreamOrder

# The launch of a graph costs the host about as much as two of kernels.
_FEWEST_LAUNCHES = 2


class GraphMemory:
    """The arena of a plan's graphs."""

    def __init__(self, memories: Sequence[Memory], device: torch.device) -> None:
        """`memories`: of the stretches that are graphs."""
        self._bytes = max(m.arena_bytes for m in memories)
        self._device, self._lock = device, threading.Lock()
        self._arena: Tensor | None = None
        self._order = StreamOrder(device)

    @staticmethod
    def of(memories: Sequence[Memory], device: torch.device) -> GraphMemory | None:
        """That of a plan; None where no stretch can be a graph."""
        found = [m for m in memories if _is_graph(m)]
        return GraphMemory(found, device) if found else None

    def launching(self, memory: Memory) -> Run | None:
        """The launches of a stretch as a graph; None where they cannot be one."""
        if not _is_graph(memory):
            return None
        allocate = allocating(replace(memory, arena_bytes=0), self._device)
        enqueue = StretchLaunches(memory, self._device, batch_of(memory.launches).graph())

        def run(tensors: list[Any], addresses: list[int], static: object) -> None:
            allocate(tensors, addresses)
            assert self._arena is not None
            # Stretches that are no graphs have arenas of their own.
            addresses[memory.arena] = self._arena.data_ptr()
            enqueue(tensors, addresses, static)

        return run

    def taken(self) -> bool:
        """True if the arena is this call's now, until it is given back."""
        if torch.cuda.is_current_stream_capturing() or not self._lock.acquire(blocking=False):
            return False
        try:
            arena = self._arena
            if arena is None:
                with memory_for("the intermediate values", self._bytes, self._device):
                    self._arena = arena = torch.empty(self._bytes, dtype=torch.uint8, device=self._device)
            self._order.come_after_the_last((arena,))
        except BaseException:
            self._lock.release()
            raise
        return True

    def give_back(self) -> None:
        """Let other calls have the arena."""
        self._lock.release()


def _is_graph(memory: Memory) -> bool:
    batched = [placed.launch.kernel.batched is not None for placed in memory.launches]
    return all(batched) and len(batched) >= _FEWEST_LAUNCHES
