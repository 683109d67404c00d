"""Values computed by PyTorch from tensors for their leaves, in an arithmetic that the caller chooses."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    Segments,
    Value,
    View,
)
from autosched.tracing.values.views import Placement, Slicing
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.operators import ROUNDINGS


class NotEvaluatedError(Exception):
    """A value is of a kind that is not evaluated: a scan, or a call of PyTorch."""


class Arithmetic(Protocol):
    """Numbers as tensors, and operators on them."""

    def numbers(self, tensor: Tensor) -> Tensor:
        """The elements of a tensor as numbers."""

    def number(self, value: float | int, device: torch.device) -> Tensor:
        """A constant."""

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        """An operator of expressions, or "sum", "max", "min", "prod" of two."""

    def fold(self, operator: str, x: Tensor, dims: Sequence[int]) -> Tensor:
        """A reduction over dimensions, which are dropped."""

    def sum_of_products(self, a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
        """The same of the product of two tensors that are broadcast."""


@dataclass(frozen=True)
class Reals:
    """float64, and integers of 64 bits. `rounded`: to narrower types where the values say so, else nowhere."""

    rounded: bool = False

    def numbers(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.float64 if tensor.is_floating_point() or tensor.dtype is torch.bool else torch.int64)

    def number(self, value: float | int, device: torch.device) -> Tensor:
        # Filled on the device: while a CUDA graph is captured, nothing may be copied to it.
        return torch.full((), value, dtype=torch.int64 if isinstance(value, int) else torch.float64, device=device)

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        if operator == "to_float":
            return arguments[0].to(torch.float64)
        if operator in ROUNDINGS and not self.rounded:
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
    return [numbers.numbers(x) for x in _evaluated(results, tensors, numbers)]


def prepared(value: Prepared, tensors: Sequence[Tensor]) -> Tensor:
    """The memory of a prepared value, from that of its constants."""
    given = dict(zip(value.constants, tensors, strict=True))
    (made,) = _evaluated([value.argument], given, Reals(rounded=True))
    memory = torch.empty_strided(
        value.shape, value.memory_strides, dtype=torch_dtype(value.dtype), device=tensors[0].device
    )
    return memory.copy_(made)


def _evaluated(results: Sequence[Value], tensors: Mapping[Value, Tensor], numbers: Arithmetic) -> list[Tensor]:
    """The elements of the results, as numbers or in their own types.

    Tensors become numbers where something is computed of them: those that are only moved take no more memory then.
    """
    device = next((t.device for t in tensors.values()), torch.device("cpu"))
    # PyTorch moves few types of one byte.
    known = {v: t if t.itemsize > 1 else numbers.numbers(t) for v, t in tensors.items()}
    evaluation = _Evaluation(numbers, device, known)
    values = list(below(results, known))
    readers = Counter(o for v in values for o in set(v.operands))
    readers.update(results)
    for value in values:
        evaluation.add(value)
        for operand in set(value.operands):
            readers[operand] -= 1
            if not readers[operand]:
                del known[operand]
    return [known[r] for r in results]


@dataclass(frozen=True)
class _Evaluation:
    """The values that are `known`, as numbers or as they lie in memory."""

    numbers: Arithmetic
    device: torch.device
    known: dict[Value, Tensor]

    def numbers_of(self, value: Value) -> Tensor:
        return self.numbers.numbers(self.known[value])

    def add(self, value: Value) -> None:
        if value not in self.known:
            self.known[value] = self._evaluated(value)

    def _evaluated(self, value: Value) -> Tensor:
        match value:
            case Pointwise(arguments=arguments, expression=expression):
                return self._expression(expression, [self.numbers_of(a) for a in arguments]).expand(value.shape)
            case Arange(start=start, step=step):
                return self.numbers.numbers(start + step * self._positions(value.shape[0]))
            case Reduced(operator=operator, argument=argument, dims=dims):
                return self.numbers.fold(operator, self.numbers_of(argument), dims)
            case Product():
                return self._product(value)
            case View():
                return self._view(value)
            case Padded():
                return self._padded(value)
            case Joined(parts=parts, dim=dim):
                return torch.cat([self.known[p] for p in parts], dim)
            case InParts():
                return self._in_parts(value)
            case Gathered():
                return self._gathered(value)
            case Segments(ends=ends, position=position):
                return self._segments(self.known[ends], self.known[position])
            case Prepared(argument=argument, constants=constants):
                return evaluated([argument], {c: self.known[c] for c in constants}, self.numbers)[0]
            case _:
                raise NotEvaluatedError(f"{value.name} is a {type(value).__name__}")

    def _positions(self, count: int) -> Tensor:
        return torch.arange(count, device=self.device)

    def _view(self, view: View) -> Tensor:
        argument = self.known[view.argument]
        match view.kind:
            case Slicing(dim=dim, start=start, step=step, count=count):
                return argument.index_select(dim, start + step * self._positions(count))
            case Placement() as kind:
                there = argument.new_empty_strided(argument.shape, view.argument.memory_strides)
                return kind.apply(there.copy_(argument))
            case kind:
                return kind.apply(argument.contiguous())

    def _padded(self, value: Padded) -> Tensor:
        argument, before = value.argument, value.before
        sizes = [min(n, size - b) for n, size, b in zip(argument.shape, value.shape, before, strict=True)]
        made = self._expression(value.fill, []).expand(value.shape).clone()
        inner = self.numbers_of(argument)[tuple(slice(n) for n in sizes)]
        made[tuple(slice(b, b + n) for b, n in zip(before, sizes, strict=True))] = inner
        return made

    def _in_parts(self, value: InParts) -> Tensor:
        parts = [self.numbers_of(p) for p in value.parts]
        whole = parts[0].new_empty(value.shape)
        for part, begin in zip(parts, value.begins, strict=True):
            each = zip(begin, value.steps, part.shape, strict=True)
            whole[tuple(slice(b, b + s * (n - 1) + 1, s) for b, s, n in each)] = part
        return whole

    def _gathered(self, value: Gathered) -> Tensor:
        """Elements at indices; what is no index has the element that kernels have there."""
        rank, table = len(value.shape), self.numbers_of(value.table)
        outside = self.numbers.number(0 if is_integer(value.dtype) else math.nan, self.device)
        index, inside = [], torch.ones((), dtype=torch.bool, device=self.device)
        for i, size in zip(value.index, table.shape, strict=True):
            here = _along(self._positions(value.shape[i]), i, rank) if isinstance(i, int) else self.known[i]
            index.append(here.to(torch.int64).clamp(0, max(size - 1, 0)).expand(value.shape))
            inside = inside & (here >= 0) & (here < size)
        return torch.where(inside, table[tuple(index)], outside)

    def _segments(self, ends: Tensor, position: Tensor) -> Tensor:
        found = torch.bucketize(position.to(torch.int64), ends.to(torch.int64), right=True)
        return self.numbers.numbers(found)

    def _product(self, value: Product) -> Tensor:
        rank = len(value.shape)
        loops = rank + len(value.summed)
        factors = []
        for operand, own in ((value.a, value.a_loops), (value.b, value.b_loops)):
            order = sorted(range(len(own)), key=own.__getitem__)
            sizes = dict(zip(own, operand.shape, strict=True))
            ordered = self.numbers_of(operand).permute(order)
            factors.append(ordered.reshape([sizes.get(n, 1) for n in range(loops)]))
        return self.numbers.sum_of_products(factors[0], factors[1], range(rank, loops))

    def _expression(self, expression: Expression, elements: Sequence[Tensor]) -> Tensor:
        match expression:
            case Access(number, ()):
                return elements[int(number)]
            case Literal(value) | Integer(value):
                return self.numbers.number(value, self.device)
            case Apply(name, arguments):
                return self.numbers.apply(name, [self._expression(a, elements) for a in arguments])
        raise NotEvaluatedError(f"{expression} in an expression of elements")


def _along(line: Tensor, dim: int, rank: int) -> Tensor:
    return line.reshape([-1 if d == dim else 1 for d in range(rank)])
