"""Values stacked along a new first dimension without a copy in a call: slices of one tensor, and constants.

x[:, 0:8], x[:, 8:16], …   →   x.view(m, -1, 8).permute(1, 0, 2)
u.T, v.T                   →   stack([u, v]).transpose(1, 2)
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute, piece, view
from autosched.tracing.rewriting.batching.batched import Operand, batched
from autosched.tracing.values.values import Joined, Value, View
from autosched.tracing.values.views import Selection, Slicing, Windows


@dataclass(frozen=True)
class Place:
    """The place of a slice in a tensor: slices of one tensor with an equal `kind` differ in their beginning, `at`."""

    kind: Hashable
    at: int


def place_of(value: Value) -> Place | None:
    """The place of a slice or of one position along a dimension; None for other values."""
    match value:
        case View(kind=Slicing(dim=dim, start=start, step=step, count=count)) if step > 0:
            return Place((dim, step, count), start)
        case View(kind=Selection(dim=dim, at=at)):
            return Place(dim, at)
        case _:
            return None


def step_of(places: Sequence[int]) -> int | None:
    """The distance from each place to the next one, above 0; None where it varies."""
    steps = {b - a for a, b in itertools.pairwise(places)}
    step = steps.pop() if len(steps) == 1 else 0
    return step if step > 0 else None


def stacked_slices(views: Sequence[Value], argument: Value) -> Value | None:
    """Slices of `argument`, equal in the kinds of their places; None where they do not lie at equal distances."""
    first = views[0]
    places = [place.at for v in views if (place := place_of(v)) is not None]
    step = step_of(places)
    if step is None or not isinstance(first, View):
        return None
    count, kind = len(views), first.kind
    if isinstance(kind, Selection):
        return _first(piece(argument, kind.dim, places[0], count, step), kind.dim)
    assert isinstance(kind, Slicing)
    dim, size = kind.dim, kind.count
    span = piece(argument, dim, places[0], (count - 1) * step + (size - 1) * kind.step + 1)
    if (step, kind.step) == (size, 1):
        # Other rules see through this form of it.
        return _first(reshape(span, (*span.shape[:dim], count, size, *span.shape[dim + 1 :])), dim)
    shape = (*span.shape[:dim], count, *span.shape[dim + 1 :], size)
    windows = view(_like(span, "windows", shape), span, Windows(dim, size, step, kind.step))
    order = [dim, *range(dim), len(span.shape), *range(dim + 1, len(span.shape))]
    return permute(_like(span, "stacked", [shape[d] for d in order]), windows, order)


def _first(value: Value, dim: int) -> Value:
    """The value with a dimension moved to the first place."""
    if not dim:
        return value
    order = [dim, *(d for d in range(len(value.shape)) if d != dim)]
    return permute(_like(value, "stacked", [value.shape[d] for d in order]), value, order)


def stacked_constants(values: Sequence[Value]) -> Value:
    """Different constants of one shape and type; views of them that are alike, as views of the whole."""
    first = values[0]
    views = [v for v in values if isinstance(v, View)]
    arguments = [v.argument for v in views]
    if len(views) == len(values):
        made = None
        if len({(v.kind, v.argument.shape) for v in views}) == 1:
            made = batched(first, len(values), [Operand(stacked_constants(arguments), stacked=True)])
        elif len({*arguments}) == len({_kind(v) for v in views}) == 1 and _kind(first) is not None:
            made = stacked_slices(views, arguments[0])
        if made is not None:
            return made
    rows = tuple(reshape(v, (1, *v.shape)) for v in values)
    return _like(first, "stacked", (len(values), *first.shape)).of(Joined, parts=rows, dim=0)


def _kind(value: Value) -> Hashable:
    place = place_of(value)
    return None if place is None else place.kind


def whole_of(stacked: Value, dim: int, shape: tuple[int, ...]) -> Value:
    """The parts of a stack concatenated along a dimension, in this shape."""
    order = [*range(1, dim + 1), 0, *range(dim + 1, len(stacked.shape))]
    if dim:
        stacked = permute(_like(stacked, "side_by_side", [stacked.shape[d] for d in order]), stacked, order)
    return stacked if stacked.shape == shape else reshape(stacked, shape)


def _like(value: Value, name: str, shape: Sequence[int]) -> Result:
    return Result(f"{value.name}_{name}", tuple(shape), value.dtype, value.line)
