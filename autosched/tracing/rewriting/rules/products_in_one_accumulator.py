"""Sums of products as one product with a longer sum.

    x @ w + h @ u + b    →    cat([x, h], 1) @ cat([w, u], 0) + b

Gates of recurrent networks, and shortcuts that are 1×1 convolutions: one accumulator takes the terms of both products,
where otherwise one of them would be stored and read again. Concatenations of constants are prepared once; others are
read from both places. All products of a sum with the same rows and columns are joined at once.

Exactness: sums in another order; PyTorch's roundings of the single products to 16 bits are left out. The error is at
most that of a sum of k1 + k2 products in float32, (k1 + k2) u Σ|products|, where eager has max(k1, k2) u Σ|products|
and the roundings. NaN and infinities may differ where a single product overflows its type and their sum does not.
Source: S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", 1997, whose gates are of [x, h]; TASO's rules of
concatenations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from autosched.tracing.operators.product_rules import product
from autosched.tracing.rewriting.contractions.building import Builder, Tensor, reshaped
from autosched.tracing.rewriting.contractions.loops import Monomial, SumOfProducts
from autosched.tracing.rewriting.contractions.reading import known_of, sum_of_products
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Joined, Pointwise, Value
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    known = known_of(equalities)
    for value in equalities.terms():
        if not isinstance(value, Pointwise) or len(value.operands) < 2 or not known.is_sum(value):
            continue
        found = sum_of_products(known, value) if equalities.forms(value)[-1] is value else None
        if found is not None and len(found.monomials) > 1:
            groups = _groups(found)
            if any(len(group) > 1 for group in groups.values()):
                yield Match(((value, _joined(found, groups)),))


def _groups(found: SumOfProducts) -> dict[Hashable, list[Monomial]]:
    """The monomials by the rows and columns of their products; others are alone."""
    groups: dict[Hashable, list[Monomial]] = defaultdict(list)
    for monomial in found.monomials:
        groups[_sides(found, monomial) or monomial].append(monomial)
    return groups


def _sides(found: SumOfProducts, monomial: Monomial) -> Hashable:
    """Key of products that may be joined: their types, rows and columns; None for no product."""
    if len(monomial.factors) != 2 or monomial.coefficient != 1:
        return None
    a, b = (found.loops_of(f) for f in monomial.factors)
    kept = set(found.kept)
    rows, columns = (frozenset(own) & kept for own in (a, b))
    dtypes = {f.value.dtype for f in monomial.factors}
    if not rows - columns or not columns - rows or {*a} - kept != {*b} - kept or not {*a} - kept or len(dtypes) > 1:
        return None
    return frozenset([rows, columns]), dtypes.pop()


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
    first = builder.in_order({*found.loops_of(group[0].factors[0])} & {*kept})
    second = builder.in_order({*found.loops_of(group[0].factors[1])} & {*kept})
    parts: tuple[list[Value], list[Value]] = [], []
    for monomial in group:
        tensors = [builder.tensor(f) for f in monomial.factors]
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


def _other_columns(sizes: Sequence[int]) -> list[Value]:
    m, k, n, _ = sizes
    rows, columns = matmul(leaf("x", (m, k)), leaf("w", (k, 1))), matmul(leaf("v", (1, k)), leaf("u", (k, n)))
    made = pointwise(ex.add, matmul(leaf("y", (m, k)), leaf("z", (k, n))), rows)
    return [pointwise(ex.add, made, columns, name="sum")]


RULE = Rule(
    name="products in one accumulator",
    text="x @ w + h @ u → cat([x, h]) @ cat([w, u])",
    exactness="reassociated",
    matches=_matches,
    example=_example,
    refused=(_other_columns,),
)
