"""Tensors in memory as kernels read them: strided views of stored values."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils._python_dispatch import _disable_current_modes

from autosched.tracing.values.values import Value, View, ViewKind
from search_spaces import AutoschedError, InputError
from search_spaces.workloads.strides import check_strides, span


@dataclass(frozen=True)
class MemoryView:
    """A strided view, in elements, of a value that is stored: another value, or one input of a workload."""

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class TensorRead:
    """A kernel's read of a tensor in memory: first element, axes, and their strides.

    `sizes`: per dimension None, where the axis alone indexes it and has its extent; or its own size, where it is
    gathered from, or has another index, possibly outside: then its name in `strides` means nothing.
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
        """True if every dimension is indexed by one axis alone."""
        return len(self.axes) == len(self.strides)


def in_order(operand: TensorRead, dimensions: Iterable[tuple[str, int, int | None]]) -> TensorRead:
    """The operand with these dimensions: name, stride and own size.

    Broadcast dimensions (stride 0) come first, the smallest stride last: neighbours in memory.
    """
    ordered = sorted(dimensions, key=lambda each: (each[1] != 0, -each[1]))
    return replace(operand, strides=tuple((v, s) for v, s, _ in ordered), sizes=tuple(n for _, _, n in ordered))


def whole_of(strided: MemoryView) -> TensorRead:
    """A read of the view by its own dimensions."""
    named = tuple((f"dimension{d}", stride) for d, stride in enumerate(strided.strides))
    return TensorRead(strided.value.name, strided.value, strided.offset, named, strided.shape)


def view_of(operand: TensorRead, extents: Mapping[str, int]) -> MemoryView:
    named = zip(operand.strides, operand.sizes, strict=True)
    shape = tuple(extents[v] if size is None else size for (v, _), size in named)
    return MemoryView(operand.value, shape, tuple(s for _, s in operand.strides), operand.offset)


def check_within(view: MemoryView, strides: tuple[int, ...]) -> None:
    """Raise AutoschedError for a read beyond the memory of a value, which is stored with these strides."""
    there = span(view.value.shape, strides)
    if view.offset < 0 or view.offset + span(view.shape, view.strides) > there:
        raise AutoschedError(
            f"{view.value.name} is read from element {view.offset} on as {list(view.shape)} with strides "
            f"{list(view.strides)}; expected nothing beyond its {there} elements of memory: a defect of autosched"
        )


def chain(view: View, stored: Mapping[Value, tuple[int, ...]]) -> list[View]:
    """The view and those below it, down to a value that is stored or is no view."""
    views = [view]
    while isinstance(views[-1].argument, View) and views[-1].argument not in stored:
        views.append(views[-1].argument)
    return views


def memory_view(value: Value, stored: Container[Value]) -> MemoryView | None:
    """The strided view of memory that a value is; None where it is not in memory, or no strides make it."""
    if value in stored:
        return MemoryView(value, value.shape, value.memory_strides, 0)
    views: list[View] = []
    here = value
    while isinstance(here, View):
        views.append(here)
        here = here.argument
        if here in stored and (found := placed(views, here.memory_strides)):
            return MemoryView(here, value.shape, *found)
    return None


def overlaps(strided: MemoryView) -> bool:
    """True if several indices share an element, except along broadcast dimensions."""
    try:
        check_strides(strided.value.name, strided.shape, strided.strides)
    except InputError:
        return True
    return False


def base_of(value: Value, stored: Mapping[Value, tuple[int, ...]]) -> Value:
    """The stored value, or the first one that is no view, below a view; or the value itself."""
    return chain(value, stored)[-1].argument if isinstance(value, View) and value not in stored else value


def placed(views: Sequence[View], strides: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """Strides and offset of the first view of a tensor in memory; None where no strides make it."""
    return _placed(tuple(v.kind for v in views), views[-1].argument.shape, strides)


# A graph of a thousand operators asks for some hundred views, each many times.
@functools.lru_cache(4096)
def _placed(
    kinds: tuple[ViewKind, ...], shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], int] | None:
    # Within AOTAutograd a view goes through its modes, and through PyTorch's rules in Python.
    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        tensor = torch.empty_strided(shape, strides, device="meta")
        try:
            for kind in reversed(kinds):
                tensor = kind.apply(tensor)
        except RuntimeError:
            return None
        return tuple(tensor.stride()), int(tensor.storage_offset())
