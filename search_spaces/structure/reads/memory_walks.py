"""Strides of everything in memory along each axis of the loops."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Gather
from search_spaces.workloads.expressions.walking import distinct, variables
from search_spaces.workloads.workload import Axis, Workload

# Elements from one position of an axis to the next.
Walk = dict[Axis, int]


def memory_walks(workload: Workload) -> list[Walk]:
    """The strides of everything that is read from memory, and then of everything that is written to it.

    Along an axis of looked-up positions, that of the whole tensor: neighbours may be anywhere.
    """
    inputs = {t.name: t for t in workload.inputs}
    stages = {s.name: s for s in workload.stages}
    found: list[Walk] = []
    for stage in workload.stages:
        for access in distinct(stage.expression):
            if isinstance(access, Access | Gather) and access.tensor in inputs:
                walk: Walk = {}
                tensor = inputs[access.tensor]
                for index, stride in zip(access.index, tensor.effective_strides, strict=True):
                    steps = index.terms if isinstance(index, Affine) else [(v, tensor.span) for v in variables(index)]
                    for name, step in steps:
                        axis = Axis(name, stage.extents[name])
                        walk[axis] = walk.get(axis, 0) + step * stride
                found.append(walk)
    for output in workload.outputs:
        found.append(dict(zip(stages[output.name].axes, output.effective_strides, strict=True)))
    return found


def largest_walk(walks: Sequence[Walk], axes: Collection[Axis]) -> Walk:
    """Strides of the largest access along any of these axes; axes of stride 0 are left out."""
    concerned = [w for w in walks if not w.keys().isdisjoint(axes)]
    largest = max(concerned, key=lambda w: math.prod(x.extent for x in w), default={})
    return {x: abs(step) for x, step in largest.items() if step and x.extent > 1}
