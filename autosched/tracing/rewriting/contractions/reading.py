"""Values read as sums of products of tensors.

((x @ w.T + b).view(2, 4, 8)).sum(-1)   →   sum over n, k of x[m, k] w[n, k]   +   sum over n of b[n]

Views are indices, and roundings to 16 bits are looked through. What is none of sums, differences, products and scales
is a factor, and so is what another value reads, as it is computed anyway.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from autosched.tracing.rewriting.contractions.costs import contraction_cost, sum_cost
from autosched.tracing.rewriting.contractions.loops import (
    Factor,
    LoopCutError,
    LoopIndex,
    Loops,
    Monomial,
    SumOfProducts,
)
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.terms import is_constant, takes_other_operands
from autosched.tracing.values.values import MOST_JOINED, Pointwise, Product, Reduced, Value, View
from autosched.tracing.values.views import Expansion, Permutation, Reshape
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.operators import ROUNDINGS

_FACTORS = ("float32", "float16", "bfloat16")
# The orders of n factors are found in 3^n steps.
_MOST_FACTORS = 6
# As many as one kernel concatenates.
_MOST_MONOMIALS = MOST_JOINED
# Values between a result and its factors: beyond, what is found is too long for one kernel or another anyway.
_DEEPEST = 24


class _NoSumOfProductsError(Exception):
    """A value is no sum of products."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Part of a value that was read."""

    monomials: tuple[Monomial, ...]
    cost: float = 0.0
    contractions: int = 0


@dataclass(frozen=True, eq=False)
class Known:
    """Terms, and the numbers of their classes: `constants`, and `sums`, which are computed from sums of products by
    views and by what products and sums are made of. `readers`: terms that read a class; `results`: returned ones.
    """

    equalities: Equalities
    results: Set[int]
    readers: Mapping[int, Sequence[Value]]
    sums: Set[int]
    constants: Set[int]

    def is_sum(self, value: Value) -> bool:
        return self.equalities.number(value) in self.sums

    def is_constant(self, value: Value) -> bool:
        """True for constants, also for such as were just made."""
        if value in self.equalities:
            return self.equalities.number(value) in self.constants
        return is_constant(value)

    def is_shared(self, value: Value) -> bool:
        number = self.equalities.number(value)
        return number in self.results or len(self.readers.get(number, ())) > 1


def known_of(equalities: Equalities) -> Known:
    sums, constants = set[int](), set[int]()
    for value in equalities.terms():
        operands = {equalities.number(operand) for operand in value.operands}
        is_sum = isinstance(value, Product) or (isinstance(value, Reduced) and value.operator == "sum")
        if is_sum or (_is_read_through(value) and operands & sums):
            sums.add(equalities.number(value))
        if value.constant or (operands and operands <= constants and takes_other_operands(value)):
            constants.add(equalities.number(value))
    return Known(equalities, equalities.results, equalities.readers(), sums, constants)


def _is_read_through(value: Value) -> bool:
    match value:
        case View():
            return True
        case Pointwise(expression=expression):
            return value.dtype in _FACTORS and _is_polynomial(expression)
        case _:
            return False


def _is_polynomial(expression: Expression) -> bool:
    match expression:
        case Access(_, ()) | Literal() | Integer():
            return True
        case Apply("add" | "sub" | "mul" | "div" | "neg", arguments):
            return all(map(_is_polynomial, arguments))
        case Apply(operator, (x,)) if operator in ROUNDINGS:
            return _is_polynomial(x)
        case _:
            return False


def sum_of_products(known: Known, result: Value) -> SumOfProducts | None:
    """A result as a sum of products; None if it is none, or has no elements."""
    reader = _Reader(known, result.dtype)
    index = tuple(reader.loops.new(n) for n in result.shape)
    if not result.elements:
        return None
    try:
        part = reader.inside(result, index, 0)
    except (_NoSumOfProductsError, LoopCutError):
        return None
    if len(reader.precisions) > 1 or len(reader.narrow) > 1:
        return None
    return SumOfProducts(
        result=result,
        loops=reader.loops,
        index=index,
        monomials=part.monomials,
        cost=part.cost,
        contractions=part.contractions,
        narrow=next(iter(reader.narrow), ""),
        precision=next(iter(reader.precisions), "ieee"),
    )


