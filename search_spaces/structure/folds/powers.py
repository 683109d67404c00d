"""Exponentials relative to a maximum, as powers of two of one fused multiply-subtract.

    top = max of (s * scale)                  top = max of s
    exp(s * scale - top)                →     exp2(s * k - top * k)       k = scale * log2(e)

A positive factor of all values is a factor of their maximum, rounded alike: so it stays outside of the fold, and merges
with the factor that makes a power of two of an exponential. A processor multiplies and subtracts at once. (Dao,
"FlashAttention-2", 2023, section 3.1.)

Folds relative to a number per row that is read, as in the gradient of an attention, are treated alike:

    exp(s * scale - lse)               →     exp2(s * k - lse * log2(e))
    exp(where(c <= m, s, -inf) - lse)  →     where(c <= m, exp2(s * k - lse * log2(e)), 0)

The second is no NaN if a row has no points and its number is minus infinity: masked iterations are left out, as in
other folds of products.

The product by k is not rounded before the subtraction; so a value must not be so large that rounding matters. Where one
may be, as in tensors of masks, exponentials stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from search_spaces.structure.reads.intervals import interval
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, Position, call, mul, sub
from search_spaces.workloads.expressions.walking import accesses, gathers, rewritten
from search_spaces.workloads.stages import Stage

LOG2_E = math.log2(math.e)
# Larger constants are masks. A row without any point left has such a number as its maximum; times log2(e) that is
# rounded, and so are values relative to it: of this size by 2**-11, of a billion by 64.
_MODERATE = 1e4
# Products of larger ones may overflow.
_LARGEST_FACTOR = 1e30
_NEVER, _ZERO = Literal(-math.inf), Literal(0.0)


@dataclass(frozen=True)
class _Maximum:
    """A maximum of `value`, which is `factor` times that of `unscaled`."""

    value: Expression
    unscaled: Expression
    factor: float


@dataclass(frozen=True)
class _Values:
    """Values computed in a stage of these `extents`, from these products."""

    products: Collection[str]
    extents: Mapping[str, int]

    def is_moderate(self, e: Expression) -> bool:
        """True if a value, where not masked, is computed from the products and from numbers that are no masks."""
        match e:
            case Literal(value):
                return value == -math.inf or abs(value) < _MODERATE
            case Access(tensor):
                return tensor in self.products
            case Position():
                return True
            case Apply("where", (_, a, b)):
                return self.is_moderate(a) and self.is_moderate(b)
            case Apply("exp" | "exp2" | "div" | "pow", (*_, last)):
                if isinstance(last, Literal):
                    return self.is_moderate(e.arguments[0])
                within = interval(e, self.extents)
                return within is not None and max(map(abs, within)) < _MODERATE
            case Apply(_, arguments):
                return all(map(self.is_moderate, arguments))
            case _:
                return False


def in_powers_of_two(
    stages: Sequence[Stage], products: Collection[str], stored: Collection[str]
) -> tuple[tuple[Stage, ...], float]:
    """The stages with maxima of unscaled values and with powers of two; and the largest factor in exponents.

    `stored`: names of outputs, which keep their scale.
    """
    maxima: dict[str, _Maximum] = {}
    made_here = {s.name for s in stages}
    kept: list[Stage] = []
    for stage in stages:
        values = _Values(products, stage.extents)
        if stage.reduction and stage.reduction.operator == "max" and values.is_moderate(stage.expression):
            unscaled, factor = _unscaled(stage.expression)
            if stage.name in stored and factor != 1.0:
                kept.append(stage)
                continue
            maxima[stage.name] = _Maximum(stage.expression, unscaled, factor)
            kept.append(replace(stage, expression=unscaled))
            continue
        made = rewritten(stage.expression, lambda e: _power(e, maxima))
        if stage.reduction:
            made = rewritten(made, partial(_read_power, values=values, stages=made_here))
        made = rewritten(made, lambda e: _scaled(e, maxima))
        kept.append(replace(stage, expression=made))
    return tuple(kept), max((m.factor * LOG2_E for m in maxima.values()), default=1.0)


def _scaled(e: Expression, maxima: Mapping[str, _Maximum]) -> Expression | None:
    """A maximum that is read, times its factor."""
    match e:
        case Apply("exp2_normal"):
            return e
        case Access(tensor) if tensor in maxima and maxima[tensor].factor != 1.0:
            return mul(e, Literal(maxima[tensor].factor))
        case _:
            return None


def _power(e: Expression, maxima: Mapping[str, _Maximum]) -> Expression | None:
    match e:
        case Apply("exp", (Apply("sub", (value, relative)),)):
            tensor, unscaled = _relative(relative, maxima)
            known = maxima.get(tensor)
            if known is None or value != known.value:
                return None
            by = Literal(known.factor * LOG2_E)
            return call("exp2_normal", sub(mul(known.unscaled, by), mul(unscaled, by)))
        case _:
            return None


def _read_power(e: Expression, values: _Values, stages: Collection[str]) -> Expression | None:
    """The power of a value relative to numbers that are read, and to nothing of these stages."""
    match e:
        case Apply("exp", (Apply("sub", (value, relative)),)):
            computed = any(a.tensor in stages for a in accesses(relative))
            read = any(a.tensor in values.products for a in accesses(value))
            return _about(value, relative, values) if read and not computed else None
        case _:
            return None


def _about(value: Expression, relative: Expression, values: _Values) -> Expression:
    """exp(value - relative), which a mask by position makes 0 whatever it is relative to."""
    unscaled, factor = _unscaled(value)
    match unscaled:
        case Apply("where", (condition, a, b)) if not (accesses(condition) or gathers(condition)) and _NEVER in (a, b):
            scaled = [x if x == _NEVER or factor == 1.0 else mul(x, Literal(factor)) for x in (a, b)]
            return call("where", condition, *(_ZERO if x == _NEVER else _about(x, relative, values) for x in scaled))
    if not values.is_moderate(value):
        return call("exp", sub(value, relative))
    return call("exp2_normal", sub(mul(unscaled, Literal(factor * LOG2_E)), mul(relative, Literal(LOG2_E))))


def _relative(e: Expression, maxima: Mapping[str, _Maximum]) -> tuple[str, Expression]:
    """The maximum that this is, at least where finite, and the same unscaled; no name if it is none."""
    match e:
        case Access(tensor):
            return tensor, e
        case Apply("where", (condition, Literal(0.0) as zero, Access(tensor) as top)):
            return tensor, call("where", rewritten(condition, lambda x: _scaled(x, maxima)), zero, top)
        case _:
            return "", e


def _unscaled(e: Expression) -> tuple[Expression, float]:
    """The value without a positive factor, and that factor."""
    match e:
        case Apply("mul", (a, Literal(by))) | Apply("mul", (Literal(by), a)) if 0 < by < _LARGEST_FACTOR:
            inner, factor = _unscaled(a)
            return inner, factor * by
        case Apply("div", (a, Literal(by))) if 0 < by < _LARGEST_FACTOR:
            inner, factor = _unscaled(a)
            return inner, factor / by
        case Apply("where", (condition, a, Literal(value))) if value == -math.inf:
            inner, factor = _unscaled(a)
            return call("where", condition, inner, Literal(value)), factor
        case Apply("where", (condition, Literal(value), a)) if value == -math.inf:
            inner, factor = _unscaled(a)
            return call("where", condition, Literal(value), inner), factor
        case _:
            return e, 1.0
