"""Reductions at the positions alone at which their conditions hold somewhere, by the data.

sum over t of where(begin[g] <= t < end[g], x[t, d], 0)      →      for g from 64 below 80, over t from 9051 below 11200
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from search_spaces import Axis, Reduction, Stage, Workload
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, LookUp
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import distinct, variables

Evaluate = Callable[[Workload, Sequence[torch.Tensor]], Sequence[torch.Tensor]]

# The value that changes no fold.
_IDENTITIES = {"sum": 0.0, "max": -math.inf, "min": math.inf}


def condition_of(stage: Stage) -> Expression | None:
    """The condition without which an element of a reduction is its identity; None if there is none."""
    if stage.reduction is None or stage.reduction.operator not in _IDENTITIES or is_integral(stage.expression):
        return None
    identity = Literal(_IDENTITIES[stage.reduction.operator])
    # Of a product all factors have the same one: 0 times an infinity is no identity.
    found = {_condition(factor, identity) for factor in stage.factors or (stage.expression,)}
    return found.pop() if len(found) == 1 else None


def _condition(e: Expression, identity: Expression) -> Expression | None:
    match e:
        case Apply("where", (condition, _, other)) if other == identity:
            return condition
        case _:
            return None


def range_of(
    stage: Stage, axis: Axis, workload: Workload, inputs: Sequence[torch.Tensor], evaluate: Evaluate
) -> tuple[int, int] | None:
    """First position of a reduced axis and number of those at which the condition holds somewhere; None where unknown.

    At least one position, at which it may not hold.
    """
    condition = condition_of(stage)
    named = {t.name for t in workload.inputs}
    if condition is None or axis.name not in variables(condition):
        return None
    # Other stages are not evaluated yet, and are cut at other places.
    if not {e.tensor for e in distinct(stage.expression) if isinstance(e, Access | LookUp)} <= named:
        return None
    others = tuple(x for x in stage.loops if x.name in variables(condition) and x != axis)
    holds = Reduction("max", others) if others else None
    asked = Workload("holds", workload.inputs, (Stage("holds", (axis,), condition, holds),))
    (found,) = evaluate(asked, inputs)
    at = found.nonzero().flatten()
    return (int(at[0]), int(at[-1] - at[0]) + 1) if len(at) else (0, 1)


def with_reduced(stage: Stage, axis: Axis, positions: Axis) -> Stage:
    """The stage with other positions of a reduced axis."""
    assert stage.reduction is not None
    axes = tuple(positions if x == axis else x for x in stage.reduction.axes)
    return replace(stage, reduction=replace(stage.reduction, axes=axes))
