"""Sums of products in the cheapest form: an order for each monomial, and factors that several have in common once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from autosched.tracing.rewriting.contractions.building import Builder, Tensor
from autosched.tracing.rewriting.contractions.costs import WORTHWHILE, sum_cost
from autosched.tracing.rewriting.contractions.loops import Factor, Monomial, SumOfProducts
from autosched.tracing.rewriting.contractions.ordering import Factors, Order, cheapest_order
from autosched.tracing.rewriting.contractions.reading import Known, known_of, sum_of_products
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.rule import Match
from autosched.tracing.values.values import Pointwise, Reduced, Value


@dataclass(frozen=True, eq=False)
class _Plan:
    """Monomials with an order each. `cost`: of all, and of what was made of their factors before."""

    cost: float
    monomials: tuple[Monomial, ...]
    orders: tuple[tuple[Factors, Order], ...]


def cheaper_forms(equalities: Equalities, folded: bool) -> Iterator[Match]:
    """The sums of products that have a cheaper form; `folded`: by multiplying and adding constants beforehand."""
    known = known_of(equalities)
    for value in equalities.terms():
        # What was rewritten already has a newer form, which may be rewritten again; views and scales are as what they
        # are of.
        if len(value.operands) < 2 - isinstance(value, Reduced) or not known.is_sum(value):
            continue
        if equalities.forms(value)[-1] is not value:
            continue
        found = sum_of_products(known, value)
        if found is not None and _may_be_cheaper(known, found, folded):
            plan = _cheapest(known, found, folded)
            if plan.cost < WORTHWHILE * found.cost:
                yield Match(((value, _built(found, plan)),))


def _may_be_cheaper(known: Known, found: SumOfProducts, folded: bool) -> bool:
    if len(found.monomials) == 1 and isinstance(found.result, Pointwise):
        # A scale of the product below, which is one of its own.
        return False
    constants = [f for m in found.monomials for f in m.factors if known.is_constant(f.value)]
    return found.contractions > 1 and (len(constants) > 1 or not folded)


def _cheapest(known: Known, found: SumOfProducts, folded: bool) -> _Plan:
    builder = Builder(found)
    plans = [_ordered(known, found, found.monomials, folded)]
    if folded:
        combined = tuple(_with_constants_combined(known, builder, m) for m in found.monomials)
        plans.append(_factored(known, builder, combined, folded))
    elif len(found.monomials) > 1:
        plans.append(_factored(known, builder, found.monomials, folded))
    return min(plans, key=lambda plan: plan.cost)


def _ordered(
    known: Known, found: SumOfProducts, monomials: Sequence[Monomial], folded: bool, cost: float = 0.0
) -> _Plan:
    orders = [(factors := _factors(known, found, m, folded), cheapest_order(factors)) for m in monomials if m.factors]
    return _Plan(cost + sum(order[0] for _, order in orders), tuple(monomials), tuple(orders))


def _factors(known: Known, found: SumOfProducts, monomial: Monomial, folded: bool) -> Factors:
    return Factors(
        loops=tuple(frozenset(found.loops_of(f)) for f in monomial.factors),
        kept=frozenset(found.kept),
        constant=tuple(known.is_constant(f.value) for f in monomial.factors),
        narrow=_is_narrow(monomial.factors),
        extents=found.loops,
        folded=folded,
    )


def _is_narrow(factors: Sequence[Factor]) -> bool:
    return any(f.value.dtype != "float32" for f in factors)


def _built(found: SumOfProducts, plan: _Plan) -> Value:
    builder, orders = Builder(found), iter(plan.orders)
    tensors: list[Tensor | None] = []
    for monomial in plan.monomials:
        if monomial.factors:
            factors, (_, tree) = next(orders)
            tensors.append(builder.monomial(monomial, factors, tree))
        else:
            tensors.append(None)
    return builder.total(tensors, [m.coefficient for m in plan.monomials])


def _with_constants_combined(known: Known, builder: Builder, monomial: Monomial) -> Monomial:
    """The monomial with the product of its constants as one factor."""
    whole = _factors(known, builder.of, monomial, folded=True)
    numbers = [n for n, fixed in enumerate(whole.constant) if fixed]
    if len(numbers) < 2:
        return monomial
    left = whole.remaining(sum(1 << n for n in numbers))
    constants = Monomial(tuple(monomial.factors[n] for n in numbers))
    inner = Factors(tuple(whole.loops[n] for n in numbers), left, (False,) * len(numbers), whole.narrow, whole.extents)
    made = builder.monomial(constants, inner, cheapest_order(inner)[1])
    assert made is not None
    rest = [f for n, f in enumerate(monomial.factors) if n not in numbers]
    return Monomial((*rest, builder.factor(made)), monomial.coefficient)


@dataclass(frozen=True, eq=False)
class _Term:
    """A monomial of two factors: `common`, which others may have as well, and the `rest`."""

    monomial: Monomial
    common: Factor
    rest: Factor


def _factored(known: Known, builder: Builder, monomials: Sequence[Monomial], folded: bool) -> _Plan:
    """A·B + A·C as A·(B + C), the factor that most monomials have first."""
    groups: dict[Hashable, list[_Term]] = defaultdict(list)
    for monomial in monomials:
        if len(monomial.factors) == 2:
            for common, rest in (monomial.factors, monomial.factors[::-1]):
                groups[_key(known.equalities, builder.of, common, rest)].append(_Term(monomial, common, rest))
    left, made, cost = list(monomials), list[Monomial](), 0.0
    for terms in sorted(groups.values(), key=len, reverse=True):
        here = [t for t in terms if t.monomial in left]
        constant = all(known.is_constant(t.rest.value) for t in here)
        if len(here) > 1 and constant <= folded:
            left = [m for m in left if all(m is not t.monomial for t in here)]
            made.append(_with_sum(builder, here))
            if not constant:
                elements = here[0].rest.value.elements
                cost += sum_cost(elements * len(here), elements, _is_narrow([t.rest for t in here]))
    return _ordered(known, builder.of, [*made, *left], folded, cost)


def _key(equalities: Equalities, found: SumOfProducts, common: Factor, rest: Factor) -> Hashable:
    """Equal where the common factors are, and the rests have the same loops; summed loops by their place in common."""
    own = found.loops_of(common)
    names = {loop: ("summed", n) for n, loop in enumerate(own) if loop not in found.kept}
    loops, others = ([names.get(loop, loop) for loop in found.loops_of(f)] for f in (common, rest))
    number = equalities.number(common.value) if common.value in equalities else id(common.value)
    return number, tuple(loops), frozenset(others)


def _with_sum(builder: Builder, terms: Sequence[_Term]) -> Monomial:
    """The common factor times the sum of the rests."""
    first = terms[0]
    tensors = []
    for term in terms:
        rest = builder.tensor(term.rest)
        same = dict(zip(builder.of.loops_of(term.common), builder.of.loops_of(first.common), strict=True))
        tensors.append(Tensor(rest.value, tuple(same.get(loop, loop) for loop in rest.loops)))
    total = builder.sum_of(tensors, [t.monomial.coefficient for t in terms], first.rest.value.name)
    return Monomial((first.common, builder.factor(total)))
