"""Windows over channels, which memory merges, as taps and channels again: loops go over taps, and tiles along channels.

    sum over k of x[32*q + k] * w[k, f]      →      sum over s, c of x[q + s, c] * w[s, c, f]      with 32 channels

In one dimension a tile would move along both q and k, and its elements would be gathered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, LookUp, Position
from search_spaces.workloads.expressions.walking import accesses, distinct, rewritten, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload

# Channels that suffice for a tile of their own: the least depth of a dot that most matrix instructions fill.
_MIN_CHANNELS = 16


def with_taps(workload: Workload, least: int = _MIN_CHANNELS) -> Workload:
    """The workload with every reduced axis that is such a window as two axes; unchanged if there is none.

    `least`: channels of a window. With 1 a window of one channel is taps and an axis of one position.
    """
    names = Names({x.name for s in workload.stages for x in s.loops})
    reduced = dict.fromkeys(x for s in workload.stages if s.reduction for x in s.reduction.axes)
    for axis in reduced:
        channels = _channels(workload, axis, least)
        if channels:
            tap = Axis(names.fresh(f"{axis.name}_tap"), axis.extent // channels)
            workload = with_axis_split(workload, tap, Axis(axis.name, channels))
    return workload


def _read(workload: Workload) -> Iterator[Access]:
    return (a for s in workload.stages for a in accesses(s.expression))


def _channels(workload: Workload, axis: Axis, least: int) -> int:
    """Number of channels within the positions of an axis that is a window; 0 for others."""
    if any(x.name == axis.name for s in workload.stages for x in s.axes):
        return 0
    shapes = {t.name: t.shape for t in workload.inputs}
    read = [a for a in _read(workload) if any(i.step(axis.name) for i in a.index)]
    names = {a.tensor for a in read}
    places = {(a.tensor, tuple(bool(i.step(axis.name)) for i in a.index)) for a in _read(workload) if a.tensor in names}
    alike = len(places) == len(names) and all(sum(of) == 1 for _, of in places)
    if not alike or _is_value(workload, axis) or any(a.tensor not in shapes for a in read):
        return 0
    # Channels of a dot are padded with what is read outside, which taps are not.
    if least > 1 and any(a.fill is not None for a in read):
        return 0
    moved = [(i, n) for a in read for i, n in zip(a.index, shapes[a.tensor], strict=True) if i.step(axis.name)]
    others = [c for i, _ in moved for v, c in i.terms if v != axis.name]
    if not others or any(i.step(axis.name) != 1 for i, _ in moved):
        return 0
    found = math.gcd(axis.extent, *others, *(i.offset for i, _ in moved), *(n for _, n in moved))
    return found if least <= found < axis.extent else 0


def _is_value(workload: Workload, axis: Axis) -> bool:
    """True if positions of the axis are values, or indices of a gather."""
    parts = (e for s in workload.stages for e in distinct(s.expression) if isinstance(e, LookUp | Position))
    return any(axis.name in variables(e) for e in parts)


def with_axis_split(workload: Workload, tap: Axis, channel: Axis) -> Workload:
    """The workload with positions of the axis as taps and channels, in all indices too."""
    dimensions = {a.tensor: n for a in _read(workload) for n, i in enumerate(a.index) if i.step(channel.name)}

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor not in dimensions:
            return None
        at = dimensions[e.tensor]
        form = e.index[at] - axis_index(channel.name)
        coarse = Affine.of(
            *((v, c // channel.extent) for v, c in form.terms), (tap.name, 1), offset=form.offset // channel.extent
        )
        return replace(e, index=(*e.index[:at], coarse, axis_index(channel.name), *e.index[at + 1 :]))

    def stage(s: Stage) -> Stage:
        if s.reduction is None:
            return s
        axes = (y for x in s.reduction.axes for y in ((tap, channel) if x.name == channel.name else (x,)))
        return replace(
            s, expression=rewritten(s.expression, change), reduction=Reduction(s.reduction.operator, tuple(axes))
        )

    inputs = tuple(_cut(t, dimensions[t.name], channel.extent) if t.name in dimensions else t for t in workload.inputs)
    return replace(workload, inputs=inputs, stages=tuple(map(stage, workload.stages)))


def _cut(tensor: Tensor, at: int, size: int) -> Tensor:
    """The tensor with a dimension cut in two, the second with this many positions."""
    shape, strides = tensor.shape, tensor.effective_strides
    return replace(
        tensor,
        shape=(*shape[:at], shape[at] // size, size, *shape[at + 1 :]),
        strides=(*strides[:at], strides[at] * size, *strides[at:]),
    )
