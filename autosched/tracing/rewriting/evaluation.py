"""Values computed by PyTorch from tensors for their leaves, in an arithmetic that the caller chooses."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from autosched.checking.operations import OPERATIONS, overflowed
from autosched.machine.element_types import torch_dtype
from autosched.tracing.fusion.regions import below
from autosched.tracing.values.values import (
    Arange,
    Gathered,
    InParts,
    Joined,
    Padded,
    Pointwise,
    Prepared,
    Product,
    Reduced,
    Value,
    View,
)
from autosched.tracing.values.views import Slicing
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.operators import ROUNDINGS


class NotEvaluatedError(Exception):
    """A value is of a kind that is not evaluated: a scan, or a call of PyTorch."""


class Arithmetic(Protocol):
    """Numbers as tensors, and operators on them."""

    def numbers(self, tensor: Tensor) -> Tensor:
        """The elements of a tensor as numbers."""

    def number(self, value: float | int) -> Tensor:
        """A constant."""

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        """An operator of expressions, or "sum", "max", "min", "prod" of two."""

    def fold(self, operator: str, x: Tensor, dims: Sequence[int]) -> Tensor:
        """A reduction over dimensions, which are dropped."""

    def sum_of_products(self, a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
        """The same of the product of two tensors that are broadcast."""


class Reals:
    """float64, and integers of 64 bits; nothing is rounded on the way."""

    def numbers(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.float64 if tensor.is_floating_point() or tensor.dtype is torch.bool else torch.int64)

    def number(self, value: float | int) -> Tensor:
        return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        if operator in ROUNDINGS:
            return overflowed(arguments[0], ROUNDINGS[operator])
        return OPERATIONS[operator](*arguments)

    def fold(self, operator: str, x: Tensor, dims: Sequence[int]) -> Tensor:
        if operator == "sum":
            return x.sum(tuple(dims)) if dims else x
        folds = {"max": torch.amax, "min": torch.amin}
        if operator in folds:
            return folds[operator](x, tuple(dims))
        return functools.reduce(lambda y, d: y.prod(d), sorted(dims, reverse=True), x)

    def sum_of_products(self, a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
        loops = range(a.ndim)
        # Matrix products of PyTorch, which store no terms.
        return torch.einsum(a, [*loops], b, [*loops], [n for n in loops if n not in dims])


def evaluated(
    results: Sequence[Value], tensors: Mapping[Value, Tensor], arithmetic: Arithmetic | None = None
) -> list[Tensor]:
    """The elements of the results as numbers; `tensors`: those of the leaves below them, or of other values.

    Raises:
        NotEvaluatedError: one of the values below cannot be evaluated.
    """
    numbers = arithmetic or Reals()
    known = {leaf: numbers.numbers(tensor) for leaf, tensor in tensors.items()}
    for value in [*below(results, dict(known))]:
        known[value] = _evaluated(value, known, numbers)
    return [known[r] for r in results]


def prepared(value: Prepared, tensors: Sequence[Tensor]) -> Tensor:
    """The memory of a prepared value, from that of its constants."""
    (made,) = evaluated([value.argument], dict(zip(value.constants, tensors, strict=True)))
    memory = torch.empty_strided(
        value.shape, value.memory_strides, dtype=torch_dtype(value.dtype), device=tensors[0].device
    )
    return memory.copy_(made)


def _evaluated(value: Value, known: Mapping[Value, Tensor], numbers: Arithmetic) -> Tensor:
    match value:
        case Pointwise(arguments=arguments, expression=expression):
            return _expression(expression, [known[a] for a in arguments], numbers).expand(value.shape)
        case Arange(start=start, step=step):
            return numbers.numbers(start + step * torch.arange(value.shape[0]))
        case Reduced(operator=operator, argument=argument, dims=dims):
            return numbers.fold(operator, known[argument], dims)
        case Product():
            return _product(value, known, numbers)
        case View(argument=argument):
            return _view(value, known[argument])
        case Padded(argument=argument, before=before, fill=fill):
            made = _expression(fill, [], numbers).expand(value.shape).clone()
            sizes = [min(n, size - b) for n, size, b in zip(argument.shape, value.shape, before, strict=True)]
            inner = known[argument][tuple(slice(n) for n in sizes)]
            made[tuple(slice(b, b + n) for b, n in zip(before, sizes, strict=True))] = inner
            return made
        case Joined(parts=parts, dim=dim):
            return torch.cat([known[p] for p in parts], dim)
        case InParts(parts=parts, begins=begins, steps=steps):
            whole = torch.empty(value.shape, dtype=known[parts[0]].dtype)
            for part, begin in zip(parts, begins, strict=True):
                place = (slice(b, b + s * (n - 1) + 1, s) for b, s, n in zip(begin, steps, part.shape, strict=True))
                whole[tuple(place)] = known[part]
            return whole
        case Gathered(table=table, index=index):
            rank = len(value.shape)
            line = (_along(torch.arange(value.shape[i]), i, rank) if isinstance(i, int) else known[i] for i in index)
            return known[table][tuple(i.to(torch.int64).expand(value.shape) for i in line)]
        case Prepared(argument=argument):
            return evaluated([argument], {c: known[c] for c in value.constants}, numbers)[0]
        case _:
            raise NotEvaluatedError(f"{value.name} is a {type(value).__name__}")


def _along(line: Tensor, dim: int, rank: int) -> Tensor:
    return line.reshape([-1 if d == dim else 1 for d in range(rank)])


def _view(value: View, argument: Tensor) -> Tensor:
    match value.kind:
        case Slicing(dim=dim, start=start, step=step, count=count):
            return argument.index_select(dim, (start + step * torch.arange(count)).to(argument.device))
        case kind:
            return kind.apply(argument.contiguous())


def _product(value: Product, known: Mapping[Value, Tensor], numbers: Arithmetic) -> Tensor:
    rank = len(value.shape)
    loops = rank + len(value.summed)
    factors = []
    for operand, own in ((value.a, value.a_loops), (value.b, value.b_loops)):
        order = sorted(range(len(own)), key=own.__getitem__)
        sizes = dict(zip(own, operand.shape, strict=True))
        factors.append(known[operand].permute(order).reshape([sizes.get(n, 1) for n in range(loops)]))
    return numbers.sum_of_products(factors[0], factors[1], range(rank, loops))


def _expression(expression: Expression, elements: Sequence[Tensor], numbers: Arithmetic) -> Tensor:
    match expression:
        case Access(number, ()):
            return elements[int(number)]
        case Literal(value) | Integer(value):
            return numbers.number(value)
        case Apply(name, arguments):
            return numbers.apply(name, [_expression(a, elements, numbers) for a in arguments])
    raise NotEvaluatedError(f"{expression} in an expression of elements")