@dataclass(eq=False)
class _Reader:
    """`narrow`: the types to which sums within the result are rounded; `precisions`: of products of float32."""

    known: Known
    dtype: str
    loops: Loops = field(default_factory=Loops)
    narrow: set[str] = field(default_factory=set)
    precisions: set[str] = field(default_factory=set)

    def read(self, value: Value, index: LoopIndex, depth: int) -> _Part:
        """The value as a sum of products; a factor at worst."""
        known = self.known
        if not known.is_shared(value) or not known.is_sum(value) or known.is_constant(value):
            try:
                return self.inside(value, index, depth)
            except (_NoSumOfProductsError, LoopCutError):
                pass
        if value.dtype not in _FACTORS:
            raise _NoSumOfProductsError
        return _Part((Monomial((Factor(value, index),)),))

    def inside(self, value: Value, index: LoopIndex, depth: int) -> _Part:
        if depth > _DEEPEST:
            raise _NoSumOfProductsError
        match value:
            case View(argument=argument, kind=kind):
                return self.read(argument, self._through(kind, index, argument.shape), depth + 1)
            case Product():
                return self._product(value, index, depth)
            case Reduced(operator="sum", argument=argument, dims=dims) if value.dtype == "float32":
                return self._sum(argument, index, dims, depth)
            case Pointwise(arguments=arguments, expression=expression) if _is_read_through(value):
                return self._expression(
                    expression, lambda n: self.read(arguments[n], _broadcast(index, arguments[n].shape), depth + 1)
                )
            case _:
                raise _NoSumOfProductsError

    def _through(self, kind: object, index: LoopIndex, source: Sequence[int]) -> LoopIndex:
        match kind:
            case Permutation(order=order):
                given = dict(zip(order, index, strict=True))
                return tuple(given[d] for d in range(len(order)))
            case Expansion():
                return _broadcast(index, source)
            case Reshape():
                return self.loops.regrouped(index, source)
            case _:
                raise _NoSumOfProductsError

    def _product(self, value: Product, index: LoopIndex, depth: int) -> _Part:
        along = [*index, *(self.loops.new(n) for n in value.summed)]
        if value.precision:
            self.precisions.add(value.precision)
        parts = [
            self._factor(operand, tuple(along[n] for n in own), depth)
            for operand, own in ((value.a, value.a_loops), (value.b, value.b_loops))
        ]
        made = self._times(*parts)
        made = replace(
            made, monomials=tuple(self._summed(m, self._set(along) - self._set(index)) for m in made.monomials)
        )
        a, b = (self._set(along[n] for n in own) for own in (value.a_loops, value.b_loops))
        cost = contraction_cost(a, b, self._set(index), value.a.dtype != "float32", self.loops.extent)
        return replace(made, cost=made.cost + cost, contractions=made.contractions + 1)

    def _factor(self, value: Value, index: LoopIndex, depth: int) -> _Part:
        """An operand of a product: one monomial, as products are not multiplied out."""
        part = self.read(value, index, depth + 1)
        return part if len(part.monomials) == 1 else _Part((Monomial((Factor(value, index),)),))

    def _sum(self, argument: Value, index: LoopIndex, dims: Sequence[int], depth: int) -> _Part:
        rest = iter(index)
        inner = tuple(self.loops.new(n) if d in dims else next(rest) for d, n in enumerate(argument.shape))
        part = self.read(argument, inner, depth + 1)
        over = self._set(inner) - self._set(index)
        monomials = tuple(self._summed(m, over) for m in part.monomials)
        read = argument.elements if part.contractions else sum(self.loops.extent(self._read(m)) for m in monomials)
        written = self.loops.extent(self._set(index))
        cost = sum_cost(read, written, argument.dtype != "float32" or self.dtype != "float32")
        return _Part(monomials, part.cost + cost, part.contractions + 1)

    def _summed(self, monomial: Monomial, over: frozenset[int]) -> Monomial:
        """A sum of equal elements as one of them times their number."""
        times = self.loops.extent(over - self._read(monomial))
        return replace(monomial, coefficient=monomial.coefficient * times)

    def _read(self, monomial: Monomial) -> frozenset[int]:
        return self._set(itertools.chain.from_iterable(f.index for f in monomial.factors))

    def _set(self, index: Iterable[tuple[int, ...]]) -> frozenset[int]:
        return frozenset(loop for loops in index for loop in self.loops.flat(loops))

    def _times(self, a: _Part, b: _Part) -> _Part:
        if len(a.monomials) > 1 and len(b.monomials) > 1:
            raise _NoSumOfProductsError
        made = [
            Monomial((*x.factors, *y.factors), x.coefficient * y.coefficient) for x in a.monomials for y in b.monomials
        ]
        if any(len(m.factors) > _MOST_FACTORS for m in made):
            raise _NoSumOfProductsError
        return _Part(tuple(made), a.cost + b.cost, a.contractions + b.contractions)

    def _expression(self, expression: Expression, argument: Callable[[int], _Part]) -> _Part:
        match expression:
            case Access(number, ()):
                return argument(int(number))
            case Literal(number) | Integer(number):
                return _Part((Monomial((), float(number)),))
            case Apply("add" | "sub" as operator, (x, y)):
                first, second = self._expression(x, argument), self._expression(y, argument)
                return _plus(first, _scaled(second, 1.0 if operator == "add" else -1.0))
            case Apply("neg", (x,)):
                return _scaled(self._expression(x, argument), -1.0)
            case Apply("mul", (x, y)):
                return self._product_of_elements(self._expression(x, argument), self._expression(y, argument))
            case Apply("div", (x, Literal(number) | Integer(number))) if number:
                return _scaled(self._expression(x, argument), 1.0 / number)
            case Apply(operator, (x,)) if operator in ROUNDINGS and ROUNDINGS[operator] in _FACTORS:
                part = self._expression(x, argument)
                if part.contractions:
                    self.narrow.add(ROUNDINGS[operator])
                return part
            case _:
                raise _NoSumOfProductsError

    def _product_of_elements(self, a: _Part, b: _Part) -> _Part:
        """A scale of all monomials, or a product of two."""
        for one, other in ((a, b), (b, a)):
            if len(one.monomials) == 1 and not one.monomials[0].factors:
                return _scaled(other, one.monomials[0].coefficient)
        if len(a.monomials) > 1 or len(b.monomials) > 1:
            raise _NoSumOfProductsError
        return self._times(a, b)


def _broadcast(index: LoopIndex, shape: Sequence[int]) -> LoopIndex:
    """The index of a tensor of this shape, for an index of its broadcast."""
    ours = index[len(index) - len(shape) :]
    return tuple(() if size == 1 else loops for loops, size in zip(ours, shape, strict=True))


def _scaled(part: _Part, number: float) -> _Part:
    return replace(part, monomials=tuple(replace(m, coefficient=m.coefficient * number) for m in part.monomials))


def _plus(a: _Part, b: _Part) -> _Part:
    if len(a.monomials) + len(b.monomials) > _MOST_MONOMIALS:
        raise _NoSumOfProductsError
    return _Part((*a.monomials, *b.monomials), a.cost + b.cost, a.contractions + b.contractions)
