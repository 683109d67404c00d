"""The stages of a kernel that chains products (back-to-back GEMM, attention), without the roundings of stored
tensors.

    s[m, c] = sum over d of q[m, d] * k[c, d]                            is read as
    top[m]  = max over c of F(s[m, c])                                   F without the roundings of 16-bit tensors
    out     = sum over c of round(exp(F - top) / total) * v[c, e]        so here, except for the operand of a dot

Comparisons of positions in masks have one normal form, so that all spellings of a mask are one workload:

    where(not (j - i <= 0 and True), -inf, F)                            where(j - i <= 0, F, -inf)

Where a mask of positions leaves an element of every row, code for fully masked rows is removed. A sum of exponentials
about a maximum that is 0 where it is infinite (logsumexp) becomes the one about the maximum itself, if that exists,
wherever it is finite.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.values.values import Extents
from search_spaces import Stage
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, Position, call, mul, sub
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, rewritten

_TRUE, _FALSE, _LEAST = Literal(1.0), Literal(0.0), Literal(-math.inf)


def chained(stages: Sequence[Stage], products: Collection[str], extents: Extents) -> list[Stage]:
    """The stages of a kernel as a chain; `products` are those of its products."""
    masks = _Masks(extents)
    found = [replace(s, expression=rewritten(s.expression, masks.chosen)) for s in stages]
    return _without_empty_rows(_with_one_sum(_without_roundings(found, products)), extents)


# Roundings


def _without_roundings(stages: Sequence[Stage], products: Collection[str]) -> list[Stage]:
    """The stages without the roundings that 16-bit tensors between a product and its reduction would make."""
    folded = {a.tensor for s in stages if s.reduction for a in accesses(s.expression)}
    depending = folded & {*products}
    dropped: dict[Expression, None] = {}
    found = []
    for stage in stages:
        if not stage.reduction or not _reads(stage.expression, depending):
            # A value stored at the points of a reduction is the operand of that reduction.
            known = rewritten(stage.expression, lambda e: _without(e, depending) if e in dropped else None)
            found.append(replace(stage, expression=known))
            continue
        multiplied = _multiplied(stage.expression) if stage.name in products else ()
        depending.add(stage.name)

        def change(e: Expression, multiplied: tuple[Expression, ...] = multiplied) -> Expression | None:
            if not _rounds(e, depending):
                return None
            assert isinstance(e, Apply)
            if e in multiplied:
                return Apply(e.operator, (rewritten(e.arguments[0], change),))
            dropped[e] = None
            return rewritten(e.arguments[0], change)

        found.append(replace(stage, expression=rewritten(stage.expression, change)))
    return found


def _rounds(e: Expression, depending: Collection[str]) -> bool:
    return isinstance(e, Apply) and e.operator in ROUNDINGS and _reads(e, depending)


def _without(e: Expression, depending: Collection[str]) -> Expression:
    """The expression without roundings of these stages' values."""

    def change(x: Expression) -> Expression | None:
        return _without(x.arguments[0], depending) if isinstance(x, Apply) and _rounds(x, depending) else None

    return rewritten(e, change)


def _multiplied(expression: Expression) -> tuple[Expression, ...]:
    """The operands of a product."""
    return expression.arguments if isinstance(expression, Apply) and expression.operator == "mul" else ()


def _reads(expression: Expression, names: Collection[str]) -> bool:
    return any(a.tensor in names for a in accesses(expression))


# Masks


@dataclass(frozen=True)
class _Masks:
    """A normal form of choices by conditions."""

    extents: Extents

    def chosen(self, e: Expression) -> Expression | None:
        """A choice whose condition, or a part of it, is known or has a better opposite."""
        match e:
            case Apply("where", (condition, first, second)):
                return self._where(self.truth(condition), self._rewritten(first), self._rewritten(second))
            case _:
                return None

    def _rewritten(self, e: Expression) -> Expression:
        return rewritten(e, self.chosen)

    def _where(self, condition: Expression, first: Expression, second: Expression) -> Expression:
        match condition:
            case Literal(number):
                return first if number else second
            case Apply("eq", (other, Literal(0.0))):
                return self._where(other, second, first)
        opposite = self._opposite(condition) if first == _LEAST else None
        if opposite is not None:
            return self._where(opposite, second, first)
        match first:
            case Apply("where", (within, value, beyond)) if beyond == second == _LEAST:
                return self._where(_both(condition, within), value, second)
        return call("where", condition, first, second)

    def truth(self, e: Expression) -> Expression:
        """The normal form of a truth value: not 0 where the expression is not 0."""
        match e:
            case Apply("eq", (Literal(a), Literal(b))):
                return _TRUE if a == b else _FALSE
            case Apply("eq", (condition, Literal(0.0))):
                inner = self.truth(condition)
                opposite = self._opposite(inner)
                return call("eq", inner, _FALSE) if opposite is None else opposite
            case Apply("mul" | "minimum", (a, b)):
                return _both(self.truth(a), self.truth(b))
            case Apply("maximum", (a, b)):
                return _either(self.truth(a), self.truth(b))
            case Apply("le" | "lt" as operator, (a, b)):
                difference = _position(sub(a, b))
                return e if difference is None else self._at_most(difference, 0 if operator == "le" else -1)
            case Apply("where", (condition, Literal(first), Literal(0.0))) if first:
                return self.truth(condition)
            case Literal(value):
                return _TRUE if value else _FALSE
            case _:
                return e

    def _at_most(self, form: Affine, bound: int) -> Expression:
        """Condition that the form is at most `bound`."""
        if form.maximum(self.extents) <= bound:
            return _TRUE
        if form.minimum(self.extents) > bound:
            return _FALSE
        return call("le", Position(form - Affine(offset=form.offset)), Literal(float(bound - form.offset)))

    def _opposite(self, condition: Expression) -> Expression | None:
        """The negation of a condition in normal form; None where it has no other form."""
        match condition:
            case Literal(value):
                return _FALSE if value else _TRUE
            case Apply("eq", (other, Literal(0.0))):
                return other
            case Apply("le", (Position(form), Literal(bound))):
                return self._at_most(-form, -int(bound) - 1)
            case Apply("mul" | "maximum" as operator, (a, b)):
                not_a, not_b = self._opposite(a), self._opposite(b)
                if not_a is None or not_b is None:
                    return None
                return _either(not_a, not_b) if operator == "mul" else _both(not_a, not_b)
            case _:
                return None


