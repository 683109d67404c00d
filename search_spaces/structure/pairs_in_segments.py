"""The least part of a workload that is to be computed, where pairs of positions count in one segment only.

where(segment(ends, t) == segment(ends, u), s[t, u], …)     of T * T pairs at least T * T / segments: of equal lengths
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from search_spaces.structure.reads.ranges import segment_of
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Apply, Expression, Segment
from search_spaces.workloads.expressions.walking import accesses, distinct, variables
from search_spaces.workloads.workload import Axis, Stage, Workload


def needed_parts(workload: Workload) -> dict[str, float]:
    """The part of the points of every stage, by its name, that is enough if segments have equal lengths.

    A stage that others read within such conditions alone is needed there alone.
    """
    return {s.name: 1 / max(_segments(s.expression, s.loops), _segments_read(s, workload)) for s in workload.stages}


def _segments_read(stage: Stage, workload: Workload) -> int:
    """The segments of the pairs at which others read a stage; 1 where all of it is needed."""
    if stage.name in workload.output_names:
        return 1
    reads = ((r, a) for r in workload.stages for a in accesses(r.expression) if a.tensor == stage.name)
    found = [_segments(r.expression, [x for x in r.loops if x.name in variables(a)]) for r, a in reads]
    return min(found, default=1)


def _segments(e: Expression, axes: Iterable[Axis]) -> int:
    """The segments, of which both positions of a pair of these axes are in one; 1 without such a condition."""
    extents: dict[Affine | Expression, int] = {axis_index(x.name): x.extent for x in axes}
    found = {
        one.tensor: one.size
        for one, other in _in_one(e)
        if one != other and extents.get(one.position, 0) == extents.get(other.position)
    }
    # Behind the last end is one more.
    return math.prod(size + 1 for size in found.values())


def _in_one(e: Expression) -> Iterator[tuple[Segment, Segment]]:
    """The segments of two positions that are to be the same."""
    for part in distinct(e):
        match part:
            case Apply("eq", (first, second)):
                one, other = segment_of(first), segment_of(second)
                if one and other and one.tensor == other.tensor:
                    yield one, other
