"""Split of a workload along an axis of all its outputs, for intermediate values that would not fit in memory.

    s[b, m, c] for b in 32      →      s[b, m, c] for b in 2, of q[b + 6, m, d]: the piece from 6 on
    x[m, k] * w[segment(ends, m), k, n]      →      x[m + 96, k] * w[3, k, n]: rows 96 to ends[3], all of segment 3

Scores of 32 heads of 8192 x 8192 are 2^31 numbers, in float64 with their errors 50 gigabytes and more; a matrix for
each of 8192 rows is more still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from autosched.checking.pieces.masked import at_positions_left
from autosched.checking.pieces.ranges import (
    Evaluate,
    condition_of,
    is_bounded,
    moved,
    range_of,
    with_bare_factors,
    with_reduced,
    without_condition,
)
from autosched.checking.pieces.read_parts import read_part
from autosched.checking.pieces.runs import cut_of
from autosched.checking.pieces.segments import of_one_segment, runs_of_segments
from search_spaces import Axis, Stage, Workload
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Apply, Expression, Gather
from search_spaces.workloads.expressions.walking import accesses, distinct, variables

# Largest number of elements of a piece's stage, or of windows in it, where it can be split: half a gigabyte in float64.
_LARGEST = 2**26
# The same of a piece of what a condition leaves out elsewhere: smaller ones leave out more.
_LARGEST_WITHIN = 2**22


@dataclass(frozen=True)
class Pieces:
    """Workloads, each for a range of an axis, with the parts of the inputs that they read.

    `dimensions`: of that axis in each output.
    """

    parts: tuple[tuple[Workload, tuple[torch.Tensor, ...]], ...]
    dimensions: tuple[int, ...]


def pieces_of(workload: Workload, inputs: Sequence[torch.Tensor], evaluate: Evaluate) -> Pieces | None:
    """The pieces, or None where the workload is small enough, or cannot be split."""
    largest = max(_computed(workload), key=lambda each: each.points)
    if largest.points <= _LARGEST:
        return None
    allowed = [*_axes(workload)]
    # A piece of a condition leaves out more of all other axes.
    cut_first = [x for x in allowed if x in largest.condition] or [x for x in allowed if x in largest.axes]
    axis = max(cut_first, key=lambda x: x.extent, default=Axis("", 1))
    size = max(1, int(axis.extent / _count(workload)))
    firsts = range(0, axis.extent, size)
    for cut_axis in allowed:
        runs = runs_of_segments(workload, cut_axis, inputs)
        # Many short segments with small entries are fewer pieces of several each.
        if runs and (len(runs) <= len(firsts) or axis.extent == 1):
            cut = (of_one_segment(_part(workload, cut_axis, r.first, r.count), cut_axis, r) for r in runs)
            return _pieces(workload, cut_axis, cut, inputs)
    if axis.extent == 1:
        return None
    parts = (_part(workload, axis, first, min(size, axis.extent - first)) for first in firsts)
    return _pieces(workload, axis, (_within_ranges(part, inputs, evaluate) for part in parts), inputs)


def _pieces(workload: Workload, axis: Axis, cut: Iterable[Workload], inputs: Sequence[torch.Tensor]) -> Pieces:
    stages = {s.name: s for s in workload.stages}
    dimensions = tuple([x.name for x in stages[n].axes].index(axis.name) for n in workload.output_names)
    return Pieces(tuple(read_part(part, inputs) for part in cut), dimensions)


def joined(outputs: Sequence[Sequence[torch.Tensor]], pieces: Pieces) -> tuple[torch.Tensor, ...]:
    """The outputs of the whole, concatenated from those of every piece."""
    return tuple(torch.cat(made, at) for made, at in zip(zip(*outputs, strict=True), pieces.dimensions, strict=True))


@dataclass(frozen=True)
class _Elements:
    """The elements that are computed at once; `condition`: those of a condition that leaves most of them out, which
    is computed for each of them unless it is `bounded`."""

    axes: tuple[Axis, ...]
    condition: tuple[Axis, ...] = ()
    bounded: bool = False

    @property
    def points(self) -> int:
        return math.prod(x.extent for x in self.axes)

    @property
    def pieces(self) -> float:
        """Number of pieces of the largest size: with a condition, each has that part of another axis as well."""
        if not self.condition:
            return self.points / _LARGEST
        asked = 0 if self.bounded else _Elements(self.condition).points
        return max(math.sqrt(self.points / _LARGEST_WITHIN), asked / _LARGEST)


def _computed(workload: Workload, bare: bool = False) -> Iterator[_Elements]:
    """The elements of all stages, and of what they compute or copy: factors, windows, look-ups.

    `bare`: of several factors the first one alone has their condition.
    """
    for stage in workload.stages:
        yield _Elements(stage.axes)
        condition, cut = condition_of(stage), cut_of(stage)
        asked = () if condition is None else _axes_of(stage, condition)
        bounded = condition is not None and is_bounded(condition, stage.reduction.axes if stage.reduction else ())
        folded = stage.factors or ((stage.expression,) if stage.reduction else ())
        for place, factor in enumerate(folded):
            shared = bare and condition is not None and place > 0
            computed = without_condition(factor) if shared else factor
            if isinstance(computed, Apply) and cut is not None:
                # At the most, of one segment.
                yield _Elements(tuple(x for x in _axes_of(stage, computed) if x != cut.segments))
            elif isinstance(computed, Apply):
                yield _Elements(_axes_of(stage, computed), () if shared else asked, bounded)
        windows = (a for a in accesses(stage.expression) if any(len(i.terms) > 1 for i in a.index))
        looked_up = (e for e in distinct(stage.expression) if isinstance(e, Gather))
        copied: list[Expression] = [*windows, *looked_up]
        yield from (_Elements(_axes_of(stage, e)) for e in copied)


def _count(workload: Workload) -> float:
    """The number of pieces: with bare factors, unless the workload is such a piece, whose factors are not finite."""
    counts = (max(each.pieces for each in _computed(workload, bare)) for bare in (True, False))
    return next(count for count in counts if count > 1)


def _axes_of(stage: Stage, e: Expression) -> tuple[Axis, ...]:
    return tuple(x for x in stage.loops if x.name in variables(e))


def _axes(workload: Workload) -> Iterator[Axis]:
    """The axes along which the workload can be split: of all outputs, read at the same position by all stages."""
    stages = {s.name: s for s in workload.stages}
    first, *others = (stages[n] for n in workload.output_names)
    reduced = {x.name for s in workload.stages if s.reduction for x in s.reduction.axes}
    reduced |= {s.scan.axis for s in workload.stages if s.scan}
    for axis in first.axes:
        shared = all(axis in s.axes for s in others) and axis.name not in reduced
        if shared and all(_follows(s, axis, stages) for s in workload.stages):
            yield axis


def _follows(stage: Stage, axis: Axis, stages: Mapping[str, Stage]) -> bool:
    """True if the stage, at a position of the axis, reads other stages at that position only."""
    if any(x.name == axis.name and x != axis for x in stage.loops):
        return False
    for access in accesses(stage.expression):
        read = stages.get(access.tensor)
        for own, index in zip(read.axes if read else (), access.index, strict=False):
            moves = any(v == axis.name for v, _ in index.terms)
            if (own == axis or moves) and not (own == axis and index == axis_index(axis.name)):
                return False
    return True


def _part(workload: Workload, axis: Axis, first: int, count: int) -> Workload:
    """The workload at so many positions of the axis."""
    names, positions = {s.name for s in workload.stages}, Axis(axis.name, count)
    stages = tuple(_piece(s, axis, positions, first, names) for s in workload.stages)
    return replace(workload, stages=stages, output_strides=())


def _within_ranges(part: Workload, inputs: Sequence[torch.Tensor], evaluate: Evaluate) -> Workload:
    """The same with only those positions of reduced axes at which conditions hold."""
    for axis in dict.fromkeys(x for s in part.stages if s.reduction for x in s.reduction.axes):
        named = {s.name: s for s in part.stages}
        if all(
            _follows(s, axis, named) and (axis not in s.axes or s.name not in part.output_names) for s in part.stages
        ):
            part = at_positions_left(part, axis, inputs, evaluate)
    stages = []
    for stage in part.stages:
        if cut_of(stage) is not None:
            # Each of its segments has a range of its own.
            stages.append(stage)
            continue
        for axis in stage.reduction.axes if stage.reduction else ():
            found = range_of(stage, axis, part, inputs, evaluate)
            if found is not None and found != (0, axis.extent):
                first, count = found
                stage = moved(with_reduced(stage, axis, Axis(axis.name, count)), axis.name, first, set())
        stages.append(with_bare_factors(stage, part, inputs, evaluate))
    return replace(part, stages=tuple(stages))


def _piece(stage: Stage, axis: Axis, positions: Axis, first: int, stages: set[str]) -> Stage:
    """The stage restricted to some positions of the axis, if it has that."""
    axes = tuple(positions if x == axis else x for x in stage.axes)
    return stage if axes == stage.axes else moved(replace(stage, axes=axes), axis.name, first, stages)