def _both(a: Expression, b: Expression) -> Expression:
    if _FALSE in (a, b):
        return _FALSE
    return b if a == _TRUE else a if b in (_TRUE, a) else mul(a, b)


def _either(a: Expression, b: Expression) -> Expression:
    if _TRUE in (a, b):
        return _TRUE
    return b if a == _FALSE else a if b in (_FALSE, a) else call("maximum", a, b)


def _position(e: Expression) -> Affine | None:
    """An expression of positions as one affine form."""
    match e:
        case Position(index):
            return index
        case Literal(value) if value.is_integer():
            return Affine(offset=int(value))
        case Apply("add" | "sub" as operator, (a, b)):
            one, other = _position(a), _position(b)
            if one is None or other is None:
                return None
            return one + other if operator == "add" else one - other
        case Apply("neg", (a,)):
            form = _position(a)
            return None if form is None else -form
        case _:
            return None


# Sums of exponentials


def _with_one_sum(stages: Sequence[Stage]) -> list[Stage]:
    """The stages without sums that equal another one wherever the maximum that both are relative to is finite."""
    known: dict[str, Expression] = {}
    found: list[Stage] = []
    for stage in stages:
        read = replace(stage, expression=rewritten(stage.expression, lambda e: _known(e, known)))
        other = _of_the_same_sum(read, found)
        if other is None:
            found.append(read)
        else:
            known[stage.name] = other
    return found


def _known(e: Expression, known: Mapping[str, Expression]) -> Expression | None:
    return known.get(e.tensor) if isinstance(e, Access) else None


def _of_the_same_sum(stage: Stage, others: Sequence[Stage]) -> Expression | None:
    """The stage by one of the others, if it equals that."""
    match stage.expression:
        case Apply("exp", (Apply("sub", (value, Apply("where", (condition, Literal(0.0), Access() as top)))),)):
            pass
        case _:
            return None
    if condition != call("eq", call("abs", top), Literal(math.inf)):
        return None
    about = replace(stage, expression=call("exp", sub(value, top)))
    same = next((s for s in others if replace(s, name=stage.name) == about), None)
    if same is None:
        return None
    total = Access(same.name, tuple(axis_index(a.name) for a in same.axes))
    # The sum is infinite if the maximum is, and 0 if all elements are -inf.
    return call("where", condition, call("maximum", top, _FALSE), total)


# Fully masked rows


def _without_empty_rows(stages: Sequence[Stage], extents: Extents) -> list[Stage]:
    """The stages without the code for fully masked rows, if the mask leaves an element of every row.

    Before: exp(F - (0 where top == -inf, else top)), total or 1 where that is 0      After: exp(F - top), total
    """
    tops = {s.name: s.expression for s in stages if _has_points(s, extents)}
    found: list[Stage] = []
    for stage in stages:
        totals = {s.name for s in found if _is_about(s.expression, tops)}

        def change(e: Expression, totals: Collection[str] = frozenset(totals)) -> Expression | None:
            match e:
                case Apply("where", (condition, Literal(0.0), Access(name) as top)) if name in tops:
                    return top if condition == call("eq", top, _LEAST) else None
                case Apply("where", (Access(name) as total, other, Literal(1.0))) if name in totals:
                    return total if other == total else None
                case _:
                    return None

        found.append(replace(stage, expression=rewritten(stage.expression, change)))
    return found


def _has_points(stage: Stage, extents: Extents) -> bool:
    """True for the maximum of values masked by positions, none of whose rows is fully masked."""
    match stage.expression:
        case Apply("where", (Apply("le", (Position(form), Literal(bound))), _, beyond)) if beyond == _LEAST:
            pass
        case _:
            return False
    if stage.reduction is None or stage.reduction.operator != "max":
        return False
    reduced = {x.name for x in stage.reduction.axes}
    of_reduced = Affine.of(*((v, c) for v, c in form.terms if v in reduced))
    return (form - of_reduced).maximum(extents) + of_reduced.minimum(extents) <= bound


def _is_about(e: Expression, tops: Mapping[str, Expression]) -> bool:
    """True for an exponential relative to a maximum: 1 there, and at most 1 elsewhere."""
    match e:
        case Apply("exp", (Apply("sub", (value, Access(name))),)):
            return tops.get(name) == value
        case _:
            return False
