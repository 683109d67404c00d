"""Tensors that mostly stay from call to call, as weights: what was made of them is kept until one of them changes.

One has changed if another object is given, if its memory is elsewhere or was freed, if its version counter has risen,
which PyTorch does with every change in place, or if an optimizer, whose fused kernels do not raise it, has made a step.
Not seen are writes into the same memory through `tensor.data`, or by code that PyTorch does not know of. A call reads
three numbers of every tensor, some tenths of a microsecond; all else is noted when it happens.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from autosched.kernels.optimizer_steps import optimizer_steps
from autosched.machine.torch_internals import at_addresses, identity_of, stream_on, version_of


class Taking(Protocol):
    """A check of a call's tensor, and its conversion to one that kernels read."""

    def check(self, tensor: Tensor) -> None: ...

    def usable(self, tensor: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Seen:
    """Tensors as they are at present; one object as long as none has changed.

    `addresses`: those where kernels can read them, of the tensors themselves or of `copies`, by number. `trained`: True
    if one requires a gradient.
    """

    addresses: tuple[int, ...]
    copies: Mapping[int, Tensor]
    trained: bool


@dataclass(frozen=True, eq=False)
class _Kept:
    """Tensors as they were when they were seen.

    `identities`: the addresses of PyTorch's objects, which no others get as long as these are referred to. Of the
    `references`, those to memory note when it is freed. `versions`: the sum of the version counters, which only rise.
    `steps`: those of optimizers. `stream`: that on which `seen.copies` were made.
    """

    seen: Seen
    identities: list[int]
    addresses: list[int]
    numbers: list[int]
    layouts: list[tuple[object, object]]
    versions: int
    steps: int
    stream: int
    references: tuple[object, ...]


class StaticTensors:
    """The static tensors of a function's calls, in order."""

    def __init__(self, arguments: Sequence[Taking]) -> None:
        self._arguments = tuple(arguments)
        self._kept: _Kept | None = None
        own = weakref.ref(self)
        self._forget = lambda _: _forget(own())
        self._optimizers = optimizer_steps()

    def seen(self, tensors: list[Tensor]) -> Seen:
        """The tensors of a call.

        Raises:
            InputError: one is not as expected; OutOfMemoryError: there is no memory for a copy.
        """
        kept = self._kept
        steps = self._optimizers.count
        if kept is not None and steps == kept.steps and _are_same(tensors, kept):
            versions = sum(map(version_of, tensors))
            if versions == kept.versions:
                return kept.seen
            if not kept.seen.copies and _layouts(tensors) == kept.layouts:
                # Where they are has not changed.
                self._kept = kept = replace(kept, seen=replace(kept.seen), versions=versions)
                return kept.seen
        for argument, tensor in zip(self._arguments, tensors, strict=True):
            argument.check(tensor)
        if any(t.is_inference() for t in tensors):
            # They have no version counter.
            return self._now(tensors)
        # Before they are read: what changes meanwhile is read again.
        identities, versions = [*map(identity_of, tensors)], sum(map(version_of, tensors))
        addresses, numbers = [t.data_ptr() for t in tensors], [*range(len(tensors))]
        memory = [weakref.ref(t.untyped_storage(), self._forget) for t in tensors]
        # References of Python's die with a wrapper that PyTorch makes anew; this one, without types, with the tensor.
        references = (*memory, *map(torch._C._WeakTensorRef, tensors))  # type: ignore[attr-defined]
        seen = self._now(tensors)
        # A CUDA graph is to copy what it reads at every replay.
        if not (seen.copies and is_captured(tensors[0].device)):
            layouts, stream = _layouts(tensors), stream_on(tensors[0].device)
            self._kept = _Kept(seen, identities, addresses, numbers, layouts, versions, steps, stream, references)
        return seen

    def _now(self, tensors: list[Tensor]) -> Seen:
        usable = [a.usable(t) for a, t in zip(self._arguments, tensors, strict=True)]
        copies = {n: u for n, (u, t) in enumerate(zip(usable, tensors, strict=True)) if u is not t}
        return Seen(tuple(t.data_ptr() for t in usable), copies, any(t.requires_grad for t in tensors))


def _forget(tensors: StaticTensors | None) -> None:
    if tensors is not None:
        tensors._kept = None


def is_captured(device: torch.device) -> bool:
    """True while a CUDA graph is captured on the current stream of a GPU."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _are_same(tensors: list[Tensor], kept: _Kept) -> bool:
    """True for the same tensors in the same memory, which need no other check."""
    if kept.seen.trained and torch.is_grad_enabled():
        return False
    device = tensors[0].device
    if kept.seen.copies and (is_captured(device) or stream_on(device) != kept.stream):
        # Another stream would read copies before they are made, and one that is captured is to make them itself.
        return False
    return [*map(identity_of, tensors)] == kept.identities and at_addresses(tensors, kept.addresses, kept.numbers)


def _layouts(tensors: list[Tensor]) -> list[tuple[object, object]]:
    return [(t.shape, t.stride()) for t in tensors]
