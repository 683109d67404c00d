"""Products with a vector as products with a matrix of one row, which dots multiply.

y[n] = sum over k of x[k] * w[k, n]        →        y[m, n] = sum over k of x[m, k] * w[k, n], with one m
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather
from search_spaces.workloads.expressions.walking import accesses, rewritten, segments, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage, Workload


def with_unit_rows(workload: Workload) -> Workload | None:
    """The workload with an axis of one position for the vectors that it multiplies, and for all results of these.

    None if it multiplies no vector: in no sum of products are the axes of one factor among those of the other.
    """
    read = [a for s in workload.stages for a in _vector(s)]
    vectors = {a.tensor for a in read} & {t.name for t in workload.inputs}
    if not vectors or vectors & {e.tensor for s in workload.stages for e in segments(s.expression)}:
        return None
    row = Axis(Names({x.name for s in workload.stages for x in s.loops}).fresh("m"), 1)
    batch = {v for a in read for v in variables(a)}
    places: dict[str, int] = dict.fromkeys(vectors, 0)
    stages = []
    for stage in workload.stages:
        if any(a.tensor in places for a in accesses(stage.expression)):
            places[stage.name] = next((n for n, x in enumerate(stage.axes) if x.name not in batch), len(stage.axes))
        stages.append(_with_row(stage, row, places))
    inputs = [
        replace(t, shape=(1, *t.shape), strides=t.strides and (0, *t.strides)) if t.name in places else t
        for t in workload.inputs
    ]
    placed = zip(workload.output_names, workload.output_strides, strict=True)
    strides = tuple(s and (*s[: places[n]], 0, *s[places[n] :]) if n in places else s for n, s in placed)
    return replace(workload, inputs=tuple(inputs), stages=tuple(stages), output_strides=strides)


def _vector(stage: Stage) -> Sequence[Access]:
    """The reads of a sum of products in the factor with fewer axes, if the other one has all of them."""
    match stage.expression:
        case Apply("mul", (a, b)) if stage.reduction is not None and stage.reduction.operator == "sum":
            own = {x.name for x in stage.axes}
            of_a, of_b = variables(a) & own, variables(b) & own
            if of_a < of_b or of_b < of_a:
                return accesses(a if of_a < of_b else b)
    return ()


def _with_row(stage: Stage, row: Axis, places: dict[str, int]) -> Stage:
    has_row = stage.name in places
    at = axis_index(row.name) if has_row else Affine()

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor, index, fill) if tensor in places:
                return Access(tensor, (*index[: places[tensor]], at, *index[places[tensor] :]), fill)
            case Gather(tensor, mixed) if tensor in places:
                return Gather(tensor, (*mixed[: places[tensor]], at, *mixed[places[tensor] :]))
            case _:
                return None

    place = places.get(stage.name, 0)
    axes = (*stage.axes[:place], row, *stage.axes[place:]) if has_row else stage.axes
    return replace(stage, axes=axes, expression=rewritten(stage.expression, change))
