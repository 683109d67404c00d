"""State of traced functions: constants that every call reads anew, and writes at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from autosched.kernels.kernel import overlap
from autosched.kernels.static_tensors import Taking
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.steps import Reader, Regions, reader
from autosched.tracing.values.tensor_reads import memory_view
from autosched.tracing.values.values import Leaf, Value
from search_spaces import InputError


class Writing:
    """The state of a traced function: constants that are looked up in every call, and the writes of a call."""

    def __init__(self, traced: TracedFunction, slots: Regions) -> None:
        """`slots`: the memory of all values."""
        self._traced, self._places = traced, slots
        self._changed = {w.leaf for w in traced.written if w.leaf is not None}
        self._values = [self.apart(w.value, reader(w.value, slots)) for w in traced.written]

    def apart(self, value: Value, read: Reader) -> Reader:
        """A function that reads the value as it was before any write: from a copy where its memory is written."""
        strided = memory_view(value, self._places)
        if strided is None or strided.value not in self._changed:
            return read
        return lambda tensors: read(tensors).clone()

    def current(self, taking: Mapping[Leaf, Taking], device: torch.device) -> dict[Leaf, Tensor]:
        """The tensors in the function's slots now, where these change.

        Raises:
            InputError: one is another kind of tensor than when the function was traced.
        """
        found = {}
        for leaf, place in self._traced.places.items():
            tensor = place.found_or(None)
            if not isinstance(tensor, Tensor):
                raise InputError(f"{self._traced.name} changes {leaf.name}; expected a tensor there, got {tensor!r}")
            taking[leaf].check(tensor.detach().to(device))
            found[leaf] = tensor
        return found

    def check_apart(self, given: Mapping[Leaf, Tensor]) -> None:
        """Raise InputError where a tensor changed in place shares memory with another tensor of the call."""
        for changed in self._changed & given.keys():
            for leaf, tensor in given.items():
                if leaf is not changed and _share_memory(given[changed], tensor):
                    raise InputError(
                        f"{self._traced.name} changes {changed.name} in place, which shares memory with {leaf.name}; "
                        "expected memory of its own"
                    )

    def write(self, given: Mapping[Leaf, Tensor], memory: list[Any]) -> None:
        """Write the computed values; `given`: the tensors of the call, as passed or looked up."""
        # Read all values first: a write may change the source of another.
        made = [read(memory) for read in self._values]
        with torch.no_grad():
            for written, value in zip(self._traced.written, made, strict=True):
                if written.leaf is not None:
                    given[written.leaf].copy_(value)
                elif written.place is not None:
                    written.place.bind(value)


def _share_memory(a: Tensor, b: Tensor) -> bool:
    same = a.untyped_storage()._cdata == b.untyped_storage()._cdata
    return bool(a.numel() and b.numel()) and same and overlap(a, b)
