"""Operands with windows, as im2col descriptors read them, and ranges that are one dimension in memory.

x[n, p + r - 1, q + s - 1, c]      positions n, p, q of m as a range, channels c of k as boxes: im2col
out[n, p, q, f]                    positions n, p, q are one dimension: an ordinary descriptor
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from search_spaces.anchors.contractions.class_tiles import BOX, CLASSES, RANGE, ClassTiles, counted
from search_spaces.anchors.contractions.operand_tiles import LOADS, whole_epilogue_tiles, whole_tiles
from search_spaces.devices.features import Descriptors
from search_spaces.programs.im2col import why_no_im2col
from search_spaces.programs.lowering import slices_at, start_of
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.operand_maps import OperandMap
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, why_not_sliced
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.workload import Axis

# Positions of the tiles that stand for all others: the fewest that dots have.
_SOME = 16


def window_class(form: Contraction, access: Access, ranged: Collection[str], by: Descriptors | None) -> str:
    """The class whose positions im2col descriptors read of an operand; "" if none does.

    `ranged`: the classes whose tiles may be ranges.
    """
    channel, own = access.index[-1].along({x.name for _, x in form.classes.values()}), variables(access)
    others = (name for name, (axes, tiled) in form.classes.items() if tiled.name != channel)
    read = (name for name in others if any(x.name in own for x in form.classes[name][0]))
    return next((x for x in read if why_no_window(form, access, _tiles(form, x, ranged), by) is None), "")


def _tiles(form: Contraction, positions: str, ranged: Collection[str]) -> dict[str, ClassTiles]:
    kinds = {x: RANGE if x == positions and x in ranged else BOX for x in CLASSES}
    return {x: ClassTiles(*form.classes[x], _SOME, kind) for x, kind in kinds.items()}


def why_no_window(
    form: Contraction, access: Access, classes: Mapping[str, ClassTiles], by: Descriptors | None
) -> str | None:
    """Reason that no im2col descriptor reads an operand in such tiles, or None."""
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in (*form.axes, *form.reduced)}
    extents = {f"{x.name}.0": x.extent for x in (*form.axes, *form.reduced)}
    for tiles in classes.values():
        start = f"{tiles.tiled.name}.0"
        place.update(tiles.place(start_of((start, tiles.size))))
        extents[start] = tiles.steps
    if reason := why_not_sliced(access, [x for x, piece in place.items() if piece.extent is not None]):
        return reason
    tensor = form.map_of(access).tensor
    slices = slices_at(access, counted(form, place, access))
    load = Load(Tile.along(slices, tensor.name), tensor.name, slices, access.fill or 0, guarded=access.fill is not None)
    return why_no_im2col(Buffer(tensor.name, tensor.shape, tensor.dtype, "input", tensor.strides), load, extents, by)


def moves_one_dimension(form: Contraction, name: str, knob: str) -> bool:
    """True if ranges of a class are one dimension of all tensors whose transfer the knob decides."""
    axes, _ = form.classes[name]
    return all(_is_one_dimension(x, axes) for x in _moved(form, knob))


def _moved(form: Contraction, knob: str) -> Iterator[OperandMap]:
    match knob:
        case "store":
            own = tuple(axis_index(x.name) for x in form.axes)
            yield from (OperandMap(t, Access(t.name, own)) for t in form.workload.outputs)
        case "epilogue_load":
            yield from map(form.map_of, whole_epilogue_tiles(form))
        case _:
            side = form.operands[LOADS.index(knob)]
            yield from (form.map_of(a) for e in side for a in whole_tiles(e, form))


def _is_one_dimension(moved: OperandMap, axes: tuple[Axis, ...]) -> bool:
    plain = {i.axis: size for i, size in zip(moved.access.index, moved.tensor.shape, strict=True)}
    return all(plain.get(x.name) == x.extent for x in axes) and all(
        moved.between(outer.name) == moved.between(inner.name) * inner.extent
        for outer, inner in itertools.pairwise(axes)
    )
