"""Selections between reads of one tensor as one read at a selected index, as for reflected ends.

Before:  where(i < 2, x[2 - i], where(i < 258, x[i - 2], x[512 - i]))
After:   x[2 - i if i < 2 else i - 2 if i < 258 else 512 - i]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from search_spaces.programs.tiles import Before, Slice
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal, Position

# The least and the greatest position of every axis.
Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SelectedIndex:
    """The index `then` where `at` is below `size`, and elsewhere `otherwise`."""

    at: Affine
    size: int
    then: Chosen
    otherwise: Chosen


Chosen = Affine | SelectedIndex


@dataclass(frozen=True)
class SelectedRead:
    """`tensor[index]`, or `fill` outside of it; `inside`: the index never is outside."""

    tensor: str
    index: tuple[Chosen, ...]
    fill: float | int | None
    inside: bool = False

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        """The axes along which each dimension is read."""
        return tuple(tuple(sorted(_axes(i))) for i in self.index)


@dataclass(frozen=True)
class Selections:
    """Shapes of the tensors that are read, by name, and the ranges of the axes."""

    shapes: Mapping[str, tuple[int, ...]]
    ranges: Ranges

    def read(self, e: Expression) -> SelectedRead | None:
        """The selection as one read of an input; None if it is not.

        All parts of a selected index are along the same axis.
        """
        found = _merged(e)
        if found is None or found.tensor not in self.shapes or all(isinstance(i, Affine) for i in found.index):
            return None
        if any(len(_axes(i)) > 1 for i in found.index if isinstance(i, SelectedIndex)):
            return None
        pairs = zip(found.index, self.shapes[found.tensor], strict=True)
        return replace(found, inside=all(_is_inside(i, size, self.ranges) for i, size in pairs))


def _merged(e: Expression) -> SelectedRead | None:
    match e:
        case Access(tensor, index, fill):
            return SelectedRead(tensor, index, fill)
        case Apply("where", (Apply("lt", (at, Literal(size) | Integer(size))), then, otherwise)):
            form, a, b = _position(at), _merged(then), _merged(otherwise)
            if form is None or a is None or b is None or a.tensor != b.tensor:
                return None
            # Without a fill it reads nothing outside.
            fill = b.fill if a.fill is None else a.fill
            if b.fill not in (None, fill):
                return None
            apart = [d for d, (m, n) in enumerate(zip(a.index, b.index, strict=True)) if m != n]
            if len(apart) != 1 or size != int(size):
                return None
            (d,) = apart
            chosen = SelectedIndex(form, int(size), a.index[d], b.index[d])
            return replace(a, fill=fill, index=(*a.index[:d], chosen, *a.index[d + 1 :]))
        case _:
            return None


def _position(e: Expression) -> Affine | None:
    match e:
        case Position(index) | Apply("to_integer", (Position(index),)):
            return index
        case _:
            return None


def _axes(index: Chosen) -> set[str]:
    if isinstance(index, Affine):
        return {axis for axis, _ in index.terms}
    return _axes(index.at) | _axes(index.then) | _axes(index.otherwise)


def _is_inside(index: Chosen, size: int, ranges: Ranges) -> bool:
    return all(least >= 0 and most < size for least, most in _reaches(index, ranges))


def _reaches(index: Chosen, ranges: Ranges) -> Iterator[tuple[int, int]]:
    """The least and the greatest value of every form that is chosen for some position."""
    if isinstance(index, Affine):
        ends = [(c * ranges[axis][0], c * ranges[axis][1]) for axis, c in index.terms]
        yield index.offset + sum(map(min, ends)), index.offset + sum(map(max, ends))
        return
    below, above = _divided(index, ranges)
    for part, within in ((index.then, below), (index.otherwise, above)):
        if within is not None:
            yield from _reaches(part, within)


def _divided(choice: SelectedIndex, ranges: Ranges) -> tuple[Ranges | None, Ranges | None]:
    """The positions that meet the condition, and the others; None for an empty range."""
    match choice.at.terms:
        case ((axis, 1),):
            least, most = ranges[axis]
            end = choice.size - choice.at.offset
            below = {**ranges, axis: (least, min(most, end - 1))} if least < end else None
            return below, {**ranges, axis: (max(least, end), most)} if end <= most else None
        case _:
            return ranges, ranges


def slice_chosen(index: Chosen, slice_of: Callable[[Affine], Slice]) -> Slice:
    """The slice of a dimension with a selected index, given the slices of forms."""
    moving = next((s for s in map(slice_of, _forms(index)) if s.extent is not None), None)

    def lying(form: Affine) -> Slice:
        found = slice_of(form)
        stands = moving is not None and found.extent is None
        if not (moving and stands):
            return found
        return replace(found, extent=moving.extent, axis=moving.axis, step=0, flat=moving.flat)

    def chosen(i: Chosen) -> Slice:
        if isinstance(i, Affine):
            return lying(i)
        rest = chosen(i.otherwise)
        return replace(rest, before=(Before(lying(i.at), i.size, chosen(i.then)), *rest.before))

    return chosen(index)


def _forms(index: Chosen) -> Iterator[Affine]:
    """The forms of an index: the alternatives, and those of the conditions."""
    if isinstance(index, Affine):
        yield index
        return
    yield index.at
    yield from _forms(index.then)
    yield from _forms(index.otherwise)
