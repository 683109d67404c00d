"""Tensors in memory as kernels read them: strided views, of what is stored and of views of it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from autosched.tracing.values.values import Value, View
from search_spaces import AutoschedError, InputError
from search_spaces.workloads.strides import check_strides, span


@dataclass(frozen=True)
class Lying:
    """How a value lies in memory: as a strided view of a value that is there."""

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class TensorRead:
    """A tensor in memory as a kernel reads it: from which element on, and by which axes with which strides.

    `sizes`: of every dimension None, where the axis alone indexes it and has its extent; or its own size, where it is
    looked up in, or indexed by more, and maybe outside: then its name in `strides` means nothing.
    """

    name: str
    value: Value
    offset: int
    strides: tuple[tuple[str, int], ...]
    sizes: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", self.sizes or (None,) * len(self.strides))

    @property
    def axes(self) -> dict[str, int]:
        """The axes that index a dimension alone, with their strides."""
        return {v: s for (v, s), size in zip(self.strides, self.sizes, strict=True) if size is None}

    @property
    def is_plain(self) -> bool:
        """Whether all dimensions are such."""
        return len(self.axes) == len(self.strides)


def in_order(operand: TensorRead, dimensions: Iterable[tuple[str, int, int | None]]) -> TensorRead:
    """The operand with these dimensions: name, stride and own size.

    Those along which it is the same come first: the last one should be that of neighbours in memory.
    """
    ordered = sorted(dimensions, key=lambda each: (each[1] != 0, -each[1]))
    return replace(operand, strides=tuple((v, s) for v, s, _ in ordered), sizes=tuple(n for _, _, n in ordered))


def whole_of(lies: Lying) -> TensorRead:
    """What lies there with its own dimensions."""
    named = tuple((f"dimension{d}", stride) for d, stride in enumerate(lies.strides))
    return TensorRead(lies.value.name, lies.value, lies.offset, named, lies.shape)


@dataclass(frozen=True)
class ViewOf:
    """A strided view of a value in memory, in elements: what one input of a workload is given."""

    value: Value
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def view_of(operand: TensorRead, extents: Mapping[str, int]) -> ViewOf:
    named = zip(operand.strides, operand.sizes, strict=True)
    shape = tuple(extents[v] if size is None else size for (v, _), size in named)
    return ViewOf(operand.value, operand.offset, shape, tuple(s for _, s in operand.strides))


def check_within(view: ViewOf, strides: tuple[int, ...]) -> None:
    """Raise AutoschedError where a kernel would read beyond the memory of a value, which lies with these strides."""
    there = span(view.value.shape, strides)
    if view.offset < 0 or view.offset + span(view.shape, view.strides) > there:
        raise AutoschedError(
            f"{view.value.name} is read from element {view.offset} on as {list(view.shape)} with strides "
            f"{list(view.strides)}; expected nothing beyond its {there} elements of memory: a defect of autosched"
        )


def chain(view: View, stored: Mapping[Value, tuple[int, ...]]) -> list[View]:
    """The view and those it is a view of, down to what is in memory or is none."""
    views = [view]
    while isinstance(views[-1].argument, View) and views[-1].argument not in stored:
        views.append(views[-1].argument)
    return views


def lying(value: Value, stored: Container[Value]) -> Lying | None:
    """How a value lies in memory; None where it does not, or no strides say so."""
    if value in stored:
        return Lying(value, value.shape, value.memory_strides, 0)
    views: list[View] = []
    here = value
    while isinstance(here, View):
        views.append(here)
        here = here.argument
        if here in stored and (found := placed(views, here.memory_strides)):
            return Lying(here, value.shape, *found)
    return None


def overlaps(lies: Lying) -> bool:
    """Whether several indices are one element, but for dimensions along which all are."""
    try:
        check_strides(lies.value.name, lies.shape, lies.strides)
    except InputError:
        return True
    return False


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
