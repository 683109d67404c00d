"""Reductions at the positions alone at which their conditions hold somewhere, by the data.

sum over t of where(begin[g] <= t < end[g], x[t, d], 0)      →      for g from 64 below 80, over t from 9051 below 11200
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from autosched.checking.pieces.read_parts import read_part
from search_spaces import Axis, Reduction, Stage, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Literal,
    LookUp,
    Position,
    call,
    mul,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import distinct, reindexed, rewritten, variables

Evaluate = Callable[[Workload, Sequence[torch.Tensor]], Sequence[torch.Tensor]]

# The value that changes no fold.
IDENTITIES = {"sum": 0.0, "max": -math.inf, "min": math.inf}


def condition_of(stage: Stage) -> Expression | None:
    """The condition without which an element of a reduction is its identity; None if there is none."""
    if stage.reduction is None or stage.reduction.operator not in IDENTITIES or is_integral(stage.expression):
        return None
    identity = Literal(IDENTITIES[stage.reduction.operator])
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
    if condition is None or axis.name not in variables(condition) or not _reads_inputs(stage, workload):
        return None
    if bounds := bounds_of(condition, axis.name):
        return _between(bounds, axis, lambda number: _evaluated(number, stage, workload, inputs, evaluate))
    return positions_where(condition, stage.loops, axis, workload, inputs, evaluate)


def positions_where(
    condition: Expression,
    loops: Sequence[Axis],
    axis: Axis,
    workload: Workload,
    inputs: Sequence[torch.Tensor],
    evaluate: Evaluate,
) -> tuple[int, int]:
    """First position of an axis and number of those at which a condition of the inputs holds somewhere; at least 1."""
    others = tuple(x for x in loops if x.name in variables(condition) and x != axis)
    holds = Reduction("max", others) if others else None
    asked = Workload("holds", workload.inputs, (Stage("holds", (axis,), condition, holds),))
    (found,) = evaluate(asked, inputs)
    at = found.nonzero().flatten()
    return (int(at[0]), int(at[-1] - at[0]) + 1) if len(at) else (0, 1)


@dataclass(frozen=True)
class Bound:
    """A number that is less than the positions where a condition holds, or greater if it `ends` them; or equal to
    one."""

    number: Expression
    ends: bool
    may_equal: bool


def is_bounded(condition: Expression, axes: Sequence[Axis]) -> bool:
    """True if a condition is one of bounds of one of the axes, so that its range needs no look at their positions."""
    return any(bounds_of(condition, x.name) for x in axes)


def bounds_of(condition: Expression, axis: str) -> list[Bound]:
    """The bounds of positions of the axis; none where the condition asks for more of them than that."""
    found = []
    for part in _parts(condition):
        match part:
            case Apply("le" | "lt" as operator, (number, at)) if at == _position(axis):
                found.append(Bound(number, False, operator == "le"))
            case Apply("le" | "lt" as operator, (at, number)) if at == _position(axis):
                found.append(Bound(number, True, operator == "le"))
            case _ if axis in variables(part):
                return []
    return [] if any(axis in variables(b.number) for b in found) else found


def _position(axis: str) -> Expression:
    return call("to_integer", Position(axis_index(axis)))


def _parts(condition: Expression) -> list[Expression]:
    """The conditions that all hold where this one does."""
    match condition:
        case Apply("mul", parts):
            return [part for each in parts for part in _parts(each)]
        case _:
            return [condition]


def _between(bounds: Sequence[Bound], axis: Axis, numbers_of: Callable[[Expression], torch.Tensor]) -> tuple[int, int]:
    """First position and number of those between the least and the greatest of the bounds' numbers."""
    first, end = 0, axis.extent
    for bound in bounds:
        numbers = numbers_of(bound.number)
        if bound.ends:
            end = min(end, int(numbers.max()) + bound.may_equal)
        else:
            first = max(first, int(numbers.min()) + (not bound.may_equal))
    return (first, end - first) if first < end else (0, 1)


def with_bare_factors(stage: Stage, workload: Workload, inputs: Sequence[torch.Tensor], evaluate: Evaluate) -> Stage:
    """The stage with the condition of all its factors left to the first of them, if the others are finite.

    where(c, a[g, t], 0) * where(c, b[t, n], 0)      →      where(c, a[g, t], 0) * b[t, n]
    """
    if condition_of(stage) is None or not _reads_inputs(stage, workload):
        return stage
    first, *others = stage.factors or (stage.expression,)
    bare = [without_condition(e) for e in others]
    finite = all(are_finite(e, stage, workload, inputs, evaluate) for e in bare)
    return replace(stage, expression=functools.reduce(mul, bare, first)) if finite else stage


def are_finite(
    e: Expression, stage: Stage, workload: Workload, inputs: Sequence[torch.Tensor], evaluate: Evaluate
) -> bool:
    """True if an expression of a stage reads inputs alone, and all its values are finite."""
    read = {part.tensor for part in distinct(e) if isinstance(part, Access | LookUp)}
    known = read <= {t.name for t in workload.inputs}
    return known and bool(_evaluated(e, stage, workload, inputs, evaluate).isfinite().all())


def without_condition(factor: Expression) -> Expression:
    """A factor of a reduction that has a condition, less that."""
    assert isinstance(factor, Apply)
    return factor.arguments[1]


def _reads_inputs(stage: Stage, workload: Workload) -> bool:
    """True if the stage reads no other one: these are not evaluated yet, and are cut at other places."""
    named = {t.name for t in workload.inputs}
    return {e.tensor for e in distinct(stage.expression) if isinstance(e, Access | LookUp)} <= named


def _evaluated(
    e: Expression, stage: Stage, workload: Workload, inputs: Sequence[torch.Tensor], evaluate: Evaluate
) -> torch.Tensor:
    """The values of an expression of a stage, of the inputs that it reads."""
    read = {part.tensor for part in distinct(e) if isinstance(part, Access | LookUp)}
    kept = [(t, given) for t, given in zip(workload.inputs, inputs, strict=True) if t.name in read]
    axes = tuple(x for x in stage.loops if x.name in variables(e)) or (Axis("one", 1),)
    dtype = "int64" if is_integral(e) else "float32"
    asked = Workload("asked", tuple(t for t, _ in kept), (Stage("asked", axes, e, dtype=dtype),))
    (found,) = evaluate(*read_part(asked, [given for _, given in kept]))
    return found


def with_reduced(stage: Stage, axis: Axis, positions: Axis) -> Stage:
    """The stage with other positions of a reduced axis."""
    assert stage.reduction is not None
    axes = tuple(positions if x == axis else x for x in stage.reduction.axes)
    return replace(stage, reduction=replace(stage.reduction, axes=axes))


def moved(stage: Stage, axis: str, first: int, stages: set[str]) -> Stage:
    """The stage whose positions of an axis are counted from `first` on."""

    def there(form: Affine) -> Affine:
        forms = {v: axis_index(v) for v, _ in form.terms}
        return form.substituted({**forms, axis: axis_index(axis) + Affine(offset=first)})

    def read_there(e: Expression) -> Expression | None:
        # Reads of other stages stay: these begin where the piece does.
        if isinstance(e, Access) and e.tensor in stages:
            return e
        return reindexed(e, there) if isinstance(e, Access | LookUp | Position) else None

    return replace(stage, expression=rewritten(stage.expression, read_there))
