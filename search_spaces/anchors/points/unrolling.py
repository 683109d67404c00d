"""Unrolling of neighbouring points: elements that they share are loaded once, as vectors.

Before:  for j in 64: out[j] = x[2*j - 1] + x[2*j] + x[2*j + 1]
After:   for j in 32: out[2*j] = x[4*j - 1] + x[4*j] + x[4*j + 1]; out[2*j + 1] = x[4*j + 1] + x[4*j + 2] + x[4*j + 3]

Also called register tiling, or unroll and jam.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.points.flat_rows import FlatRows
from search_spaces.programs.lowering import Emitter, Place
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.statements import Interleave, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis

# Largest distance of elements of a window; a concatenation reads its parts farther from each other.
_NEAR = 8


def is_shared(structure: Structure, axis: Axis) -> bool:
    """True if neighbouring points along the axis read the same elements, or interleaved ones."""
    read: dict[tuple[str, tuple[tuple[tuple[str, int], ...], ...]], set[tuple[int, ...]]] = {}
    for stage in structure.outputs:
        for access in accesses(structure.body_of(stage)):
            along = [dict(index.terms).get(axis.name, 0) for index in access.index]
            if any(abs(c) > 1 for c in along):
                return True
            if any(along):
                moving = tuple(i.offset for i, c in zip(access.index, along, strict=True) if c)
                read.setdefault((access.tensor, tuple(i.terms for i in access.index)), set()).add(moving)
    return any(_near(a, b) for offsets in read.values() for a, b in itertools.combinations(sorted(offsets), 2))


def _near(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(abs(m - n) <= _NEAR for m, n in zip(a, b, strict=True))


@dataclass(frozen=True)
class Unrolling:
    """Unrolled points along a row and a column axis, for a program that computes the points at a place."""

    row: str
    column: str
    rows: int
    columns: int

    def emit(self, structure: Structure, first: Emitter, flat: FlatRows | None) -> list[Statement]:
        """Every output at the place of the emitter, row by row of the unrolled ones."""
        place = first.place
        neighbours = Neighbours({t.name: t.effective_strides for t in structure.workload.inputs})
        first = replace(first, neighbours=neighbours)
        places = [[self._at(place, m, n) for n in range(self.columns)] for m in range(self.rows)]
        emitters = [[replace(first, place=p, _known={}) for p in row] for row in places]
        for output in structure.outputs:
            own = {x.name for x in output.axes}
            body = structure.body_of(output)
            index = tuple(x.name for x in output.axes if flat is None or x != flat.row)
            for row in emitters if self.row in own else emitters[:1]:
                along = row if self.column in own else row[:1]
                parts = [e.everywhere(index, e.tile(body, output.name)) for e in along]
                columns = place[self.column] if flat is None else flat.stored
                whole = replace(first, place={**row[0].place, self.column: columns})
                whole.store(output.name, index, self._together(parts, first))
        return first.body

    def _at(self, place: Place, m: int, n: int) -> Place:
        unrolled = {self.row: _strided(place[self.row], m, self.rows)} if self.rows > 1 else {}
        if self.columns > 1:
            unrolled[self.column] = _strided(place[self.column], n, self.columns)
        return {**place, **unrolled}

    def _together(self, parts: Sequence[Tile], emitter: Emitter) -> Tile:
        """The tiles of neighbouring columns as one."""
        one = parts[0]
        if len(parts) == 1:
            return one
        shape = tuple(e * len(parts) if x == self.column else e for x, e in zip(one.axes, one.shape, strict=True))
        dst = Tile(emitter.names.fresh("together"), one.axes, shape, one.dtype)
        emitter.body.append(Interleave(dst, tuple(p.name for p in parts), self.column))
        return dst


def _strided(piece: Slice, first: int, by: int) -> Slice:
    """Every `by`-th position of the piece, from `first` on."""
    assert piece.extent is not None, "only an axis that the tile has is unrolled"
    start = piece.start + Affine(offset=first * piece.step)
    return replace(piece, start=start, extent=piece.extent // by, step=piece.step * by)
