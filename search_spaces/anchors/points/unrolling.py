"""Unrolling of neighbouring points: elements that they share are loaded once, as vectors.

Before:  for j in 64: out[j] = x[2*j - 1] + x[2*j] + x[2*j + 1]
After:   for j in 32: out[2*j] = x[4*j - 1] + x[4*j] + x[4*j + 1]; out[2*j + 1] = x[4*j + 1] + x[4*j + 2] + x[4*j + 3]

Also called register tiling, or unroll and jam.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.programs.lowering import Emitter, Place
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.statements import Fill, For, Interleave, Statement, fold_identity
from search_spaces.programs.tiles import Slice, Tile, sliced
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import distinct_accesses
from search_spaces.workloads.stages import JOINED_BY
from search_spaces.workloads.workload import Axis, Stage

# Largest distance of elements of a window; a concatenation reads its parts farther from each other.
_NEAR = 8
# Operators whose first argument is computed apart from the others.
_FOLDING = frozenset({"add", "sub", "mul", "div", "maximum", "minimum", "fma", *ROUNDINGS})


def is_shared(structure: Structure, axis: Axis) -> bool:
    """True if neighbouring points along the axis read the same elements, or interleaved ones."""
    read: dict[tuple[str, tuple[tuple[tuple[str, int], ...], ...]], set[tuple[int, ...]]] = {}
    taps = {x.name for x in structure.reduced}
    for stage in (*structure.outputs, *structure.folds):
        for access in distinct_accesses(structure.body_of(stage)):
            along = [dict(index.terms).get(axis.name, 0) for index in access.index]
            windows = (c and not taps.isdisjoint(i.axes) for i, c in zip(access.index, along, strict=True))
            if any(abs(c) > 1 for c in along) or any(windows):
                return True
            if any(along):
                moving = tuple(i.offset for i, c in zip(access.index, along, strict=True) if c)
                read.setdefault((access.tensor, tuple(i.terms for i in access.index)), set()).add(moving)
    return any(_near(a, b) for offsets in read.values() for a, b in itertools.combinations(sorted(offsets), 2))


def _near(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(abs(m - n) <= _NEAR for m, n in zip(a, b, strict=True))


@dataclass(frozen=True)
class Unrolling:
    """Unrolled points along some axes, the outermost first, for a program that computes the points at a place.

    Those along the column are neighbours in memory, and stored together. `vectors`: interleaved elements are loaded
    together, and taken apart.
    """

    counts: Mapping[str, int]
    column: str
    vectors: bool

    def emit(self, structure: Structure, first: Emitter, stored: Slice | None, index: Sequence[str]) -> list[Statement]:
        """Every output at the place of the emitter, one unrolled row after another.

        `stored`: the columns of stores, if not those of the place, along the dimensions `index`.
        """
        first = replace(first, neighbours=self._neighbours(structure))
        outer = {x: n for x, n in self.counts.items() if x != self.column}
        emitters = {at: self._row(first, dict(zip(outer, at, strict=True))) for at in _positions(outer.values())}
        for fold in structure.folds:
            self._fold(structure, fold, first, list(itertools.chain(*emitters.values())))
        for output in structure.outputs:
            own = {x.name for x in output.axes}
            body = _value_of(structure, output)
            along = tuple(x for x in (x.name for x in output.axes) if x in index)
            rows = [
                row if self.column in own else row[:1]
                for at, row in emitters.items()
                if not any(m and x not in own for x, m in zip(outer, at, strict=True))
            ]
            _in_turn(body, list(itertools.chain(*rows)))
            for row in rows:
                parts = [e.everywhere(along, e.tile(body, output.name)) for e in row]
                columns = stored or first.place[self.column]
                whole = replace(first, place={**row[0].place, self.column: columns})
                whole.store(output.name, along, self._together(parts, first))
        return first.body

    def _fold(self, structure: Structure, fold: Stage, first: Emitter, points: Sequence[Emitter]) -> None:
        """A loop over the rows of a window, with a running value for each point; every emitter knows its own after it.

        for r in 31: acc = acc + (x[p + r, q] * w[r, 0] + x[p + r, q + 1] * w[r, 1] + …)
        """
        assert fold.reduction is not None
        operator, body = fold.reduction.operator, structure.body_of(fold)
        taps = {x.name: Slice(Affine.of((f"{x.name}.0", 1))) for x in fold.reduction.axes}
        inside = replace(first, body=[], neighbours=self._neighbours(structure))
        inner = [replace(inside, place={**e.place, **taps}, _known={}) for e in points]
        _in_turn(body, inner)
        for e, i in zip(points, inner, strict=True):
            extents = sliced(e.place[x.name] for x in structure.parallel)
            running = Tile(first.names.fresh(fold.name), tuple(extents), tuple(extents.values()))
            first.body.append(Fill(running, fold_identity(operator, integral=False)))
            i.assign(running, JOINED_BY[operator], running, i.tile(body, "t"))
            e.tiles[fold.name] = running
        nest = tuple(inside.body)
        for x in reversed(fold.reduction.axes):
            nest = (For(f"{x.name}.0", x.extent, nest),)
        first.body.extend(nest)

    def _neighbours(self, structure: Structure) -> Neighbours:
        inputs = structure.workload.inputs if self.vectors else ()
        return Neighbours({t.name: t.effective_strides for t in inputs})

    def _row(self, first: Emitter, at: Mapping[str, int]) -> list[Emitter]:
        """Emitters of the unrolled columns at these unrolled positions of the other axes."""
        columns = self.counts.get(self.column, 1)
        places = ({**at, self.column: n} for n in range(columns))
        return [replace(first, place=self._at(first.place, where), tiles={}, _known={}) for where in places]

    def _at(self, place: Place, where: Mapping[str, int]) -> Place:
        return {**place, **{x: _strided(place[x], where[x], n) for x, n in self.counts.items() if n > 1}}

    def _together(self, parts: Sequence[Tile], emitter: Emitter) -> Tile:
        """The tiles of neighbouring columns as one."""
        one = parts[0]
        if len(parts) == 1:
            return one
        shape = tuple(e * len(parts) if x == self.column else e for x, e in zip(one.axes, one.shape, strict=True))
        dst = Tile(emitter.names.fresh("together"), one.axes, shape, one.dtype)
        emitter.body.append(Interleave(dst, tuple(p.name for p in parts), self.column))
        return dst


def _value_of(structure: Structure, output: Stage) -> Expression:
    if output.reduction is None:
        return structure.body_of(output)
    return Access(output.name, tuple(axis_index(x.name) for x in output.axes))


def _in_turn(body: Expression, points: Sequence[Emitter]) -> None:
    """Compute an expression at several points, term by term for all of them (unroll and jam).

    So what a term reads, as the weight of a tap, is needed no longer than by one point after the other. Terms are those
    of a sum or of another fold that is written out.
    """
    first: list[Expression] = []
    while isinstance(body, Apply) and body.operator in _FOLDING:
        body = body.arguments[0]
        first.append(body)
    for term in reversed(first):
        for e in points:
            e.emit(term)


def _positions(counts: Iterable[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, counts))


def _strided(piece: Slice, first: int, by: int) -> Slice:
    """Every `by`-th position of the piece, from `first` on; of the next `by` positions if it is a single one."""
    start = piece.start + Affine(offset=first * piece.step)
    if piece.extent is None:
        return replace(piece, start=start)
    return replace(piece, start=start, extent=piece.extent // by, step=piece.step * by)
