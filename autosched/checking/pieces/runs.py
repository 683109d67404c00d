"""Reductions over segments, several segments at a time, each over no more positions than the longest of them has.

    sum over t of where(begin[g] <= t < end[g], x[t, d], 0)

    →   for g from 64 below 80, over j below 211:
        sum over j of where(begin[g] <= first[g] + j < end[g], x[first[g] + j, d], 0)

A segment that is alone reads x[9051 + j, d] instead. Of 4096 segments of 2^20 rows the product of both would be 2^32
elements for each column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from autosched.checking.named_tensors import Named
from autosched.checking.pieces.ranges import Bound, bounds_of, condition_of, moved, with_reduced
from search_spaces import Axis, Stage
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Position,
    Segment,
    call,
)
from search_spaces.workloads.expressions.walking import distinct, rewritten, variables

# No tensor of a workload has this name.
FIRSTS = "(first positions of segments)"
# Largest number of elements of a factor at once, unless one segment has more. A core's L2 holds several of them in
# float64; a GPU is busy with them for longer than a launch takes.
_AT_ONCE = {"cpu": 2**17, "cuda": 2**24}


@dataclass(frozen=True)
class Run:
    """The stage at some of its segments, and the first position of each of these, as the tensor FIRSTS."""

    stage: Stage
    firsts: torch.Tensor


@dataclass(frozen=True)
class Cut:
    """The axis of the segments of a reduction, the reduced axis whose positions they have, and their bounds."""

    segments: Axis
    positions: Axis
    bounds: tuple[Bound, ...]


def cut_of(stage: Stage) -> Cut | None:
    """The cut of a reduction that is computed segment by segment; None of others."""
    condition = condition_of(stage)
    if condition is None or stage.reduction is None or len(stage.cut) != 1:
        return None
    segments = next((x for x in stage.axes if x.name in stage.cut), None)
    for axis in stage.reduction.axes:
        bounds = tuple(bounds_of(condition, axis.name))
        own = all(variables(b.number) <= stage.cut for b in bounds)
        if segments and bounds and own and not _is_filled(stage, axis):
            return Cut(segments, axis, bounds)
    return None


def _is_filled(stage: Stage, axis: Axis) -> bool:
    """True if the stage reads outside of a tensor along the axis."""
    reads = (e for e in distinct(stage.expression) if isinstance(e, Access) and e.fill is not None)
    return any(axis.name in i.axes for e in reads for i in e.index)


def runs_of(stage: Stage, values: Callable[[Expression], Named | None]) -> tuple[int, list[Run]] | None:
    """Place among the stage's axes of that of its segments, and the runs along it; None where it is no such reduction.

    `values`: of an expression of the stage; None where they are in doubt.
    """
    cut = cut_of(stage)
    if cut is None:
        return None
    numbers = [values(b.number) for b in cut.bounds]
    known = [n.aligned((cut.segments.name,)) for n in numbers if n is not None]
    if len(known) < len(numbers):
        return None
    firsts, lengths = _ranges(cut, known)
    width = _width(stage, cut)
    most = max(1, _AT_ONCE[firsts.device.type] // width)
    found = []
    for first, count, longest in _grouped(lengths.tolist(), most):
        begins = firsts[first : first + count].clamp(max=cut.positions.extent - longest)
        found.append(Run(_run(stage, cut, (first, count), longest, begins), begins))
    return stage.axes.index(cut.segments), found


def _ranges(cut: Cut, numbers: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """First position and length of each segment: all positions at which its condition holds are there."""
    extent, device = cut.positions.extent, numbers[0].device
    firsts = torch.zeros(cut.segments.extent, dtype=torch.int64, device=device)
    ends = torch.full_like(firsts, extent)
    for bound, number in zip(cut.bounds, numbers, strict=True):
        # Far from the largest integer, whose successor is none.
        near = number.clamp(-1, extent).to(torch.int64)
        if bound.ends:
            ends = torch.minimum(ends, near + bound.may_equal)
        else:
            firsts = torch.maximum(firsts, near + (not bound.may_equal))
    return firsts, (ends - firsts).clamp(min=0)


def _width(stage: Stage, cut: Cut) -> int:
    """The largest number of elements that a factor has at a position."""
    factors = stage.factors or (stage.expression,)
    own = {cut.segments.name, cut.positions.name}
    return max(math.prod(x.extent for x in stage.loops if x.name in variables(f) - own) for f in factors)


def _grouped(lengths: Sequence[int], most: int) -> Iterator[tuple[int, int, int]]:
    """First, number and longest length, at least 1, of groups of segments with up to `most` positions."""
    first, longest = 0, 1
    for number, length in enumerate(lengths):
        if number > first and (number + 1 - first) * max(longest, length) > most:
            yield first, number - first, longest
            first, longest = number, 1
        longest = max(longest, length)
    yield first, len(lengths) - first, longest


def _run(stage: Stage, cut: Cut, segments: tuple[int, int], longest: int, begins: torch.Tensor) -> Stage:
    """The stage at segments from a first one on, so many, over as many positions as the longest of them has."""
    first, count = segments
    axes = tuple(Axis(x.name, count) if x == cut.segments else x for x in stage.axes)
    part = moved(replace(stage, axes=axes), cut.segments.name, first, set())
    part = with_reduced(part, cut.positions, Axis(cut.positions.name, longest))
    if longest == cut.positions.extent:
        return part
    if count == 1:
        return moved(part, cut.positions.name, int(begins), set())
    return _from_firsts(part, cut.segments.name, cut.positions.name)


def _from_firsts(stage: Stage, segments: str, positions: str) -> Stage:
    """The stage whose positions are counted from the first one of each segment on."""
    first = call("to_integer", Access(FIRSTS, (axis_index(segments),)))

    def counted(form: Affine) -> Expression:
        step = form.step(positions)
        moved_by = first if step == 1 else call("mul", first, Integer(step))
        return call("add", call("to_integer", Position(form)), moved_by)

    def at(index: Affine | Expression) -> Affine | Expression:
        if not isinstance(index, Affine):
            return rewritten(index, change)
        return counted(index) if positions in index.axes else index

    def change(e: Expression) -> Expression | None:
        match e:
            case Apply("to_integer", (Position(form),)) if positions in form.axes:
                return counted(form)
            case Position(form) if positions in form.axes:
                return call("to_float", counted(form))
            case Access(tensor, index) if any(positions in i.axes for i in index):
                return Gather(tensor, tuple(map(at, index)))
            case Gather(tensor, looked_up):
                return Gather(tensor, tuple(map(at, looked_up)))
            case Segment(tensor, Affine() as form, size) if positions in form.axes:
                return Segment(tensor, counted(form), size)
            case _:
                return None

    return replace(stage, expression=rewritten(stage.expression, change))
