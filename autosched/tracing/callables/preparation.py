"""A prepared value at a call: what was computed of constants is kept as long as none of them changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autosched.kernels.static_tensors import Seen, StaticTensors, is_captured
from autosched.machine.torch_internals import stream_on
from autosched.tracing.rewriting.evaluation import prepared
from autosched.tracing.values.values import Prepared


class _AsItIs:
    """A constant that is read wherever it lies."""

    def check(self, tensor: Tensor) -> None: ...

    def usable(self, tensor: Tensor) -> Tensor:
        return tensor


class Preparation:
    """The step of a prepared value: `preparation(tensors)` puts its tensor into a slot.

    A change is computed in the same memory, so that CUDA graphs that read it read it as it is then. While a graph is
    captured, what is not known is computed within it.
    """

    def __init__(self, value: Prepared, read: Sequence[Callable[[list[Any]], Tensor]], slot: int) -> None:
        """`read`: its constants, from the tensors of all slots."""
        self._value, self._read, self._slot = value, tuple(read), slot
        self._constants = StaticTensors([_AsItIs() for _ in read])
        self._seen: Seen | None = None
        self._made: Tensor | None = None
        self._streams: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, tensors: list[Any]) -> None:
        given = [read(tensors) for read in self._read]
        with self._lock:
            seen = self._constants.seen(given)
            if seen is not self._seen or self._made is None:
                made = prepared(self._value, given)
                if is_captured(given[0].device):
                    tensors[self._slot] = made
                    return
                self._keep(made, seen)
            tensors[self._slot] = self._made
            self._use()

    def _keep(self, made: Tensor, seen: Seen) -> None:
        if self._made is None or self._made.device != made.device:
            self._made, self._streams = made, set()
        else:
            self._made.copy_(made)
        if made.device.type == "cuda":
            # Other streams may read it next.
            torch.cuda.current_stream(made.device).synchronize()
            self._streams = self._streams or {stream_on(made.device)}
        self._seen = seen

    def _use(self) -> None:
        """Keep the memory until the present stream is done with it."""
        made = self._made
        if made is not None and made.device.type == "cuda" and stream_on(made.device) not in self._streams:
            made.record_stream(torch.cuda.current_stream(made.device))
            self._streams.add(stream_on(made.device))
