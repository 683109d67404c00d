"""Loops that skip the iterations ruled out by a mask that is read (block masks).

    kept[b, c0]: the blocks c0 of columns that rows b see; a loop is over blocks c0, and columns c of each

    marks = load kept[b.0, 0 : +64]
    for c0.0 in 64 where marks:                   other blocks are neither loaded nor multiplied
      for c.0 in 2: …

    kept[b, c]: the columns that they see, of which a tile has 32

    marks = max of load kept[b.0, 0 : +2048] over every 32
    for c.0 in 64 where marks: …

These are the conditions of a mask (`loop_parts.Mask`) that are the same for all rows of a tile; the marked loop is
the one over the outermost streamed axis of the condition. A mask has blocks if blocks of rows and of columns are axes
of their own: for instance if scores are viewed as […, blocks, rows, blocks, columns], or a mask is expanded to that.
Fully masked rows get the same values as with all iterations: no fold has changed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.chains.chain_program import ChainProgram
from search_spaces.anchors.loops.loop_parts import Mask
from search_spaces.anchors.loops.range_ends import bound
from search_spaces.decisions.decision import Decision
from search_spaces.decisions.loops.skipping import is_skipping, skipping
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Reduce, Regroup, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, padded
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, mul, to_text
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.workload import Axis

# The mask is read into registers of a program: at most this many positions.
_MOST_HELD = 16384
# A producer warp has few registers: this is 8 numbers for each of its threads.
_MOST_BROUGHT = 256


def conditions_along(chain: Chain) -> dict[str, list[Expression]]:
    """Conditions of positions that any row of a tile uses, by streamed axis; none for axes that are used entirely."""
    found: dict[str, list[Expression]] = {}
    for condition in sorted(mask_of(chain).conditions, key=to_text):
        along = streamed_along(chain, condition)
        held = math.prod(x.extent for x in along)
        if along and along[0].extent > 1 and held <= _MOST_HELD and chain.m.name not in variables(condition):
            found.setdefault(along[0].name, []).append(condition)
    return found


def marked_along(chain: Chain) -> dict[str, list[Expression]]:
    """The same, without the conditions that ranges replace: these need no tile that marks iterations."""
    guards = mask_of(chain).guards
    kept = {axis: [e for e in found if not guards.range_of(e)] for axis, found in conditions_along(chain).items()}
    return {axis: found for axis, found in kept.items() if found}


def skips(chain: Chain, by_ranges: bool) -> tuple[Decision, ...]:
    """The decision to skip, if a mask allows it; `by_ranges`: loops may have ends that are data."""

    def iterations(values: Values) -> int:
        return values.tiling("c")[0] if len(chain.walked) == 1 else chain.walked[0].extent

    return (skipping("c", iterations),) if by_ranges or conditions_along(chain) else ()


def why_not_marked(chain: Chain) -> str | None:
    """Reason that a producer warp cannot skip blocks, by one number that it reads for each; None if it can."""
    found = conditions_along(chain)
    read = found.get(chain.walked[0].name, [])
    if len(chain.walked) != 2 or len(found) != 1 or len(read) != 1 or not isinstance(read[0], Access):
        return "a mask that is computed, or not of blocks"
    if len(streamed_along(chain, read[0])) != 1 or chain.walked[0].extent > _MOST_BROUGHT:
        return f"a mask of more than {_MOST_BROUGHT} blocks of columns, or of what is in them"
    return None


def streamed_along(chain: Chain, condition: Expression) -> list[Axis]:
    """The streamed axes along which a condition differs."""
    read = variables(condition)
    return [x for x in chain.walked if x.name in read]


@dataclass
class Marks:
    """Block masks: tiles that mark the iterations of loops, by axis of the loop, and their statements; ranges of them.

    `known`: conditions that hold everywhere in the tiles of marked iterations. `ending`: the axis whose loop ends with
    the `mask` by position, so that loops within a marked one have all their iterations; `place`: slices of an iteration
    of that axis.
    """

    mask: Mask
    ending: str
    place: Mapping[str, Slice]
    tiles: dict[str, Tile] = field(default_factory=dict)
    body: list[Statement] = field(default_factory=list)
    known: set[Expression] = field(default_factory=set)

    @staticmethod
    def of(program: ChainProgram, before: Emitter) -> Marks:
        """The marks of a program, before its loops; empty if its schedule skips nothing.

        `before`: the emitter of what is computed of the rows before them.
        """
        mask, walked, place = program.mask, program.chain.walked, program.tile.place
        if not is_skipping(program.tile.values):
            return Marks(mask, program.chain.c.name, place)
        along, rows = marked_along(program.chain), before.within()
        last = max((n for n, x in enumerate(walked) if x.name in along), default=len(walked) - 1)
        whole = {x.name: Slice(Affine(), _reach(program, x), x.name) for x in walked[last + 1 :]}
        ends = bound(mask.ranged, mask.guards.ends, rows)
        forms = replace(mask, forms=mask.online | mask.ranged)
        found = Marks(forms, walked[last].name, {**place, **whole, **ends}, body=rows.body)
        for axis, conditions in along.items():
            found.tiles[axis] = _marked(program, axis, functools.reduce(mul, conditions), found.body)
            if place[axis].extent is None:
                found.known |= {x for x in conditions if len(streamed_along(program.chain, x)) == 1}
        return found

    def name(self, axis: str) -> str:
        """Name of the tile that marks iterations of the loop over an axis; "" if none does."""
        return self.tiles[axis].name if axis in self.tiles else ""


def _reach(program: ChainProgram, axis: Axis) -> int:
    """Number of positions of all iterations of the loop over an axis."""
    return program.tile.iterations[axis.name] * (program.tile.place[axis.name].extent or 1)


def _marked(program: ChainProgram, axis: str, condition: Expression, body: list[Statement]) -> Tile:
    """A tile with an element for every iteration, or more."""
    tile, place = program.tile, program.tile.place[axis]
    count = padded(tile.iterations[axis])
    along = {axis: Slice(_before(place.start, f"{axis}.0"), count * (place.extent or 1), axis)}
    inner = [x for x in streamed_along(program.chain, condition) if x.name != axis]
    along |= {x.name: Slice(Affine(), padded(x.extent), x.name) for x in inner}
    emitter = replace(program.emitter(), place={**tile.place, **along})
    points = emitter.tile(condition, f"{axis}_marks")
    body += emitter.body
    for x in inner:
        points = _any(program, points, x.name, body)
    if place.extent is None:
        return points
    apart = Tile(program.names.fresh(points.name), (f"{axis}_tiles", axis), (count, place.extent), points.dtype)
    body.append(Regroup(apart, points.name, axis))
    return _any(program, apart, axis, body)


def _any(program: ChainProgram, points: Tile, axis: str, body: list[Statement]) -> Tile:
    """A tile that is nonzero where any point along an axis is marked."""
    kept = {x: n for x, n in zip(points.axes, points.shape, strict=True) if x != axis}
    marks = Tile(program.names.fresh("marks"), tuple(kept), tuple(kept.values()))
    body.append(Reduce(marks, points.name, axis, "max"))
    return marks


def _before(start: Affine, variable: str) -> Affine:
    """The start in a loop's first iteration."""
    others: Mapping[str, Affine] = {v: axis_index(v) for v, _ in start.terms}
    return start.substituted({**others, variable: Affine()})
