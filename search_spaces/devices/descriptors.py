"""Tensor descriptors: the tensors whose tiles the tensor memory accelerator can move, and why it cannot move others.

A descriptor gives a base address, and the size and stride of every dimension. Rows with strides that it cannot express
are read and written by pointers, which take any strides. A dimension of stride 0, one matrix shared by a batch, is left
out of the descriptor: its tiles are the same at every index. A dimension of one row or matrix may have any stride,
since none is ever followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from search_spaces.devices.architectures import TMA
from search_spaces.devices.features import Descriptors
from search_spaces.devices.target import Target
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.workload import Tensor, Workload


class Laid(Protocol):
    """An array with its layout in memory: a buffer of a program."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def strides(self) -> tuple[int, ...]: ...


def why_not_describable(tensor: Tensor | Laid, by: Descriptors = TMA) -> str | None:
    """Reason that no descriptor describes the tensor, or None when one does."""
    if not tensor.shape:
        return "it has no dimensions; descriptors need one"
    strides = tensor.effective_strides if isinstance(tensor, Tensor) else tensor.strides
    size = dtype(tensor.dtype).bytes
    if sum(map(bool, strides)) > by.dimensions:
        return f"it has {sum(map(bool, strides))} dimensions; descriptors have at most {by.dimensions}"
    *outer, inner = zip(tensor.shape, strides, strict=True)
    if inner[1] != 1 and inner[0] > 1:
        return f"elements of its last dimension are {inner[1]} apart; descriptors need neighbours"
    for distance, (extent, stride) in enumerate(reversed(outer)):
        if extent > 1 and stride * size % by.alignment_bytes:
            what = f"rows of {tensor.shape[-1]}" if distance == 0 else "matrices of"
            return (
                f"{what} {tensor.dtype} are {stride * size} bytes apart; "
                f"descriptors need multiples of {by.alignment_bytes}"
            )
    return None


def why_not_storable(tensor: Tensor | Laid, by: Descriptors = TMA) -> str | None:
    """Reason that no descriptor writes tiles of the tensor, or None if one does.

    A read beyond the end of a row gives 0, but a write covers whole pieces of 16 bytes: seen on an H200, where a row of
    31 float16 was written with the element behind it, and one of 17 int8 with fifteen.
    """
    if reason := why_not_describable(tensor, by):
        return reason
    row = tensor.shape[-1] * dtype(tensor.dtype).bytes
    if row % by.alignment_bytes == 0:
        return None
    return (
        f"a row of {tensor.shape[-1]} {tensor.dtype} has {row} bytes; "
        f"descriptors write multiples of {by.alignment_bytes}"
    )


def descriptor_remarks(
    workload: Workload, operands: Iterable[str], target: Target, instead: str = "read by pointers, or copied first"
) -> tuple[str, ...]:
    """A line for each tensor of two dimensions and more that has no descriptor on a target that has them.

    `operands` are those of the product, moved as `instead` says; the other inputs are read by its epilogue.

        b: rows of 4093 bfloat16 are 8186 bytes apart; descriptors need multiples of 16, so b is read
        by pointers, or copied first
    """
    by = target.features.descriptors
    if by is None:
        return ()
    ways = dict.fromkeys(operands, instead) | {t.name: "written by pointers" for t in workload.outputs}
    reasons = {t.name: why_not_describable(t, by) for t in workload.inputs if len(t.shape) > 1}
    reasons |= {t.name: why_not_storable(t, by) for t in workload.outputs if len(t.shape) > 1}
    return tuple(
        f"{name}: {why}, so {name} is {ways.get(name, 'read by pointers')}" for name, why in reasons.items() if why
    )
