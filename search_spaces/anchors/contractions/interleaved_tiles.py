"""Computed operands of the two values that share an element, alternating along k: the other is as in memory.

Before:  for k.0:  p = bytes[n, k.0*64 : +64];  acc += dot(p & 15, x[2*k]);  acc += dot((p >> 4) & 15, x[2*k + 1])
After (k_axes=interleaved):
         for k.0:  p = bytes[n, k.0*64 : +64];  b = p & 15, (p >> 4) & 15, …;  acc += dot(b, x[k.0*128 : +128])

A producer loads both by descriptor, and groups of warps compute the rows of their dots in registers. A thread has pairs
of neighbours along k there: both values of an element, which no other thread reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from search_spaces.anchors.contractions.class_tiles import INTERLEAVED, ClassTiles, together_axis
from search_spaces.anchors.contractions.joined_tiles import places_of
from search_spaces.anchors.contractions.operand_tiles import LOADS, Iteration, Operands
from search_spaces.anchors.contractions.unrolled_tiles import may_unroll
from search_spaces.anchors.contractions.windows import moves_one_dimension
from search_spaces.programs.statements import Interleave, Statement
from search_spaces.programs.tiles import Flat, Slice, Tile
from search_spaces.schedules.knobs import Knob, Values
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.operand_types import is_computed
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Tensor

# Values of an element: neighbours along k that a thread has (PTX ISA, wgmma.mma_async.m64nNk16, operand A).
_VALUES = 2


def computed_side(form: Contraction) -> int | None:
    """The side, rows or columns, whose operands are all computed while the other's are as stored; or None."""
    computed = [[is_computed(e) for e in side] for side in form.operands]
    sides = [n for n, each in enumerate(computed) if all(each)]
    return sides[0] if len(sides) == 1 and not any(computed[1 - sides[0]]) else None


def may_interleave(form: Contraction) -> bool:
    """True if every element of a computed side has two values along k, and the other side has k as one dimension."""
    axis, side = together_axis(form.reduced, form.k), computed_side(form)
    if axis is None or side is None or axis.extent != _VALUES or not may_unroll(form):
        return False
    both = {form.k.name, axis.name}
    plain = len(form.operands[1 - side]) == 1 and all(both <= variables(e) for e in form.operands[1 - side])
    return plain and moves_one_dimension(form, (form.k, axis), LOADS[1 - side])


def with_neighbours_joined(form: Contraction) -> Tensor:
    """The tensor that is read as stored, with k and the axis of an element's values as one dimension."""
    side = computed_side(form)
    assert side is not None
    (operand,) = form.operands[1 - side]
    assert isinstance(operand, Access)
    axis, tensor = together_axis(form.reduced, form.k), form.map_of(operand).tensor
    assert axis is not None
    at = [i.axis for i in operand.index].index(axis.name)
    sizes = [
        size * axis.extent if i.axis == form.k.name else size
        for i, size in zip(operand.index, tensor.shape, strict=True)
    ]
    strides = [
        form.map_of(operand).between(axis.name) if i.axis == form.k.name else s
        for i, s in zip(operand.index, tensor.effective_strides, strict=True)
    ]
    return replace(tensor, shape=(*sizes[:at], *sizes[at + 1 :]), strides=(*strides[:at], *strides[at + 1 :]))


def interleaved(
    form: Contraction,
    tiles: ClassTiles,
    operands: Operands,
    place: Mapping[str, Slice],
    at: Callable[[Operands, Mapping[str, Slice]], Iteration],
    names: Names,
) -> Iteration:
    """The operands of an iteration; `at`: those of one place."""
    side = computed_side(form)
    assert side is not None
    parts = [at(operands.of_side(side), x) for x in places_of(tiles, place)]
    whole = at(operands.of_side(1 - side), _whole(tiles, place))
    body = [s for part in (*parts, whole) for s in part.body]
    made = {
        e: _alternating([part.tiles[side][e] for part in parts], form.k.name, names, body) for e in operands.sides[side]
    }
    rows, columns = (made, whole.tiles[1]) if side == 0 else (whole.tiles[0], made)
    before = tuple(s for part in (*parts, whole) for s in part.before)
    return replace(whole, tiles=(rows, columns), before=before, body=tuple(body))


def _whole(tiles: ClassTiles, place: Mapping[str, Slice]) -> Mapping[str, Slice]:
    """The place with all values of the elements of a tile as one range along k."""
    axis, name = tiles.together, tiles.tiled.name
    assert axis is not None
    number, length = place[name].start * axis.extent, tiles.sides[name] * axis.extent
    digits = {name: Flat(number, axis.extent), axis.name: Flat(number, 1, axis.extent)}
    return {**place, **{x: Slice(Affine(), length, name, flat=flat) for x, flat in digits.items()}}


def _alternating(parts: list[Tile], along: str, names: Names, body: list[Statement]) -> Tile:
    first = parts[0]
    shape = tuple(size * len(parts) if x == along else size for x, size in zip(first.axes, first.shape, strict=True))
    dst = Tile(names.fresh("operand"), first.axes, shape, first.dtype)
    body.append(Interleave(dst, tuple(t.name for t in parts), along))
    return dst


def interleaved_rules(knobs: Mapping[str, Knob]) -> Iterator[Rule]:
    """Alternating values are for rows that groups of warps compute, and these need them."""
    if "k_axes" in knobs and INTERLEAVED in knobs["k_axes"].values:
        yield Rule(("k_axes", "specialize"), _why_not_interleaved)


def _why_not_interleaved(values: Values) -> str | None:
    if (values["k_axes"] == INTERLEAVED) == (values["specialize"] != "none"):
        return None
    return "k_axes=interleaved is for operands that a producer loads, and these need it; expected both or neither"
