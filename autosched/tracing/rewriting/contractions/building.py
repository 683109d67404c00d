"""Values built of sums of products in a chosen order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, converted, reshape
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.rewriting.contractions.loops import Factor, Monomial, SumOfProducts
from autosched.tracing.rewriting.contractions.ordering import Factors, Tree, cheapest_order, members_of
from autosched.tracing.values.conversions import rounded
from autosched.tracing.values.values import Value, View
from autosched.tracing.values.views import Expansion
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value with a dimension for each of these loops. `made`: it is a float32 sum, which PyTorch would round."""

    value: Value
    loops: tuple[int, ...]
    made: bool = False


@dataclass(frozen=True, eq=False)
class Builder:
    """Values of one sum of products."""

    of: SumOfProducts

    def result(self, name: str, loops: Sequence[int], dtype: str = "float32") -> Result:
        shape = tuple(self.of.loops.extent([loop]) for loop in loops)
        original = self.of.result
        return Result(f"{original.name}_{name}", shape, dtype, original.line, precision=self.of.precision)

    def tensor(self, factor: Factor) -> Tensor:
        loops = self.of.loops_of(factor)
        shape = tuple(self.of.loops.extent([loop]) for loop in loops)
        return Tensor(reshaped(factor.value, shape), loops)

    def monomial(self, monomial: Monomial, factors: Factors, tree: Tree) -> Tensor | None:
        """The product of the factors; None where there are none."""
        return self._tree([self.tensor(f) for f in monomial.factors], factors, tree) if monomial.factors else None

    def in_any_order(self, monomial: Monomial) -> Tensor | None:
        """The product of factors whose constants are like others."""
        loops = tuple(frozenset(self.of.loops_of(f)) for f in monomial.factors)
        narrow = any(f.value.dtype != "float32" for f in monomial.factors)
        factors = Factors(loops, frozenset(self.of.kept), (False,) * len(loops), narrow, self.of.loops)
        return self.monomial(monomial, factors, cheapest_order(factors)[1]) if loops else None

    def _tree(self, tensors: Sequence[Tensor], factors: Factors, tree: Tree) -> Tensor:
        kept = factors.remaining(sum(1 << n for n in members_of(tree)))
        if isinstance(tree, int):
            return self._summed(tensors[tree], kept, f"factor_{tree}")
        a, b = (self._tree(tensors, factors, part) for part in tree)
        return self.product(a, b, kept, "_".join(map(str, sorted(members_of(tree)))))

    def product(self, a: Tensor, b: Tensor, kept: frozenset[int], name: str) -> Tensor:
        """The product of two tensors, summed over the loops that are not `kept`."""
        loops = self.in_order({*a.loops, *b.loops} & kept)
        summed = tuple(sorted({*a.loops, *b.loops} - kept))
        own_a, own_b = ([loop for loop in loops if loop not in other.loops] for other in (b, a))
        if own_a and own_b and loops.index(own_b[0]) < loops.index(own_a[0]):
            a, b = b, a
        if not (own_a and own_b and summed):
            whole = self.result(f"terms_{name}", (*loops, *summed))
            terms = whole.elementwise(ex.mul, *(self.along(t, (*loops, *summed)) for t in (a, b)))
            return self._summed(Tensor(terms, (*loops, *summed), made=a.made or b.made), kept, name)
        numbers = {loop: n for n, loop in enumerate((*loops, *summed))}
        result = self.result(name, loops)
        values = self._alike(a, b)
        own = [tuple(numbers[loop] for loop in t.loops) for t in (a, b)]
        return Tensor(product(result, *values, result.shape, *own), loops, made=True)

    def _alike(self, a: Tensor, b: Tensor) -> tuple[Value, Value]:
        """The operands of a product in one element type: that to which PyTorch rounds what products give."""
        dtypes = {t.value.dtype for t in (a, b) if not t.made}
        dtype = self.of.narrow if self.of.narrow and dtypes <= {self.of.narrow} else "float32"
        if len(dtypes) == 1 and not (a.made or b.made):
            return a.value, b.value
        return converted(a.value, dtype), converted(b.value, dtype)

    def _summed(self, tensor: Tensor, kept: frozenset[int], name: str) -> Tensor:
        dims = [d for d, loop in enumerate(tensor.loops) if loop not in kept]
        if not dims:
            return tensor
        loops = tuple(loop for loop in tensor.loops if loop in kept)
        return Tensor(self.result(f"sum_{name}", loops).reduced("sum", tensor.value, dims), loops, made=True)

    def factor(self, tensor: Tensor) -> Factor:
        """A tensor as a factor, rounded as PyTorch would."""
        dtype = self.of.narrow if tensor.made and self.of.narrow else tensor.value.dtype
        return Factor(converted(tensor.value, dtype), tuple((loop,) for loop in tensor.loops))

    def in_order(self, loops: set[int]) -> tuple[int, ...]:
        """Loops of the result first, in its order."""
        kept = self.of.kept
        return tuple(sorted(loops, key=lambda loop: (kept.index(loop) if loop in kept else len(kept), loop)))

    def sum_of(self, tensors: Sequence[Tensor], coefficients: Sequence[float], name: str) -> Tensor:
        """The sum of tensors with the same loops times these numbers, rounded as PyTorch rounds what it adds."""
        loops = tensors[0].loops
        dtypes = {t.value.dtype for t in tensors}
        dtype = self.of.narrow if dtypes == {self.of.narrow} else "float32"
        values = [self.along(t, loops) for t in tensors]
        result = self.result(f"sum_{name}", loops, dtype)
        made = result.elementwise(lambda *xs: rounded(_linear(xs, coefficients, 0), dtype), *values)
        return Tensor(made, loops)

    def along(self, tensor: Tensor, loops: Sequence[int]) -> Value:
        """The tensor with a dimension for each of these loops, of size 1 for those that it does not have."""
        order = sorted(range(len(tensor.loops)), key=lambda d: loops.index(tensor.loops[d]))
        ordered = tensor.value
        if order != list(range(len(order))):
            result = self.result(f"{tensor.value.name}_ordered", [tensor.loops[d] for d in order], tensor.value.dtype)
            ordered = permute(result, tensor.value, order)
        return reshaped(ordered, tuple(self.of.loops.extent([n]) if n in tensor.loops else 1 for n in loops))

    def total(self, tensors: Sequence[Tensor | None], coefficients: Sequence[float]) -> Value:
        """The sum of the tensors times these numbers in the place of the result; None is 1."""
        kept, original = self.of.kept, self.of.result
        values = [self.along(t, kept) for t in tensors if t is not None]
        number = sum(c for t, c in zip(tensors, coefficients, strict=True) if t is None)
        factors = [c for t, c in zip(tensors, coefficients, strict=True) if t is not None]
        result = self.result("total", kept, original.dtype)
        if [*factors, number] == [1.0, 0] and values[0].dtype == original.dtype:
            made = values[0]
        else:
            made = result.elementwise(lambda *xs: rounded(_linear(xs, factors, number), original.dtype), *values)
        if made.shape != result.shape:
            made = View(
                name=f"{made.name}_whole",
                shape=result.shape,
                dtype=made.dtype,
                line=made.line,
                argument=made,
                kind=Expansion(made.shape, result.shape),
            )
        return reshaped(made, original.shape)


def _linear(elements: Sequence[Expression], factors: Sequence[float], number: float) -> Expression:
    terms = [e if c == 1 else ex.mul(e, Literal(c)) for e, c in zip(elements, factors, strict=True)]
    if number or not terms:
        terms.append(Literal(number))
    made = terms[0]
    for term in terms[1:]:
        made = ex.add(made, term)
    return made


def reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.shape == shape else reshape(value, shape)
