"""Moving a partial result when the value that it is relative to changes: one rule for each kind of summand.

A rule is found by the structure of a summand, never by names: sums and differences are compared as linear forms, and
products by how they scale.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal, Position
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses, gathers
from search_spaces.workloads.workload import Stage

# Two constants are equal if they differ only by the rounding to float32, in which constants are kept.
_SAME = 1e-6
_ONE = Literal(1.0)


@dataclass(frozen=True)
class Exponent:
    """The reference of an exponential: `relative`, a value per row that is a maximum or a minimum where finite."""

    leader: str
    relative: Expression
    operator: str


# The factor of a value when its reference grows by one: exp(-coefficient), for each.
Scale = Mapping[Exponent, float]


@dataclass(frozen=True)
class Scaled:
    """A sum of values that scale: its partial result is multiplied by exp(coefficient * (old - new)) per exponent."""

    scale: Scale

    @property
    def leaders(self) -> set[str]:
        return {e.leader for e in self.scale}


@dataclass(frozen=True)
class Centre:
    """`value` about `mean`: its sum over all points, by their number."""

    leader: str
    value: Expression
    mean: Expression


@dataclass(frozen=True)
class Centred:
    """A sum of products of two values, each about its mean.

    With a = sum(x - c) and b = sum(z - d) over n points, where c and d move by s and t,

        sum((x - c + s) * (z - d + t)) = sum((x - c) * (z - d)) + t * a + s * b + n * s * t

    for any c and d. If c is the mean of n0 of the points, sum((x - c)^2) is at most 1 + n / n0 times the sum about the
    mean of all: so few digits are lost when it is moved there.
    """

    first: Centre
    second: Centre

    @property
    def leaders(self) -> set[str]:
        return {self.first.leader, self.second.leader}


@dataclass(frozen=True)
class Selected:
    """A fold whose summand is `beyond` except at the extreme: when that moves, no point so far is at it."""

    leader: str
    extreme: Expression
    beyond: Literal | Integer

    @property
    def leaders(self) -> set[str]:
        return {self.leader}


Rule = Scaled | Centred | Selected


@dataclass(frozen=True)
class Member:
    """A fold of a loop: its stage, its summand with everything inlined but folds, and its rule for moving."""

    stage: Stage
    body: Expression
    rule: Rule | None = None

    @property
    def operator(self) -> str:
        assert self.stage.reduction is not None
        return self.stage.reduction.operator

    @property
    def points(self) -> int:
        """Number of points that are folded."""
        assert self.stage.reduction is not None
        return math.prod(x.extent for x in self.stage.reduction.axes)


Walk = Mapping[str, Member]


def rule_of(stage: Stage, body: Expression, walk: Walk) -> Rule | None:
    """The rule by which the fold can share a loop with folds that it depends on, or None if it cannot.

    It may be relative to folds that are relative to none.
    """
    assert stage.reduction is not None
    if stage.reduction.operator == "sum" and not is_integral(body):
        scale = scale_of(body, walk, {})
        if scale:
            return Scaled(scale)
        centred = _centred(body, walk)
        if centred:
            return centred
    return _selected(stage, body, walk)


def reads(expression: Expression, names: Collection[str]) -> bool:
    return any(a.tensor in names for a in accesses(expression))


# Scales


def scale_of(e: Expression, walk: Walk, scales: Mapping[str, Scale]) -> Scale | None:
    """Scale of the value when its references move; None if it does not just scale.

    `scales`: of results that it may read.
    """
    if not reads(e, walk):
        return {}
    match e:
        case Access(tensor):
            return scales.get(tensor)
        case Apply("exp" | "exp2" | "exp2_normal", (argument,)):
            return _exponential(e.operator, argument, walk)
        case Apply("neg", (a,)):
            return scale_of(a, walk, scales)
        case Apply("mul", (a, b)):
            return _added(scale_of(a, walk, scales), scale_of(b, walk, scales), 1.0)
        case Apply("div", (a, b)) if scales or not reads(b, walk):
            return _added(scale_of(a, walk, scales), scale_of(b, walk, scales), -1.0)
        case Apply("add" | "sub", (a, b)):
            return {} if scales and _logarithms_cancel(e, walk, scales) else _alike(a, b, walk, scales)
        case Apply("where", (condition, a, b)) if not reads(condition, walk):
            return _alike(a, b, walk, scales)
        case _:
            return None


def _added(a: Scale | None, b: Scale | None, times: float) -> Scale | None:
    if a is None or b is None:
        return None
    total = {x: a.get(x, 0.0) + times * b.get(x, 0.0) for x in {**a, **b}}
    return {x: c for x, c in total.items() if abs(c) > _SAME}


def _alike(a: Expression, b: Expression, walk: Walk, scales: Mapping[str, Scale]) -> Scale | None:
    """The common scale of both; 0 has any."""
    found = [scale_of(e, walk, scales) for e in (a, b) if e != Literal(0.0)]
    return found[0] if found and all(f == found[0] for f in found) else None


def _logarithms_cancel(e: Expression, walk: Walk, scales: Mapping[str, Scale]) -> bool:
    """True for the logarithm of a quotient that does not scale: (x - top) - log(sum of exp(x - top))."""
    terms = linear(e)
    total: Scale | None = {}
    for term in [t for t in terms if reads(t, walk)]:
        match term:
            case Access(tensor) if all(
                math.isclose(terms.get(v, 0.0), -terms[term] * c) for v, c in linear(walk[tensor].body).items()
            ):
                total = _added(total, {Exponent(tensor, term, "exp"): 1.0}, -terms[term])
            case Apply("log", (summed,)):
                total = _added(total, scale_of(summed, walk, scales), terms[term])
            case _:
                return False
    return total == {}


def _exponential(operator: str, argument: Expression, walk: Walk) -> Scale | None:
    """The scale of an exponential that is at most 1: c * (x - top), c above 0, or c * (x - bottom), c below 0.

    A larger one could be infinite for a while, without being so in the end.
    """
    terms = linear(argument)
    relatives = [e for e in terms if reads(e, walk)]
    if len(relatives) != 1:
        return None
    coefficient = -terms.pop(relatives[0])
    leader = extreme_where_finite(relatives[0])
    if leader is None or walk[leader].rule is not None or is_integral(walk[leader].body):
        return None
    towards = {"max": 1.0, "min": -1.0}.get(walk[leader].operator, 0.0)
    values = {e: coefficient * c for e, c in linear(walk[leader].body).items()}
    if coefficient * towards <= 0 or not _same(terms, values):
        return None
    return {Exponent(leader, relatives[0], operator): coefficient}


def extreme_where_finite(e: Expression) -> str | None:
    """The fold whose result this is: all of it, or all but a constant in some cases (0 for an infinity)."""
    match e:
        case Access(tensor):
            return tensor
        case Apply("where", (condition, Literal(), Access(tensor))) | Apply(
            "where", (condition, Access(tensor), Literal())
        ) if all(a.tensor == tensor for a in accesses(condition)) and not gathers(condition):
            return tensor
        case _:
            return None


# Centres


def _centred(body: Expression, walk: Walk) -> Centred | None:
    if not (isinstance(body, Apply) and body.operator == "mul"):
        return None
    first, second = (_centre(e, walk) for e in body.arguments)
    return Centred(first, second) if first and second else None


def _centre(e: Expression, walk: Walk) -> Centre | None:
    if not (isinstance(e, Apply) and e.operator == "sub"):
        return None
    value, mean = e.arguments
    terms = linear(mean)
    (total, share), *others = terms.items() or ((_ONE, 0.0),)
    if others or reads(value, walk) or not isinstance(total, Access) or total.tensor not in walk:
        return None
    summed = walk[total.tensor]
    if summed.rule or summed.operator != "sum" or is_integral(summed.body):
        return None
    if not math.isclose(share * summed.points, 1.0, rel_tol=_SAME) or not _same(linear(value), linear(summed.body)):
        return None
    return Centre(total.tensor, value, mean)


# Extremes


def _selected(stage: Stage, body: Expression, walk: Walk) -> Selected | None:
    match body:
        case Apply("where", (condition, value, Literal() | Integer() as beyond)) if not reads(value, walk):
            extreme = _extreme_of(condition, walk)
        case _:
            return None
    if extreme is None or not _changes_nothing(stage, value, beyond):
        return None
    (leader,) = {a.tensor for a in accesses(extreme)}
    return Selected(leader, extreme, beyond)


def _extreme_of(condition: Expression, walk: Walk) -> Expression | None:
    """The extreme that a point is compared with: it equals that, or is NaN, which then is the extreme too."""
    match condition:
        case Apply("maximum", (compared, Apply("eq", (Apply("eq", (a, b)), Literal(0.0))))) if a == b:
            found = _extreme_of(compared, walk)
            return found if found is not None and compared == Apply("eq", (a, found)) else None
        case Apply("eq", (value, extreme)) if not reads(value, walk):
            names = {a.tensor for a in accesses(extreme)}
            leader = walk.get(next(iter(names), ""))
            if leader is None or len(names) > 1 or leader.rule or leader.operator not in ("max", "min"):
                return None
            (own,) = _of(extreme) if is_integral(extreme) else (extreme,)
            return extreme if isinstance(own, Access) and value == leader.body else None
        case _:
            return None


def _of(e: Expression) -> tuple[Expression, ...]:
    return e.arguments if isinstance(e, Apply) and len(e.arguments) == 1 else (e,)


def _changes_nothing(stage: Stage, value: Expression, beyond: Literal | Integer) -> bool:
    """True if a constant is neutral in the fold: 0 in a sum, a value beyond all positions in a minimum."""
    assert stage.reduction is not None
    operator, constant = stage.reduction.operator, beyond.value
    (inner,) = _of(value)
    if operator == "sum" and constant == 0:
        return True
    if isinstance(inner, Position) and operator in ("max", "min"):
        lowest, highest = inner.index.minimum(stage.extents), inner.index.maximum(stage.extents)
        return constant >= highest if operator == "min" else constant <= lowest
    return False


# Linear forms


def linear(e: Expression) -> dict[Expression, float]:
    """The expression as a sum of multiples of others; a constant is a multiple of 1."""
    match e:
        case Literal(value):
            return {_ONE: float(value)}
        case Apply("add" | "sub", (a, b)):
            sign, total = 1.0 if e.operator == "add" else -1.0, dict(linear(a))
            for term, c in linear(b).items():
                total[term] = total.get(term, 0.0) + sign * c
            return total
        case Apply("neg", (a,)):
            return {term: -c for term, c in linear(a).items()}
        case Apply("mul", (a, Literal(by))) | Apply("mul", (Literal(by), a)):
            return {term: c * by for term, c in linear(a).items()}
        case Apply("div", (a, Literal(by))) if by:
            return {term: c / by for term, c in linear(a).items()}
        case _:
            return {e: 1.0}


def _same(a: Mapping[Expression, float], b: Mapping[Expression, float]) -> bool:
    return a.keys() == b.keys() and all(math.isclose(a[e], b[e], rel_tol=_SAME) for e in a)
