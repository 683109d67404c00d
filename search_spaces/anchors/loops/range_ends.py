"""Ends of ranges that are data, as variables of a kernel: the loop over positions then has those of its tile alone.

Before:  for t.0 in T/64: total += sum of where(begin[g] <= t < end[g], x[t.0*64 : +64], 0)
After:   let first in T+1 = begin[g.0];  let last in T+1 = end[g.0]
         for t.0 in T/64, of use where first - t.0*64 < 64 and t.0*64 - last < 0: the same

Of tiles with several rows it is the least begin and the largest end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from search_spaces.programs.lowering import LEAST, MOST, Emitter, largest_at
from search_spaces.programs.statements import Let, Reduce
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.structure.reads.ranges import RangeEnd, is_ranged
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.walking import variables


def read_ahead(forms: Collection[Affine], ends: Mapping[str, RangeEnd], emitter: Emitter) -> dict[Expression, Tile]:
    """The ends in these forms as tiles of the rows, where the emitter is: loops then do not read them again."""
    named = {v for form in forms if is_ranged(form) for v in form.axes if v in ends}
    return {ends[v].expression: emitter.tile(ends[v].expression, "end") for v in sorted(named)}


def bound(
    forms: Collection[Affine], ends: Mapping[str, RangeEnd], emitter: Emitter, tiled: bool = True
) -> dict[str, Slice]:
    """The place of the ends in these forms, as `lowering.largest_at` takes it; the emitter is at the rows.

    `tiled`: false leaves out those that differ between the rows of a tile.
    """
    place: dict[str, Slice] = {}
    for name in sorted({v for form in forms if is_ranged(form) for v in form.axes if v in ends}):
        end = ends[name]
        differs = any(emitter.place[v].extent is not None for v in variables(end.expression))
        if tiled or not differs:
            tile, number = emitter.tile(end.expression, "end"), len(place)
            place[f"{LEAST}{name}"] = _bound(emitter, f"end{number}", end, _folded(emitter, tile, "min"))
            largest = _bound(emitter, f"end{number + 1}", end, _folded(emitter, tile, "max")) if differs else None
            place[f"{MOST}{name}"] = largest or place[f"{LEAST}{name}"]
    return place


def _bound(emitter: Emitter, variable: str, end: RangeEnd, tile: Tile) -> Slice:
    """The value of a variable that is bound to the tile."""
    emitter.body.append(Let(variable, end.most + 1, tile.name))
    return Slice(axis_index(variable))


def _folded(emitter: Emitter, tile: Tile, operator: Literal["min", "max"]) -> Tile:
    """The one number that an operator folds a tile to."""
    for axis in reversed(tile.axes):
        kept = {x: n for x, n in zip(tile.axes, tile.shape, strict=True) if x != axis}
        dst = Tile(emitter.names.fresh(f"{operator}_{tile.name}"), tuple(kept), tuple(kept.values()), tile.dtype)
        emitter.body.append(Reduce(dst, tile.name, axis, operator))
        tile = dst
    return tile


def useful_within(forms: Collection[Affine], place: Mapping[str, Slice], variable: str) -> tuple[Bound, ...]:
    """Bounds of the iterations of a loop in which no form is negative at all positions of the place.

    Forms with an end of a range that the place lacks have no bound.
    """
    found = (f for f in sorted(forms, key=str) if all(v in place or f"{LEAST}{v}" in place for v in f.axes))
    largest = (largest_at(form, place) for form in found)
    return tuple(Bound(-form, 1) for form in largest if variable in dict(form.terms))
