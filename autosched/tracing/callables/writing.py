"""What calls of a traced function read anew because it changes, and write when everything is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.values.tensor_reads import lying
from autosched.tracing.values.values import Leaf, Value
from search_spaces import InputError

# What gives a value out of what is in memory.
Reader = Callable[[list[Any]], Any]


class Taking(Protocol):
    """What looks at a tensor of a call, and makes of it one that kernels read."""

    def check(self, tensor: Tensor) -> None: ...

    def usable(self, tensor: Tensor) -> Tensor: ...


class Writing:
    """The state of a traced function: constants that are looked up in every call, and what a call writes."""

    def __init__(self, traced: TracedFunction, places: Mapping[Value, int], reader: Callable[[Value], Reader]) -> None:
        """`places`: those of all values in the memory of a call."""
        self._traced, self._places = traced, places
        self._changed = {w.leaf for w in traced.written if w.leaf is not None}
        self._values = [self.apart(w.value, reader(w.value)) for w in traced.written]

    def apart(self, value: Value, read: Reader) -> Reader:
        """What gives the value as it was before anything was written: as a copy where it lies in what is written."""
        lies = lying(value, self._places)
        if lies is None or lies.value not in self._changed:
            return read
        return lambda tensors: read(tensors).clone()

    def looked_up(self, taking: Mapping[Leaf, Taking], device: torch.device) -> dict[Leaf, Tensor]:
        """The tensors that the function holds now, where these change.

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
        """Raise InputError where what is changed in place shares memory with another tensor of the call."""
        for changed in self._changed & given.keys():
            for leaf, tensor in given.items():
                if leaf is not changed and _share_memory(given[changed], tensor):
                    raise InputError(
                        f"{self._traced.name} changes {changed.name} in place, which shares memory with {leaf.name}; "
                        "expected memory of its own"
                    )

    def write(self, given: Mapping[Leaf, Tensor], memory: list[Any]) -> None:
        """Write what was computed; `given`: the tensors of the call, as they were given or found."""
        # All of it first: what is written may be what another was.
        made = [read(memory) for read in self._values]
        with torch.no_grad():
            for written, value in zip(self._traced.written, made, strict=True):
                if written.leaf is not None:
                    given[written.leaf].copy_(value)
                elif written.place is not None:
                    written.place.bind(value)


def _share_memory(a: Tensor, b: Tensor) -> bool:
    return bool(a.numel() and b.numel() and a.untyped_storage()._cdata == b.untyped_storage()._cdata)
