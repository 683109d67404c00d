"""Sums of products of integers for targets without dots of them.

    acc[m, n] = sum over k of a[m, k] * b[k, n]      →      sum over k of to_integer(a[m, k]) * to_integer(b[k, n])

The first is a dot of int8 in int32. The second is folded in integers wherever folds are.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.expression import Apply, call
from search_spaces.workloads.workload import Stage, Workload


def without_integer_dots(workload: Workload) -> Workload:
    """The workload with products of integers as integers."""

    def written(stage: Stage) -> Stage:
        match stage.expression:
            case Apply("mul", (a, b)) if stage.is_contraction and is_integer(stage.dtype):
                stored = stage.name in workload.output_names
                product = call("mul", call("to_integer", a), call("to_integer", b))
                return replace(stage, expression=product, dtype=stage.dtype if stored else "int64")
            case _:
                return stage

    stages = tuple(map(written, workload.stages))
    return workload if stages == workload.stages else replace(workload, stages=stages)
