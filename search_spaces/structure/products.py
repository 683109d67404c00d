"""Products of which contractions are sums: their two operands, in one element type, and what scales both.

    x[m, k] * q[k, n]                                    bfloat16 by int8: q is converted before the dot
    (a[m, k] * s[m, k // 128]) * (b[k, n] * t[k // 128])     8-bit floats by blocks: s · t scales the dot of a block

A factor that is the same along the tiled axis leaves the dot, if operands of a narrower type remain and one of them has
few bits, so that float16 holds it. Sums of floats are in any order, and each of the products is rounded once more or
less; scales and their products are finite. What a scale would have made smaller may then be too large for float32 where
the other operand is within 2^40 of its largest number (2^16 of an element times 2^24 terms): within 2^31 for int8.
Two operands with the range of float32, as bfloat16 has it, keep their scales: their products alone may be too large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.structure.operand_types import MULTIPLIED, holding, operand_type
from search_spaces.workloads.dtypes import dtype, is_integer, range_of
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, call, mul
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, rewritten, variables
from search_spaces.workloads.workload import Axis, Stage

# Positions along k are compared in float32, which represents integers up to here.
MAX_K = 2**24


@dataclass(frozen=True)
class Product:
    """stage[…] = sum over k of scale · a · b: `a` has the rows of the sum, `b` its columns.

    `scale`: the same along the tiled axis, and a factor of its dots; None for 1.
    """

    stage: str
    a: Expression
    b: Expression
    scale: Expression | None = None

    @property
    def swapped(self) -> Product:
        """The product with rows and columns exchanged."""
        return replace(self, a=self.b, b=self.a)

    @property
    def read(self) -> tuple[Access, ...]:
        """The elements that its operands read."""
        return (*accesses(self.a), *accesses(self.b))


def product_of(stage: Stage, axes: tuple[Axis, ...], reduced: tuple[Axis, ...]) -> Product | None:
    """The stage as a sum of products of rows and columns, its factors in any order; the last axis is a column's."""
    match stage.expression:
        case Apply("mul", (a, b)):
            return _of_two(stage.name, a, b, axes, reduced) or _of_factors(stage, axes, reduced)
        case _:
            return None


def _of_two(
    stage: str, a: Expression, b: Expression, axes: tuple[Axis, ...], reduced: tuple[Axis, ...]
) -> Product | None:
    of_a, of_b = ({x.name for x in (*axes, *reduced)} & variables(e) for e in (a, b))
    own = [x.name for x in axes if x.name in of_a ^ of_b]
    summed_in_both = {x.name for x in reduced} <= of_a & of_b
    known = variables(a) | variables(b) <= of_a | of_b
    if not (known and summed_in_both and {*own} & of_a and {*own} & of_b):
        return None
    return Product(stage, a, b) if own[-1] in of_b else Product(stage, b, a)


def _of_factors(stage: Stage, axes: tuple[Axis, ...], reduced: tuple[Axis, ...]) -> Product | None:
    """The product of those factors with all reduced axes that have the last axis, and of the others; with scales."""
    summed, last = {x.name for x in reduced}, axes[-1].name
    factors = factors_of(stage.expression)
    whole = [f for f in factors if summed <= variables(f)]
    sides = [[f for f in whole if (last in variables(f)) == there] for there in (False, True)]
    if not all(sides):
        return None
    for scale in (f for f in factors if not summed <= variables(f)):
        side = next((x for x in sides if variables(scale) <= variables(product(x))), None)
        if side is None:
            return None
        side.append(scale)
    return _of_two(stage.name, product(sides[0]), product(sides[1]), axes, reduced)


def operands_in(
    dots: Sequence[Product], reduced: Sequence[Axis], dtypes: Mapping[str, str], rounded: bool
) -> str | None:
    """The element type of all operands; None if dots would round them differently than the workload, or take long."""
    (first, *others) = dots
    loaded = _loaded(first, dtypes)
    if not others and len(loaded) == 1:
        return loaded.pop()
    operands = [e for d in dots for e in (d.a, d.b)]
    found = operand_type(operands, dtypes)
    if not rounded:
        return "float32" if found else None
    # Dots of float32 take so much longer that what is half of 16 bits is left to others.
    halves = found == "float32" and any(len(holding(e, dtypes)) == len(MULTIPLIED) - 1 for e in operands)
    return found if not halves and all(x.extent < MAX_K for x in reduced) else None


