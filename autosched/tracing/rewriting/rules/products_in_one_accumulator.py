"""Sums of products as one product with a longer sum.

    x @ w + h @ u + b            →    cat([x, h], 1) @ cat([w, u], 0) + b
    g * (x @ w) + f * (h @ u)    →    cat([g * x, f * h], 1) @ cat([w, u], 0)        g, f for each row

Gates of recurrent networks, shortcuts that are 1×1 convolutions, and experts with their weights: one accumulator takes
the terms of all products, where otherwise they would be stored and read again. Concatenations of constants are prepared
once; others are read from where they are. All products of a sum with the same rows and columns are joined at once.

Exactness: sums in another order; PyTorch's roundings of the single products to 16 bits, and of these times their
scales, are left out, and operands times their scales are rounded instead. The error is at most that of a sum of
k1 + k2 products in float32, (k1 + k2) u Σ|products|, where eager has max(k1, k2) u Σ|products| and the roundings, and
that of one rounding of an operand for each scale. NaN and infinities may differ where a single product, or an operand
times its scale, overflows its type and their sum does not, and where 0 · inf is no longer, or newly, computed.
Source: S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", 1997, whose gates are of [x, h]; TASO's rules of
concatenations.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.rewriting.contractions.building import Builder, Tensor, reshaped
from autosched.tracing.rewriting.contractions.loops import Factor, Monomial, SumOfProducts
from autosched.tracing.rewriting.contractions.reading import Known, known_of, sum_of_products
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Joined, Pointwise, Value
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    known = known_of(equalities)
    # Longest sums first: what is a part of one is not rewritten by itself.
    parts: set[Value] = set()
    for value in reversed([*equalities.terms()]):
        if value in parts or not isinstance(value, Pointwise) or len(value.operands) < 2 or not known.is_sum(value):
            continue
        found = sum_of_products(known, value) if equalities.forms(value)[-1] is value else None
        if found is not None and len(found.monomials) > 1:
            groups = _groups(found)
            if any(len(group) > 1 for group in groups.values()):
                parts |= _parts(known, value)
                yield Match(((value, _joined(found, groups)),))


def _parts(known: Known, value: Value) -> set[Value]:
    """The sums and scales that nothing but this one reads."""
    parts, rest = set[Value](), [value]
    while rest:
        here = [o for o in rest.pop().operands if isinstance(o, Pointwise) and not known.is_shared(o)]
        rest += [o for o in here if o not in parts]
        parts.update(here)
    return parts


def _groups(found: SumOfProducts) -> dict[Hashable, list[Monomial]]:
    """The monomials by the rows and columns of their products; others are alone."""
    groups: dict[Hashable, list[Monomial]] = defaultdict(list)
    for monomial in found.monomials:
        groups[_sides(found, monomial) or monomial].append(monomial)
    return groups


def _sides(found: SumOfProducts, monomial: Monomial) -> Hashable:
    """Key of products that may be joined: their types, rows and columns; None for no product."""
    operands = _operands(found, monomial) if monomial.coefficient == 1 else None
    return operands and (frozenset(_kept(found, own[0]) for own in operands), operands[0][0].value.dtype)


def _operands(found: SumOfProducts, monomial: Monomial) -> tuple[list[Factor], list[Factor]] | None:
    """The operands of a product, each before its scales: factors without loops of their own; None for no product."""
    for pair in itertools.combinations(monomial.factors, 2):
        a, b = ({*found.loops_of(f)} for f in pair)
        rows, columns = (_kept(found, f) for f in pair)
        alike = len({f.value.dtype for f in pair}) == 1 and a - rows == b - columns != set()
        if alike and rows - columns and columns - rows:
            scales = [f for f in monomial.factors if f not in pair]
            of_a = [f for f in scales if {*found.loops_of(f)} <= a]
            of_b = [f for f in scales if f not in of_a and {*found.loops_of(f)} <= b]
            if len(of_a) + len(of_b) == len(scales):
                return [pair[0], *of_a], [pair[1], *of_b]
    return None


def _kept(found: SumOfProducts, factor: Factor) -> frozenset[int]:
    return frozenset(found.loops_of(factor)) & {*found.kept}


def _joined(found: SumOfProducts, groups: dict[Hashable, list[Monomial]]) -> Value:
    builder = Builder(found)
    tensors: list[Tensor | None] = []
    coefficients = []
    for number, group in enumerate(groups.values()):
        if len(group) > 1:
            tensors.append(_product(builder, group, number))
            coefficients.append(1.0)
            continue
        for monomial in group:
            tensors.append(builder.in_any_order(monomial))
            coefficients.append(monomial.coefficient)
    return builder.total(tensors, coefficients)


def _product(builder: Builder, group: Sequence[Monomial], number: int) -> Tensor:
    """The products of a group as one, of factors with one summed dimension, which comes last."""
    found = builder.of
    kept = found.kept
    operands = [pair for m in group if (pair := _operands(found, m)) is not None]
    first, second = (builder.in_order({*_kept(found, own[0])}) for own in operands[0])
    parts: tuple[list[Value], list[Value]] = [], []
    for pair in operands:
        tensors = [_scaled(builder, own) for own in pair]
        if {*tensors[0].loops} & {*kept} != {*first}:
            tensors.reverse()
        summed = builder.in_order({*tensors[0].loops} - {*kept})
        for tensor, own, side in zip(tensors, (first, second), parts, strict=True):
            shape = tuple(found.loops.extent([loop]) for loop in own)
            side.append(reshaped(builder.along(tensor, (*own, *summed)), (*shape, found.loops.extent(summed))))
    loops = builder.in_order({*first, *second})
    numbers = {loop: n for n, loop in enumerate(loops)}
    a, b = (_concatenated(builder, side, f"{number}_{n}") for n, side in enumerate(parts))
    a_loops, b_loops = ((*(numbers[loop] for loop in own), len(loops)) for own in (first, second))
    result = builder.result(str(number), loops)
    return Tensor(product(result, a, b, result.shape, a_loops, b_loops), loops, made=True)


def _scaled(builder: Builder, factors: Sequence[Factor]) -> Tensor:
    """The first factor times the others, in its type."""
    first, *scales = map(builder.tensor, factors)
    if not scales:
        return first
    whole = builder.result(f"{first.value.name}_scaled", first.loops, first.value.dtype)
    values = [builder.along(t, first.loops) for t in (first, *scales)]
    return Tensor(whole.pointwise(lambda *elements: functools.reduce(ex.mul, elements), *values), first.loops)


def _concatenated(builder: Builder, parts: Sequence[Value], name: str) -> Value:
    last = len(parts[0].shape) - 1
    shape = (*parts[0].shape[:-1], sum(p.shape[-1] for p in parts))
    result = builder.result(f"joined_{name}", (), parts[0].dtype)
    return result.of(Joined, shape=shape, parts=tuple(parts), dim=last)


def _example(sizes: Sequence[int]) -> list[Value]:
    m, k, n, inner = sizes[0] + 1, sizes[1] + 1, sizes[2] + 1, sizes[3] + 1
    x, h = leaf("x", (m, k)), leaf("h", (m, inner))
    w, u = leaf("w", (k, n), constant=True), leaf("u", (inner, n), constant=True)
    both = pointwise(ex.add, matmul(x, w, "of_input"), matmul(h, u, "of_state"))
    return [pointwise(ex.add, both, leaf("b", (n,), constant=True), name="gates")]


def _of_scaled_rows(sizes: Sequence[int]) -> list[Value]:
    """Experts, weighted by a number for each row."""
    m, k, n, inner = (size + 1 for size in sizes)
    weights = leaf("g", (m, 2))
    made = []
    for number, width in enumerate((k, inner)):
        sums = matmul(leaf(f"x{number}", (m, width)), leaf(f"w{number}", (width, n), constant=True))
        made.append(pointwise(ex.mul, sums, piece(weights, 1, number, 1)))
    return [pointwise(ex.add, *made, name="sum")]


def _other_columns(sizes: Sequence[int]) -> list[Value]:
    m, k, n, _ = sizes
    rows, columns = matmul(leaf("x", (m, k)), leaf("w", (k, 1))), matmul(leaf("v", (1, k)), leaf("u", (k, n)))
    made = pointwise(ex.add, matmul(leaf("y", (m, k)), leaf("z", (k, n))), rows)
    return [pointwise(ex.add, made, columns, name="sum")]


RULE = Rule(
    name="products in one accumulator",
    exactness="reassociated",
    matches=_matches,
    example=_example,
    others=(_of_scaled_rows,),
    refused=(_other_columns,),
)
