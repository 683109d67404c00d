"""Sums of products of two tensors with what libraries compute in the same call: added tensors, and relu."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from search_spaces import Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal
from search_spaces.workloads.expressions.walking import variables

# Element types of operands and results that libraries multiply as workloads do, accumulating in float32.
_MULTIPLIED = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class SumOfProducts:
    """out[axes] = relu(sum over the reduced axes of a · b + addends), with the relu only where `relu` says so."""

    workload: Workload
    a: Access
    b: Access
    addends: tuple[Access, ...]
    relu: bool

    @staticmethod
    def of(workload: Workload) -> SumOfProducts | None:
        """The workload as such a sum of one element type, or None."""
        first, *rest = workload.stages
        match first.expression:
            case Apply("mul", (Access() as a, Access() as b)):
                pass
            case _:
                return None
        if first.reduction is None or first.reduction.operator != "sum" or first.scan or len(rest) > 1:
            return None
        types = {t.dtype for t in (*workload.inputs, *workload.outputs)}
        if len(types) > 1 or not types <= {*_MULTIPLIED} or workload.output_names != (workload.stages[-1].name,):
            return None
        if not rest:
            return SumOfProducts(workload, a, b, (), relu=False)
        (last,), own = rest, Access(first.name, tuple(axis_index(x.name) for x in first.axes))
        if not last.is_pointwise or last.axes != first.axes:
            return None
        before = _before_relu(last.expression, last.dtype)
        terms = _terms(last.expression if before is None else before, last.dtype)
        addends = tuple(t for t in terms if isinstance(t, Access) and t != own)
        inputs = {t.name for t in workload.inputs}
        if (
            terms.count(own) != 1
            or len(addends) != len(terms) - 1
            or not all(x.tensor in inputs and x.fill is None for x in addends)
        ):
            return None
        return SumOfProducts(workload, a, b, addends, before is not None)

    @cached_property
    def extents(self) -> Mapping[str, int]:
        return {axis.name: axis.extent for axis in self.workload.stages[0].loops}

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of the output that have several positions."""
        return tuple(x.name for x in self.workload.stages[0].axes if x.extent > 1)

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """The reduced axes that have several positions."""
        reduction = self.workload.stages[0].reduction
        assert reduction is not None
        return tuple(x.name for x in reduction.axes if x.extent > 1)

    def only_in(self, one: Access, other: Access) -> list[str]:
        """The axes of the output along which only the first of two reads moves."""
        return [x for x in self.axes if x in variables(one) and x not in variables(other)]

    def moving(self, index: Affine) -> Affine:
        """An index by the axes that have several positions."""
        return Affine(tuple((v, step) for v, step in index.terms if self.extents[v] > 1), index.offset)

    @cached_property
    def in_both(self) -> list[str]:
        """The axes of the output along which both factors move."""
        return [x for x in self.axes if x in variables(self.a) & variables(self.b)]

    @cached_property
    def is_whole(self) -> bool:
        """True if every axis of the output is one of the factors', and both are summed along all reduced axes."""
        read = variables(self.a), variables(self.b)
        return {*self.axes} <= read[0] | read[1] and {*self.reduced} <= read[0] & read[1]


def _before_relu(expression: Expression, dtype: str) -> Expression | None:
    """The argument of a relu, or None."""
    match _unrounded(expression, dtype):
        case Apply("maximum", (inner, Literal(0.0)) | (Literal(0.0), inner)):
            return inner
        case _:
            return None


def _unrounded(expression: Expression, dtype: str) -> Expression:
    """The expression before it is rounded to the type in which it is stored."""
    match expression:
        case Apply(operator, (inner,)) if operator == f"round_{dtype}":
            return inner
        case _:
            return expression


def _terms(expression: Expression, dtype: str) -> list[Expression]:
    """The terms of a sum. One call rounds it once, where PyTorch's several round after every term."""
    match _unrounded(expression, dtype):
        case Apply("add", (first, second)):
            return [*_terms(first, dtype), *_terms(second, dtype)]
        case term:
            return [term]
