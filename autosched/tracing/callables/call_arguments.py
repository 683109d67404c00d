"""Arguments of the calls of a traced function: checked, and copied where kernels cannot read them as they lie."""

from __future__ import annotations

import torch
from torch import Tensor

from autosched.kernels.dispatch import Argument, Expected
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
        # Matches no tensor, so that each is checked in detail.
        self.expected: Expected = (torch.float64, torch.Size([-1]), None)
        self._shape, self._dtype, self._device = leaf.shape, getattr(torch, leaf.dtype), device
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
