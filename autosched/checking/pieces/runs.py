"""Reductions over segments, several segments at a time, each over no more positions than the longest of them has.

    sum over t of where(begin[g] <= t < end[g], x[t, d], 0)

    →   for g from 64 below 80, over j below 211:
        sum over j of where(begin[g] <= first[g] + j < end[g], x[first[g] + j, d], 0)

A segment that is alone reads x[9051 + j, d] instead. Of 4096 segments of 2^20 rows the product of both would be 2^32
elements for each column. Runs are of segments of about one length, wherever these are: offsets of a random order would
make five times as many positions, and as many runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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

# No tensors of a workload have these names.
FIRSTS, NUMBERS = "(first positions of segments)", "(numbers of segments)"
# Largest number of elements of a factor at once, unless one segment has more. A core's L2 holds several of them in
# float64; a GPU is busy with them for longer than a launch takes.
_AT_ONCE = {"cpu": 2**17, "cuda": 2**24}


@dataclass(frozen=True)
class Run:
    """The stage at some of its segments; the first position of each of these, as FIRSTS, and its number, as NUMBERS."""

    stage: Stage
    firsts: torch.Tensor
    numbers: torch.Tensor

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Tensors that the stage reads besides those of the workload, by name."""
        return {FIRSTS: self.firsts, NUMBERS: self.numbers}


@dataclass(frozen=True)
class Runs:
    """The runs of a stage; `place`: among its axes, that of its segments."""

    place: int
    runs: tuple[Run, ...]

    def joined(self, results: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result of the stage from those of its runs."""
        found = torch.cat(list(results), self.place)
        order = torch.cat([r.numbers for r in self.runs])
        return torch.empty_like(found).index_copy_(self.place, order, found)


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


def runs_of(stage: Stage, values: Callable[[Expression], Named | None]) -> Runs | None:
    """The runs of a reduction over segments; None where it is no such reduction.

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
    order = torch.arange(len(lengths), device=lengths.device)
    if not _is_filled(stage, cut.segments):
        order = lengths.argsort(descending=True, stable=True)
    found = []
    for first, count, longest in _grouped(lengths[order].tolist(), most):
        own = order[first : first + count]
        begins = firsts[own].clamp(max=cut.positions.extent - longest)
        found.append(Run(_run(stage, cut, own, longest, begins), begins, own))
    return Runs(stage.axes.index(cut.segments), tuple(found))


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


def _run(stage: Stage, cut: Cut, numbers: torch.Tensor, longest: int, begins: torch.Tensor) -> Stage:
    """The stage at segments of these numbers, over as many positions as the longest of them has."""
    first, last, count = int(numbers[0]), int(numbers[-1]), len(numbers)
    axes = tuple(Axis(x.name, count) if x == cut.segments else x for x in stage.axes)
    part = with_reduced(replace(stage, axes=axes), cut.positions, Axis(cut.positions.name, longest))
    looked_up = {}
    if last - first == count - 1 and bool((numbers.diff() == 1).all()):
        part = moved(part, cut.segments.name, first, set())
    else:
        looked_up[cut.segments.name] = NUMBERS
    if count == 1 and longest < cut.positions.extent:
        part = moved(part, cut.positions.name, int(begins), set())
    elif longest < cut.positions.extent:
        looked_up[cut.positions.name] = FIRSTS
    return _looked_up(part, cut.segments.name, looked_up) if looked_up else part


def _looked_up(stage: Stage, segments: str, by: Mapping[str, str]) -> Stage:
    """The stage whose segments are those of NUMBERS, or whose positions are counted from FIRSTS, or both: `by` axis."""

    def counted(form: Affine) -> Expression:
        # Positions are counted from there on; the number is in place of the segment's own.
        left = Affine(tuple(t for t in form.terms if by.get(t[0]) != NUMBERS), form.offset)
        total = call("to_integer", Position(left)) if left.terms else Integer(left.offset)
        for axis, tensor in by.items():
            if step := form.step(axis):
                read = call("to_integer", Access(tensor, (axis_index(segments),)))
                total = call("add", total, read if step == 1 else call("mul", read, Integer(step)))
        return total

    def moves(form: Affine | Expression) -> bool:
        return isinstance(form, Affine) and not by.keys().isdisjoint(form.axes)

    def at(index: Affine | Expression) -> Affine | Expression:
        if not isinstance(index, Affine):
            return rewritten(index, change)
        return counted(index) if moves(index) else index

    def change(e: Expression) -> Expression | None:
        match e:
            case Apply("to_integer", (Position(form),)) if moves(form):
                return counted(form)
            case Position(form) if moves(form):
                return call("to_float", counted(form))
            case Access(tensor, index) if any(map(moves, index)):
                return Gather(tensor, tuple(map(at, index)))
            case Gather(tensor, looked_up):
                return Gather(tensor, tuple(map(at, looked_up)))
            case Segment(tensor, Affine() as form, size) if moves(form):
                return Segment(tensor, counted(form), size)
            case _:
                return None

    return replace(stage, expression=rewritten(stage.expression, change))
