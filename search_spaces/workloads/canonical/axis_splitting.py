"""Axes of stages split until all have the same ones, in the canonical form of a workload.

t[i0, i1] of 8 × 4, read at t[4 j0 + j1]          →     t read at t[j0, j1]: the axis j of 32 is two
t[i] of 32, read at t[4 j0 + j1], j1 below 4      →     t is 8 × 4
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import distinct_accesses, reindexed, variables


class UnspellableError(Exception):
    """A form has no spelling of its own: some index does not fit any dimensions."""


@dataclass
class Line:
    """A stage of the form. `own` and `over` are its axes and those that it folds, with extents; `strides`: of its own.

    The expression reads tensors at addresses: an access has the address as its first index; with a fill, it also has
    index, size and stride of every dimension along which it may be outside, one after the other.
    """

    name: str
    dtype: str
    own: dict[str, int]
    strides: dict[str, int]
    over: dict[str, int]
    operator: str
    expression: Expression
    scan: Sequence[Any]

    @property
    def extents(self) -> dict[str, int]:
        return {**self.own, **self.over}

    @property
    def multiplies(self) -> bool:
        """True if it sums products of two factors that each have axes of their own."""
        match self.expression:
            case Apply("mul", (a, b)) if self.operator == "sum":
                of_a, of_b = variables(a), variables(b)
                return bool(of_a - of_b and of_b - of_a)
        return False

    @property
    def scanned(self) -> str:
        """The axis that it is scanned along, or ""."""
        return self.scan[0] if self.scan else ""

    def split(self, axis: str, inner: int) -> None:
        """Make two axes of one, the inner one of this extent."""
        if axis == self.scanned:
            raise UnspellableError(f"{axis} is scanned along")
        outer_name, inner_name = f"{axis}0", f"{axis}1"
        outer = self.extents[axis] // inner

        def parts(loops: dict[str, int], of: tuple[int, int]) -> dict[str, int]:
            pair = dict(zip((outer_name, inner_name), of, strict=True))
            return {x: n for name, given in loops.items() for x, n in (pair if name == axis else {name: given}).items()}

        step = self.strides.get(axis, 0)
        forms = {x: axis_index(x) for x in self.extents} | {axis: Affine.of((outer_name, inner), (inner_name, 1))}
        self.own, self.over = parts(self.own, (outer, inner)), parts(self.over, (outer, inner))
        self.strides = parts(self.strides, (step * inner, step))
        self.expression = reindexed(self.expression, lambda form: form.substituted(forms))


def split_axes(lines: Mapping[str, Line]) -> None:
    """Split axes until each stage has the same ones as its readers, and as other readers of the same tensors.

    Also the same as other stages of as many points; and a fold of the same rows gets another fold's outer positions.
    """
    tensors = dict.fromkeys(
        a.tensor for x in lines.values() for a in distinct_accesses(x.expression) if a.tensor not in lines
    )
    while (
        any(_split_for_stages(line, lines) for line in lines.values())
        or any(map(_split_for_tensor, _reads_of(tensors, lines.values())))
        or any(_split_as(line, other) for line in lines.values() for other in lines.values())
        or any(_split_beside(line, other) for line in lines.values() for other in lines.values())
    ):
        pass


def _split_for_stages(reader: Line, lines: Mapping[str, Line]) -> bool:
    """Split an axis of the reader or of a stage that it reads, if it spans several of the other; True if one was."""
    for access in dict.fromkeys(a for a in distinct_accesses(reader.expression) if a.tensor in lines):
        read, address = lines[access.tensor], access.index[0]
        steps = {(abs(c), abs(c) * reader.extents[v]) for v, c in address.terms}
        steps |= {(step.offset, step.offset * size.offset) for _, size, step in guards_of(access)}
        for axis, extent in read.own.items():
            for bound in sorted({b for pair in steps for b in pair}):
                if _is_digit(address, bound, reader.extents) and _split(read, axis, extent, read.strides[axis], bound):
                    return True
        bounds = sorted({b for x, n in read.own.items() for b in (read.strides[x], read.strides[x] * n)})
        guarded = {v for index, _, _ in guards_of(access) for v, _ in index.terms}
        for axis, step in address.terms:
            if axis not in guarded and any(_split(reader, axis, reader.extents[axis], step, b) for b in bounds):
                return True
    return False


def _reads_of(tensors: Iterable[str], lines: Iterable[Line]) -> Iterable[list[tuple[Line, Affine]]]:
    """The addresses at which lines read each of the tensors."""
    reads: dict[str, list[tuple[Line, Affine]]] = {name: [] for name in tensors}
    for line in lines:
        for access in distinct_accesses(line.expression):
            if access.tensor in reads:
                reads[access.tensor].append((line, unguarded(access)))
    return reads.values()


def _split_for_tensor(reads: Sequence[tuple[Line, Affine]]) -> bool:
    """Split an axis along which an input is read across the digits of other reads; True if one was split."""
    bounds = {
        bound
        for line, address in reads
        for axis, step in address.terms
        for bound in (abs(step), abs(step) * line.extents[axis])
        if _is_digit(address, bound, line.extents)
    }
    bounds = {b for b in bounds if all(_is_digit(address, b, _cut(line, address, b)) for line, address in reads)}
    return any(
        _split(line, axis, line.extents[axis], step, bound)
        for line, address in reads
        for axis, step in address.terms
        for bound in sorted(bounds)
    )


def _cut(line: Line, address: Affine, bound: int) -> dict[str, int]:
    """The extents of the axes after a split at a bound: the inner extent of those that cross it."""
    crossing = {v: bound // c for v, c in address.terms if _crosses(c, line.extents[v], bound)}
    return line.extents | crossing


def _split_as(line: Line, other: Line) -> bool:
    """Split an axis of a stage where another one of as many points has more of them; True if one was split."""
    loops, more = ([*x.own.items(), *x.over.items()] for x in (line, other))
    bounds = [math.prod(n for _, n in more[place:]) for place in range(len(more))]
    own = [math.prod(n for _, n in loops[place:]) for place in range(len(loops))]
    if own[:1] != bounds[:1] or not {*own} < {*bounds}:
        return False
    inner = [*own[1:], 1]
    return any(_split(line, *loop, step, bound) for loop, step in zip(loops, inner, strict=True) for bound in bounds)


def _split_beside(line: Line, other: Line) -> bool:
    """Split the folded axis of a stage at the outer positions of another fold of such rows; True if it was split."""
    folds = all(x.over and not x.multiplies for x in (line, other))
    whole, part = (math.prod(x.over.values()) for x in (line, other))
    if not folds or [*line.own.values()] != [*other.own.values()] or whole <= part or whole % part:
        return False
    (axis, extent), step = next(iter(line.over.items())), math.prod([*line.over.values()][1:])
    return _split(line, axis, extent, step, whole // part)


def _split(line: Line, axis: str, extent: int, step: int, bound: int) -> bool:
    """Split an axis with such a step at a bound that it crosses; True if it does."""
    if not _crosses(step, extent, bound):
        return False
    line.split(axis, bound // step)
    return True


def _crosses(step: int, extent: int, bound: int) -> bool:
    return 0 < step < bound < step * extent and bound % step == 0 == step * extent % bound


def _is_digit(address: Affine, bound: int, extents: Mapping[str, int]) -> bool:
    """True if the terms below a bound stay within it."""
    low = Affine(tuple((v, c) for v, c in address.terms if abs(c) < bound), address.offset)
    return low.minimum(extents) // bound == low.maximum(extents) // bound


def guards_of(access: Access) -> Iterator[tuple[Affine, Affine, Affine]]:
    given = access.index[1:]
    return zip(given[::3], given[1::3], given[2::3], strict=True)


def unguarded(access: Access) -> Affine:
    """The address without the terms of guarded dimensions."""
    address = access.index[0]
    for index, _, step in guards_of(access):
        address = address - index * step.offset
    return address
