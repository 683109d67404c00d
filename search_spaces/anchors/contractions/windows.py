"""Operands with windows, as im2col descriptors read them, and ranges that are one dimension in memory.

x[n, p + r - 1, q + s - 1, c]      positions n, p, q of m as a range, channels c of k as boxes: im2col
out[n, p, q, f]                    positions n, p, q are one dimension: an ordinary descriptor
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from search_spaces.anchors.contractions.class_tiles import BOX, CLASSES, RANGE, ClassTiles, place_of_windows
from search_spaces.anchors.contractions.operand_tiles import moved_by
from search_spaces.devices.features import Descriptors
from search_spaces.programs.im2col import why_no_im2col
from search_spaces.programs.lowering import slices_at, start_of
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.expression import Access, why_not_sliced
from search_spaces.workloads.workload import Axis

# Positions of the tiles that stand for all others: the fewest that dots have.
_SOME = 16


def window_class(form: Contraction, access: Access, ranged: Collection[str], by: Descriptors | None) -> str:
    """The class whose positions im2col descriptors read of an operand; "" if none does.

    `ranged`: the classes whose tiles may be ranges.
    """
    channel = access.index[-1].along({x.name for _, x in form.classes.values()})
    for name, (axes, tiled) in form.classes.items():
        moving = axes if name in ranged else (tiled,)
        slides = any(i.step(x.name) and not i.is_axis for i in access.index for x in moving)
        if tiled.name != channel and slides and why_no_window(form, access, _tiles(form, name, ranged), by) is None:
            return name
    return ""


def _tiles(form: Contraction, positions: str, ranged: Collection[str]) -> dict[str, ClassTiles]:
    kinds = {x: RANGE if x == positions and x in ranged else BOX for x in CLASSES}
    return {x: ClassTiles(*form.classes[x], _SOME, kind) for x, kind in kinds.items()}


def why_no_window(
    form: Contraction, access: Access, classes: Mapping[str, ClassTiles], by: Descriptors | None
) -> str | None:
    """Reason that no im2col descriptor reads an operand in such tiles, or None."""
    if boxed := next((t for t in classes.values() if t.boxed), None):
        return f"{boxed.tiled.name} in boxes of {boxed.kind}; im2col descriptors count positions one after the other"
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in (*form.axes, *form.reduced)}
    extents = {f"{x.name}.0": x.extent for x in (*form.axes, *form.reduced)}
    for tiles in classes.values():
        start = f"{tiles.tiled.name}.0"
        place.update(tiles.place(start_of((start, tiles.size))))
        extents[start] = tiles.steps
    if reason := why_not_sliced(access, [x for x, piece in place.items() if piece.extent is not None]):
        return reason
    tensor = form.map_of(access).tensor
    slices = slices_at(access, place_of_windows(form, place, access))
    load = Load(Tile.along(slices, tensor.name), tensor.name, slices, access.fill or 0, guarded=access.fill is not None)
    return why_no_im2col(Buffer(tensor.name, tensor.shape, tensor.dtype, "input", tensor.strides), load, extents, by)


def moves_one_dimension(form: Contraction, axes: Sequence[Axis], knob: str) -> bool:
    """True if ranges of these axes are one dimension of all tensors whose transfer the knob decides."""
    return all(_is_one_dimension(form, access, strides, axes) for access, strides in moved_by(form, knob))


def _is_one_dimension(form: Contraction, access: Access, strides: Sequence[int], axes: Sequence[Axis]) -> bool:
    """True if neighbouring positions of the axes are equally far apart in a tensor, and all are its own."""
    shape = next(t.shape for t in (*form.workload.inputs, *form.workload.outputs) if t.name == access.tensor)
    plain = {i.axis: (size, s) for i, size, s in zip(access.index, shape, strides, strict=True)}
    return all(plain.get(x.name, (0, 0))[0] == x.extent for x in axes) and all(
        plain[outer.name][1] == plain[inner.name][1] * inner.extent for outer, inner in itertools.pairwise(axes)
    )
