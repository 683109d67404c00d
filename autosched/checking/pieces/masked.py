"""Attention of a piece of rows at the positions alone that its mask leaves in for some of them, by the data.

    top[m] = max over t of where(c[m, t], s[m, t], -inf)
    sum over t of exp(where(c[m, t], s[m, t], -inf) - where(top[m] == -inf, 0, top[m])) * v[t]

    →      the same over t from 512 below 768, if c holds at no other t for these m

Where the mask is false the element of a sum is exp(-inf - top) = 0, whatever is read, as the top is not -inf: its
positions change nothing. A top that is NaN makes all positions NaN, and one stays at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from autosched.checking.pieces.ranges import (
    IDENTITIES,
    Evaluate,
    are_finite,
    moved,
    positions_where,
    with_reduced,
)
from search_spaces import Axis, Stage, Workload
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, LookUp
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import distinct, rewritten, variables


def at_positions_left(part: Workload, axis: Axis, inputs: Sequence[torch.Tensor], evaluate: Evaluate) -> Workload:
    """The workload at the positions of a reduced axis that its mask leaves in; the same where it has none.

    All stages read others at their own position of the axis only, and no output has it.
    """
    stages = [s for s in part.stages if axis in s.loops]
    reductions = [s for s in stages if s.reduction and axis in s.reduction.axes]
    masks = _masks(reductions[0], axis, {t.name for t in part.inputs}) if reductions else ()
    left_out = partial(_is_left_out, axis=axis.name, part=part, inputs=inputs, evaluate=evaluate)
    mask = next((c for c in masks if all(left_out(s, c) for s in reductions)), None)
    if mask is None:
        return part
    first, count = positions_where(mask, reductions[0].loops, axis, part, inputs, evaluate)
    names, positions = {s.name for s in part.stages}, Axis(axis.name, count)

    def cut(stage: Stage) -> Stage:
        if axis in stage.axes:
            stage = replace(stage, axes=tuple(positions if x == axis else x for x in stage.axes))
        elif axis in stage.loops:
            stage = with_reduced(stage, axis, positions)
        return moved(stage, axis.name, first, names) if axis.name in stage.extents else stage

    return replace(part, stages=tuple(map(cut, part.stages)))


def _masks(stage: Stage, axis: Axis, inputs: set[str]) -> Iterator[Expression]:
    """Conditions of inputs and positions alone, along an axis, of what is selected in a stage."""
    for e in distinct(stage.expression):
        if isinstance(e, Apply) and e.operator == "where" and axis.name in variables(e.arguments[0]):
            read = {x.tensor for x in distinct(e.arguments[0]) if isinstance(x, Access | LookUp)}
            if read <= inputs:
                yield e.arguments[0]


def _is_left_out(
    stage: Stage,
    mask: Expression,
    axis: str,
    part: Workload,
    inputs: Sequence[torch.Tensor],
    evaluate: Evaluate,
) -> bool:
    """True if elements at which the mask is false change nothing in the reduction of a stage along an axis."""
    assert stage.reduction is not None

    def unselected(e: Expression) -> Expression | None:
        return e.arguments[2] if isinstance(e, Apply) and e.operator == "where" and e.arguments[0] == mask else None

    identity = IDENTITIES.get(stage.reduction.operator)
    factors = stage.factors or (stage.expression,)
    constants = [_constant(rewritten(e, unselected), axis) for e in factors]
    if identity is None or identity not in constants:
        return False
    others = (e for e, value in zip(factors, constants, strict=True) if value != identity)
    # 0 times an infinity is no 0.
    return all(are_finite(e, stage, part, inputs, evaluate) for e in others)


def _constant(e: Expression, axis: str) -> float | None:
    """The value of an expression, whatever it reads; or else NaN, then at all positions of the axis."""
    match e:
        case Literal(value):
            return float(value)
        case Apply("sub", (a, b)) if _constant(a, axis) == -math.inf and _excludes(b, -math.inf, axis):
            return -math.inf
        case Apply("exp" | "exp2", (a,)) if _constant(a, axis) == -math.inf:
            return 0.0
        case Apply("div", (a, b)) if _constant(a, axis) == 0 and _excludes(b, 0, axis):
            return 0.0
        case Apply(operator, (a,)) if operator in ROUNDINGS and _constant(a, axis) in (0.0, -math.inf):
            return _constant(a, axis)
        case _:
            return None


def _excludes(e: Expression, value: float, axis: str) -> bool:
    """True if an expression is the same at all positions of the axis, and does not have a value, whatever it reads."""
    if axis in variables(e):
        return False
    match e:
        case Literal(own):
            return own != value
        case Apply("where", (Apply("eq", (a, Literal(own))), Literal(other), b)):
            return a == b and own == value and other != value
        case Apply("where", (a, b, Literal(other))):
            return a == b and value == 0 and other != 0
        case _:
            return False
