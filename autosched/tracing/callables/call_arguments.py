"""Arguments of the calls of a traced function: checked, and copied where kernels cannot read them as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autosched.kernels.dispatch import Argument, Expected, check_transforms, is_handled_elsewhere, ready_addresses
from autosched.kernels.static_tensors import StaticTensors
from autosched.tracing.values.tensor_reads import MemoryView, overlaps
from autosched.tracing.values.values import Leaf
from search_spaces import InputError
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.strides import span


class OtherArgument:
    """An argument that is no tensor of a workload: it has no elements, an element type that kernels do not know, or
    overlapping elements, as windows have.
    """

    def __init__(self, leaf: Leaf, device: torch.device, alignment: int) -> None:
        self.name = leaf.name
        self.description = f"{leaf.name}{list(leaf.shape)} {leaf.dtype}"
        self._shape, self._dtype, self._device = leaf.shape, getattr(torch, leaf.dtype), device
        self.expected: Expected = (self._dtype, torch.Size(leaf.shape), leaf.strides)
        self._strides, self._alignment = leaf.strides, alignment

    def check(self, tensor: Tensor) -> None:
        """Raise InputError unless it is such a tensor."""
        if (tuple(tensor.shape), tensor.dtype, tensor.device) != (self._shape, self._dtype, self._device):
            raise InputError(f"expected {self.description} on {self._device}, got {tensor.dtype} {list(tensor.shape)}")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise InputError(f"{self.name} requires a gradient, and kernels compute forward only; pass it detached")

    def usable(self, tensor: Tensor) -> Tensor:
        """The tensor, or a copy of it with the example's strides."""
        if 0 in self._shape:
            return tensor
        if tensor.stride() == self._strides:
            return tensor if tensor.data_ptr() % self._alignment == 0 else _moved(tensor)
        copy = torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
        # Elements that share memory are written once.
        once = tuple(slice(1) if stride == 0 else slice(None) for stride in self._strides)
        copy[once].copy_(tensor[once])
        return copy


def _moved(tensor: Tensor) -> Tensor:
    """A copy of the tensor with the same overlaps of elements."""
    memory = tensor.as_strided((span(tuple(tensor.shape), tensor.stride()),), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())


def argument_of(leaf: Leaf, device: torch.device, alignment: int) -> Argument | OtherArgument:
    """The check of a call's tensor for an argument, and its conversion to one that kernels read."""
    strided = MemoryView(leaf, leaf.shape, leaf.strides, 0)
    if 0 in leaf.shape or not leaf.readable or overlaps(strided):
        return OtherArgument(leaf, device, alignment)
    return Argument(TensorSpec(leaf.name, leaf.shape, leaf.dtype, leaf.strides), device, alignment)


@dataclass(frozen=True, eq=False, slots=True)
class Taken:
    """The arguments of a call as kernels read them, and their addresses; `copied`: some are copies.

    `static`: an object that is another one whenever a static one has changed; None where there is none.
    """

    tensors: Sequence[Tensor]
    addresses: Sequence[int]
    copied: bool
    static: object = None


class CallArguments:
    """The arguments of a function's calls, in order; those of `static` leaves are checked when they change."""

    def __init__(self, name: str, leaves: Sequence[Leaf], device: torch.device, alignment: int) -> None:
        self._name, self._device, self._alignment = name, device, alignment
        self._all = tuple(argument_of(s, device, alignment) for s in leaves)
        self._static = tuple(n for n, s in enumerate(leaves) if s.static)
        self._moving = tuple(n for n, s in enumerate(leaves) if not s.static)
        # From those that move and then the static ones to the order of a call, where that is another one.
        apart = [*self._moving, *self._static]
        self._order = None if apart == sorted(apart) else tuple(map(apart.index, range(len(apart))))
        self._expected = tuple(self._all[n].expected for n in self._moving)
        self._seen = StaticTensors([self._all[n] for n in self._static])

    def taken(self, tensors: Sequence[Tensor]) -> Taken:
        """The tensors, or copies of them that kernels can read.

        Raises:
            InputError: they are not those that the function takes.
        """
        if len(tensors) != len(self._all):
            self.check(tensors)
        moving = tensors[: len(self._moving)] if self._order is None else [tensors[n] for n in self._moving]
        found = ready_addresses(moving, self._expected, self._device, self._alignment)
        copied = found is None
        if found is None:
            self.check(tensors)
            moving = [self._all[n].usable(tensors[n]) for n in self._moving]
            found = [t.data_ptr() for t in moving]
        return self._with_static(tensors, moving, found, copied) if self._static else Taken(moving, found, copied)

    def _with_static(
        self, tensors: Sequence[Tensor], moving: Sequence[Tensor], found: Sequence[int], copied: bool
    ) -> Taken:
        static = [*tensors[len(moving) :]] if self._order is None else [tensors[n] for n in self._static]
        seen = self._seen.seen(static)
        for number, copy in seen.copies.items():
            static[number] = copy
        usable, addresses = [*moving, *static], [*found, *seen.addresses]
        if self._order is not None:
            usable, addresses = [usable[n] for n in self._order], [addresses[n] for n in self._order]
        return Taken(usable, addresses, copied or bool(seen.copies), seen)

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raise InputError where kernels can read neither these tensors nor copies of them."""
        if len(tensors) != len(self._all):
            names = ", ".join(a.description for a in self._all)
            raise InputError(f"{self._name} takes {len(self._all)} tensors ({names}), got {len(tensors)}")
        if any(map(is_handled_elsewhere, tensors)):
            raise InputError(
                f"{self._name} is called on a tensor without data, as while a function is captured; expected "
                "data: trace or export the function itself, without its kernel"
            )
        check_transforms([a for a in self._all if isinstance(a, Argument)], tensors)
        for argument, tensor in zip(self._all, tensors, strict=True):
            argument.check(tensor)
