"""A prepared value at a call: what was computed of constants is kept as long as none of them changes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autosched.kernels.static_tensors import Seen, StaticTensors, is_captured
from autosched.machine.torch_internals import stream_on
from autosched.tracing.rewriting.evaluation import prepared
from autosched.tracing.rewriting.joined_memory import joined_memory
from autosched.tracing.values.values import Prepared


class _AsItIs:
    """A constant that is read wherever it lies."""

    def check(self, tensor: Tensor) -> None: ...

    def usable(self, tensor: Tensor) -> Tensor:
        return tensor


@dataclass(frozen=True)
class _Memory:
    """A prepared tensor, the storages of its constants, and the streams that have used it."""

    tensor: Tensor
    storages: tuple[weakref.ref[torch.UntypedStorage], ...]
    streams: set[int]

    @property
    def is_needed(self) -> bool:
        return all(storage() is not None for storage in self.storages)

    def use(self) -> None:
        """Keep the memory until the present stream is done with it."""
        stream = stream_on(self.tensor.device)
        if stream not in self.streams:
            self.tensor.record_stream(torch.cuda.current_stream(self.tensor.device))
            self.streams.add(stream)


class Preparation:
    """The step of a prepared value: `preparation(tensors)` puts its tensor into a slot.

    A change in place is computed in the same memory, so that CUDA graphs that read it read it as it is then; other
    constants have other memory, as calls with both may overlap. While a graph is captured, what is not known is
    computed within it. Of constants that lie as its parts nothing is computed: their memory is that of the value.
    """

    def __init__(self, value: Prepared, read: Sequence[Callable[[list[Any]], Tensor]], slot: int) -> None:
        """`read`: its constants, from the tensors of all slots."""
        self._value, self._read, self._slot = value, tuple(read), slot
        self._constants = StaticTensors([_AsItIs() for _ in read])
        self._joined = joined_memory(value)
        self._now: tuple[Seen, _Memory] | None = None
        # By the addresses of the constants.
        self._memories: dict[tuple[int, ...], _Memory] = {}
        self._lock = threading.Lock()

    def __call__(self, tensors: list[Any]) -> None:
        given = [read(tensors) for read in self._read]
        with self._lock:
            seen, now = self._constants.seen(given), self._now
            if now is None or now[0] is not seen:
                # No gradient of it is wanted, and it outlives the caller's inference mode.
                with torch.inference_mode(False), torch.no_grad():
                    together = self._joined.whole(given) if self._joined is not None else None
                    made = prepared(self._value, given) if together is None else together
                    if is_captured(made.device):
                        tensors[self._slot] = made
                        return
                    self._now = now = seen, self._kept(made, given, seen.addresses)
            memory = now[1]
            tensors[self._slot] = memory.tensor
            if memory.tensor.device.type == "cuda":
                memory.use()

    def _kept(self, made: Tensor, given: Sequence[Tensor], addresses: tuple[int, ...]) -> _Memory:
        self._forget()
        known = self._memories.get(addresses)
        if known is None:
            own = weakref.ref(self)
            storages = tuple(weakref.ref(t.untyped_storage(), lambda _: _forget(own())) for t in given)
            streams = {stream_on(made.device)} if made.device.type == "cuda" else set()
            known = self._memories[addresses] = _Memory(made, storages, streams)
        elif known.tensor.data_ptr() == made.data_ptr():
            # It has the new elements, and a version counter that none of its constants has raised.
            torch.autograd.graph.increment_version(known.tensor)
        else:
            known.tensor.copy_(made)
        if made.device.type == "cuda":
            # Other streams may read it next.
            torch.cuda.current_stream(made.device).synchronize()
        return known

    def _forget(self) -> None:
        """Give back the memory of what was made of constants that are freed, by whatever thread."""
        for addresses in [key for key, memory in list(self._memories.items()) if not memory.is_needed]:
            self._memories.pop(addresses, None)
        now = self._now
        if now is not None and not now[1].is_needed:
            self._now = None


def _forget(preparation: Preparation | None) -> None:
    if preparation is not None:
        preparation._forget()
