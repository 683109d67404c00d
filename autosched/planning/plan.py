"""A plan: launches and calls in order, in memory that is laid out once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from autosched.planning.graphs import GraphMemory
from autosched.planning.layout import Layouts
from autosched.planning.runs import Run, calling, launching
from autosched.planning.steps import Call, Slot, Step


class Plan:
    """Steps that run on the current stream of a device: `plan(tensors, addresses)`.

    It takes the tensors of the first slots, which no step writes, and the addresses that kernels read them at, both in
    lists that it extends: afterwards the first has the tensors of all slots that are kept. Every call has memory of its
    own, of which only that of the kept slots outlives it: calls may overlap in threads and on streams.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        steps: Sequence[Step],
        kept: Collection[int],
        device: torch.device,
        graphs: bool = False,
    ) -> None:
        """`kept`: slots that a call returns. `graphs`: have launches be CUDA graphs, where that can be."""
        layouts = Layouts(slots, steps, kept)
        self._made: list[Any] = [None] * (layouts.bases - layouts.given)
        self._nowhere = [0] * len(self._made)
        memories = {stretch: layouts.memory(stretch) for stretch in layouts.stretches}
        parts = {n: (n + 1, calling(step, layouts)) for n, step in enumerate(steps) if isinstance(step, Call)}
        parts |= {stretch.first: (stretch.end, launching(memory, device)) for stretch, memory in memories.items()}
        self._runs = _in_order(parts, layouts)
        self._graph_memory = GraphMemory.of(tuple(memories.values()), device) if graphs else None
        if self._graph_memory is not None:
            graphed = {stretch: self._graph_memory.launching(memory) for stretch, memory in memories.items()}
            parts |= {stretch.first: (stretch.end, run) for stretch, run in graphed.items() if run is not None}
        self._graph_runs = _in_order(parts, layouts)

    def __call__(self, tensors: list[Any], addresses: list[int], static: object = None) -> None:
        """Run all steps.

        `static`: an object that is another one whenever a tensor that kernels have constants of has changed; None where
        nobody knows.

        Raises:
            OutOfMemoryError: there is no memory for what launches write. And what calls raise.
        """
        tensors += self._made
        addresses += self._nowhere
        memory = self._graph_memory
        if memory is None or not memory.taken():
            _run(self._runs, tensors, addresses, static)
            return
        try:
            _run(self._graph_runs, tensors, addresses, static)
        finally:
            memory.give_back()


# What runs, and the slots whose tensors nothing after it needs.
_Part = tuple[Run, tuple[int, ...]]


def _in_order(parts: dict[int, tuple[int, Run]], layouts: Layouts) -> list[_Part]:
    return [(run, layouts.released(first, end)) for first, (end, run) in sorted(parts.items())]


def _run(parts: Sequence[_Part], tensors: list[Any], addresses: list[int], static: object) -> None:
    for run, released in parts:
        run(tensors, addresses, static)
        for slot in released:
            tensors[slot] = None
