"""Leading positions: how many of the first positions of an axis a condition holds at, which holds at no later one.

Before:  for g: number += holds(g)
After:   first number = sum of holds(g.0*64) over 64 pivots;  let g.first = the last of these
         number = g.first + sum of holds(g.first + g) over the 64 positions from it on

A step looks at a tile of pivots, so that a program waits for two reads from memory where halving 4096 positions takes
twelve, one after the other (k-ary search: Schlegel, Gemulla and Lehner, 2009).
"""

from __future__ import annotations

from collections.abc import Callable

from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Let, Position, Reduce
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.workload import Axis

# Pivots of a step, at most: two for each thread of four warps.
_MOST = 256


def count_leading(e: Emitter, axis: Axis, holds: Callable[[Emitter, Tile], Tile]) -> Tile:
    """The number as an integer without axes; the emitter gets the statements.

    `holds`: the truth of the condition at positions, in a tile along the axis, where its emitter is.
    """
    bits = max(1, (axis.extent - 1).bit_length())
    steps = -(-bits // (_MOST.bit_length() - 1))
    width = 1 << -(-bits // steps)
    first: Tile | int = 0
    start = Affine()
    for step in range(steps):
        stride = width ** (steps - 1 - step)
        piece = Slice(start, width, axis.name, step=stride)
        inner = Emitter({axis.name: piece}, e.inputs, e.names)
        at = Tile.along([piece], e.names.fresh("at"), "int64")
        inner.body.append(Position(at, piece))
        inside = inner.map("lt", at, axis.extent, compared="int64")
        counts = inner.map("mul", holds(inner, at), inside)
        ones = inner.map("where", counts, 1, 0, dtype="int64")
        number = Tile(e.names.fresh("number"), (), (), "int64")
        e.body += [*inner.body, Reduce(number, ones.name, axis.name, "sum")]
        if stride == 1:
            break
        last = e.map("maximum", e.map("sub", number, 1, dtype="int64"), 0, dtype="int64")
        first = e.map("add", first, e.map("mul", last, stride, dtype="int64"), name="first", dtype="int64")
        variable = f"{axis.name}.first{step}"
        e.body.append(Let(variable, axis.extent, first.name))
        start = axis_index(variable)
    return e.map("add", first, number, name="count", dtype="int64")
