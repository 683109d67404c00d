"""Ranges of an axis that lie in one segment each, by the data that cuts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from search_spaces import Axis, Workload
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Integer, Segment
from search_spaces.workloads.expressions.walking import gathers, rewritten


@dataclass(frozen=True)
class Run:
    """Positions `first` to below `first + count` of an axis, at which `segment` is `number`."""

    first: int
    count: int
    segment: Segment
    number: int


def runs_of_segments(workload: Workload, axis: Axis, inputs: Sequence[torch.Tensor]) -> list[Run]:
    """The runs of the first segment along the axis by which a table is looked up; empty without one."""
    for stage in workload.stages:
        for gather in gathers(stage.expression):
            for e in gather.looked_up:
                if isinstance(e, Segment) and isinstance(e.position, Affine) and e.position.axes == (axis.name,):
                    return _runs(e, e.position, axis, workload, inputs)
    return []


def _runs(
    segment: Segment, position: Affine, axis: Axis, workload: Workload, inputs: Sequence[torch.Tensor]
) -> list[Run]:
    ends = inputs[[t.name for t in workload.inputs].index(segment.tensor)].to(torch.int64).contiguous()
    at = torch.arange(axis.extent, device=ends.device) * position.step(axis.name) + position.offset
    found, counts = torch.bucketize(at, ends, right=True).unique_consecutive(return_counts=True)
    firsts = counts.cumsum(0) - counts
    found_at = zip(firsts.tolist(), counts.tolist(), found.tolist(), strict=True)
    return [Run(first, count, segment, number) for first, count, number in found_at]


def of_one_segment(part: Workload, axis: Axis, run: Run) -> Workload:
    """A run, as cut out of its workload, with the integer for its segment: what that looks up is read there."""
    assert isinstance(run.segment.position, Affine)
    position = run.segment.position + Affine(offset=run.first * run.segment.position.step(axis.name))

    def known(e: Expression) -> Expression | None:
        match e:
            case Segment(tensor, at) if (tensor, at) == (run.segment.tensor, position):
                return Integer(run.number)
            case Gather(tensor, index):
                looked_up = tuple(i if isinstance(i, Affine) else rewritten(i, known) for i in index)
                sizes = next(t.shape for t in part.inputs if t.name == tensor)
                forms = [_as_form(i, size) for i, size in zip(looked_up, sizes, strict=True)]
                found = tuple(i for i in forms if i is not None)
                return Access(tensor, found) if len(found) == len(forms) else Gather(tensor, looked_up)
            case _:
                return None

    stages = tuple(replace(s, expression=rewritten(s.expression, known)) for s in part.stages)
    return replace(part, stages=stages)


def _as_form(index: Affine | Expression, size: int) -> Affine | None:
    """An index that is known to be one of the dimension."""
    match index:
        case Integer(value):
            return Affine(offset=value) if 0 <= value < size else None
        case Affine():
            return index
        case _:
            return None