def _loaded(dot: Product, dtypes: Mapping[str, str]) -> set[str]:
    """The types of operands that are both loaded as stored."""
    read = [e for e in (dot.a, dot.b) if isinstance(e, Access)]
    return {dtypes[e.tensor] for e in read} if len(read) > 1 else set()


def without_scales(
    dots: Sequence[Product], reduced: Sequence[Axis], tiled: Axis, dtypes: Mapping[str, str]
) -> tuple[Product, ...]:
    """The products with the factors that are the same along the tiled axis apart, if narrower operands remain."""
    apart = tuple(without_scale(d, tiled.name) for d in dots)
    before, after = (operands_in(x, reduced, dtypes, True) for x in (dots, apart))
    if after is None or (before is not None and dtype(after).bytes >= dtype(before).bytes):
        return tuple(dots)
    if not all(_is_short(d.a, dtypes) or _is_short(d.b, dtypes) for d in apart):
        return tuple(dots)
    if is_integer(after) and math.prod(x.extent for x in reduced) * range_of(after)[0] ** 2 >= 2**31:
        return tuple(dots)
    return apart


def _is_short(e: Expression, dtypes: Mapping[str, str]) -> bool:
    """True if all values of an operand are between 2^-24 and 2^16 or 0, up to the sign."""
    return "float16" in holding(e, dtypes)


def without_scale(dot: Product, tiled: str) -> Product:
    """The product with the factors of its operands that are the same along the tiled axis as a scale."""
    sides, scales = list[Expression](), list[Expression]()
    for operand in (dot.a, dot.b):
        factors = factors_of(operand)
        kept = [f for f in factors if tiled in variables(f)]
        if not kept or variables(product(kept)) != variables(operand):
            return dot
        sides.append(product(kept))
        scales += [f for f in factors if f not in kept]
    return Product(dot.stage, sides[0], sides[1], product(scales)) if scales else dot


def with_last_scales(
    dots: Sequence[Product], reduced: Sequence[Axis], results: Sequence[tuple[str, Expression]]
) -> tuple[tuple[Product, ...], tuple[tuple[str, Expression], ...]]:
    """The products without scales that no reduced axis has, and the results of sums that these are factors of.

    Before:  acc += s[n] * dot(a, b)        out = f(acc)
    After:   acc += dot(a, b)               out = f(acc * s[n])
    """
    summed = {x.name for x in reduced}
    last = {d.stage: d.scale for d in dots if d.scale and not variables(d.scale) & summed}
    kept = tuple(replace(d, scale=None) if d.stage in last else d for d in dots)

    def scaled(e: Expression) -> Expression | None:
        scale = last.get(e.tensor) if isinstance(e, Access) else None
        return mul(e, scale) if scale else None

    return kept, tuple((name, rewritten(e, scaled)) for name, e in results)


def factors_of(e: Expression) -> list[Expression]:
    """The factors of a product; the expression alone, if it is none."""
    return [f for a in e.arguments for f in factors_of(a)] if isinstance(e, Apply) and e.operator == "mul" else [e]


def product(factors: Sequence[Expression]) -> Expression:
    """The product of one or several factors."""
    first, *others = factors
    for factor in others:
        first = mul(first, factor)
    return first


def converted(dot: Product, element: str, dtypes: Mapping[str, str]) -> Product:
    """The product with operands that are stored in another type as computed in this one, which represents them."""
    rounding = next((r for r, to in ROUNDINGS.items() if to == element), None)

    def one(e: Expression) -> Expression:
        if not isinstance(e, Access) or dtypes[e.tensor] == element:
            return e
        # Elements are read as float32, to which nothing rounds.
        return call(rounding, e) if rounding else mul(e, Literal(1.0))

    return replace(dot, a=one(dot.a), b=one(dot.b))
