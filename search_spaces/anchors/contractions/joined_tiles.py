"""Tiles of a short reduced axis at all positions of another, joined to the operands of one dot.

Before:  for row, tap in 3 x 3:  acc += dot(x[row, q + tap], w[row, tap])     8 channels, padded to the 16 of a dot
After (k_axes=joined, k=1x32):
         for row in 3:           a = x[row, q], x[row, q + 1], x[row, q + 2], 0;  b = w[row, 0], w[row, 1], w[row, 2], 0
                                 acc += dot(a, b)                             32 of three taps and of zeros

So no depth of a matrix instruction is padding but what completes the taps to a power of two, and addresses and masks
of a row serve all of its taps. Both operands are 0 there: what is not multiplied counts nothing, whatever it is. The
tiles are loads, or views of one halo that has the pixels of all taps (`halos`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from search_spaces.anchors.contractions.batch_tiles import by_warps
from search_spaces.anchors.contractions.class_tiles import JOINED, ClassTiles, together_axis
from search_spaces.anchors.contractions.operand_tiles import LOADS, Iteration
from search_spaces.programs.statements import Fill, Interleave, Statement, View
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Knob, padded
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import SHORT_AXIS, Contraction
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis

# Tiles that are joined at most: more are a loop.
_MOST = 8
# Rows that matrix instructions' operands are loaded in (PTX ISA, ldmatrix): of shorter ones Triton 3.9 exchanges single
# elements through shared memory.
_CHUNK_BYTES = 16


def joined_depths(form: Contraction) -> tuple[int, ...]:
    """Depths of dots of tiles at all positions of an axis, joined along a short k; () if there is no such axis."""
    axis = together_axis(form.reduced, form.k)
    short = axis is not None and 1 < axis.extent <= _MOST and form.k.extent <= SHORT_AXIS
    if axis is None or not short or form.is_scaled_along(axis) or form.is_looked_up_along(axis):
        return ()
    own, chunk = padded(form.k.extent), _CHUNK_BYTES // dtype(form.dtype).bytes
    return tuple(padded(axis.extent) * depth for depth in dict.fromkeys((own, max(own, chunk))))


def places_of(tiles: ClassTiles, place: Mapping[str, Slice]) -> list[Mapping[str, Slice]]:
    """The place of every tile of an iteration; of one, if there are no several."""
    if (axis := tiles.together) is None:
        return [place]
    return [{**place, axis.name: Slice(Affine(offset=at))} for at in range(axis.extent)]


def joined(parts: Sequence[Iteration], tiles: ClassTiles, names: Names) -> Iteration:
    """The operands of an iteration made of those of its parts."""
    if (axis := tiles.joined) is None:
        return parts[0]
    body = [s for part in parts for s in part.body]
    sides = (0, 1)
    made = tuple(
        {
            e: _joined([part.tiles[n][e] for part in parts], tiles.sides[axis.name], tiles.tiled.name, names, body)
            for e in parts[0].tiles[n]
        }
        for n in sides
    )
    before = tuple(s for part in parts for s in part.before)
    return replace(parts[0], tiles=(made[0], made[1]), before=before, body=tuple(body))


def views_at(views: Iteration, axis: Axis | None, names: Names) -> list[Iteration]:
    """The views of halos at every position of an axis whose tiles are joined; as they are, if none are."""
    if axis is None:
        return [views]
    return [_views_at(views, f"{axis.name}.0", at, names) for at in range(axis.extent)]


def _views_at(views: Iteration, variable: str, at: int, names: Names) -> Iteration:
    made, body = dict[str, Tile](), list[Statement]()
    for s in views.body:
        assert isinstance(s, View), f"{s} is joined with views of halos"
        steps = [p.start.step(variable) for p in s.slices]
        starts = [p.start + Affine.of((variable, -c), offset=c * at) for p, c in zip(s.slices, steps, strict=True)]
        slices = tuple(replace(p, start=start) for p, start in zip(s.slices, starts, strict=True))
        made[s.dst.name] = replace(s.dst, name=names.fresh(s.dst.name)) if at else s.dst
        body.append(View(made[s.dst.name], s.src, slices))
    rows, columns = ({e: made[t.name] for e, t in side.items()} for side in views.tiles)
    return Iteration((rows, columns), views.before if at == 0 else (), tuple(body), views.scales)


def _joined(parts: Sequence[Tile], count: int, along: str, names: Names, body: list[Statement]) -> Tile:
    """Tiles one after the other, and zeros up to so many."""
    first, found = parts[0], [*parts]
    if len(found) < count:
        zeros = replace(first, name=names.fresh("beyond"))
        body.append(Fill(zeros, 0))
        found += [zeros] * (count - len(found))
    shape = tuple(e * count if x == along else e for x, e in zip(first.axes, first.shape, strict=True))
    dst = Tile(names.fresh("joined"), first.axes, shape, first.dtype)
    body.append(Interleave(dst, tuple(t.name for t in found), along, first.extent(along)))
    return dst


def joined_rules(knobs: Mapping[str, Knob]) -> Iterator[Rule]:
    """Rules of operands that are joined in registers, which warps multiply."""
    if "k_axes" in knobs and JOINED in knobs["k_axes"].values:
        yield from by_warps("k_axes", LOADS, lambda values: values["k_axes"] == JOINED)
