"""Tensors in memory as kernels read them: strided views, of what is stored and of views of it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import torch

from autosched.tracing.values.values import Value, View


@dataclass(frozen=True)
class TensorRead:
    """A tensor in memory as a kernel reads it: from which element on, and by which axes with which strides.

    One that is `looked_up` in is read as a whole: the names of its axes mean nothing, `shape` is its own.
    """

    name: str
    value: Value
    offset: int
    strides: tuple[tuple[str, int], ...]
    shape: tuple[int, ...] = ()

    @property
    def looked_up(self) -> bool:
        return bool(self.shape)


@dataclass(frozen=True)
class ViewOf:
    """A strided view of a value in memory, in elements: what one input of a workload is given."""

    value: Value
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def view_of(operand: TensorRead, extents: Mapping[str, int]) -> ViewOf:
    shape = operand.shape or tuple(extents[v] for v, _ in operand.strides)
    return ViewOf(operand.value, operand.offset, shape, tuple(s for _, s in operand.strides))


def chain(view: View, stored: Mapping[Value, tuple[int, ...]]) -> list[View]:
    """The view and those it is a view of, down to what is in memory or is none."""
    views = [view]
    while isinstance(views[-1].argument, View) and views[-1].argument not in stored:
        views.append(views[-1].argument)
    return views


def lying(value: Value, stored: Container[Value]) -> tuple[Value, tuple[int, ...], int] | None:
    """What is in memory for a value, and by which strides and offset it lies there; None where no strides say so."""
    if value in stored:
        return value, value.memory_strides, 0
    views: list[View] = []
    while isinstance(value, View):
        views.append(value)
        value = value.argument
        if value in stored and (found := placed(views, value.memory_strides)):
            return value, *found
    return None


def base_of(value: Value, stored: Mapping[Value, tuple[int, ...]]) -> Value:
    """What the value is a view of, in memory or no view; or itself."""
    return chain(value, stored)[-1].argument if isinstance(value, View) and value not in stored else value


def placed(views: Sequence[View], strides: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """Strides and offset of the first view of a tensor in memory; None where no strides make it."""
    tensor = torch.empty_strided(views[-1].argument.shape, strides, device="meta")
    try:
        for view in reversed(views):
            tensor = view.kind.apply(tensor)
    except RuntimeError:
        return None
    return tuple(tensor.stride()), int(tensor.storage_offset())
