"""Common parts of the operator rules: the description of a result, and small steps towards it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from autosched.tracing.values import conversions
from autosched.tracing.values.templates import template
from autosched.tracing.values.values import Arange, Leaf, Pointwise, Reduced, Value, View
from autosched.tracing.values.views import Reshape
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.strides import dense_strides

V = TypeVar("V", bound=Value)


class UnsupportedError(Exception):
    """No kernel implements an operator; the message has the reason."""


@dataclass(frozen=True)
class Result:
    """One result of an operator: its value's name, shape and element type, and the user's line.

    `on_cpu`: True if eager computes it on a CPU, in the captured graph. `strides`: PyTorch's, where they are dense in
    another order than that of the dimensions. `dtypes`: of all results of the operator. `precision`: of its products
    of float32, as workloads have it. `whole`: True if it is read as a whole, and not by windows that lie in its parts.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    line: str
    on_cpu: bool = True
    strides: tuple[int, ...] | None = None
    dtypes: tuple[str, ...] = ()
    precision: str = "ieee"
    whole: bool = True

    def part(self, name: str, shape: Sequence[int], dtype: str) -> Result:
        """An intermediate value of this result, whose name prefixes the given one."""
        return Result(f"{self.name}_{name}", tuple(shape), dtype, self.line, self.on_cpu, precision=self.precision)

    def of(self, kind: Callable[..., V], /, **fields: Any) -> V:
        """A value of this kind with this name, shape, element type and line, unless `fields` say others.

        It has PyTorch's strides if it has the shape of the result and is stored itself.
        """
        own: dict[str, Any] = {"name": self.name, "shape": self.shape, "dtype": self.dtype, "line": self.line}
        if kind is not View and fields.get("shape", self.shape) == self.shape:
            own["strides"] = self.strides
        return kind(**{**own, **fields})

    def pointwise(self, combine: Callable[..., Expression], *arguments: Value, **fields: Any) -> Value:
        """`combine` of the arguments, rounded or wrapped to the element type of this result where that is narrower."""
        fitted = conversions.fitting(combine, str(fields.get("dtype", self.dtype)))
        return self.elementwise(fitted, *arguments, **fields)

    def elementwise(self, combine: Callable[..., Expression], *arguments: Value, **fields: Any) -> Value:
        """`combine` of the arguments, which already fits the element type."""
        expression, read = template(combine, arguments)
        return self.of(Pointwise, arguments=read, expression=expression, **fields)

    def constant(self, number: float, **fields: Any) -> Value:
        element = as_constant(number, str(fields.get("dtype", self.dtype)))
        return self.of(Pointwise, arguments=(), expression=element, **fields)

    def reduced(self, operator: str, argument: Value, dims: Sequence[int], **fields: Any) -> Value:
        """A reduction over these dimensions, which are dropped, in float32 or as `fields` have it."""
        kept = tuple(n for d, n in enumerate(argument.shape) if d not in dims)
        if not dims:
            return self.elementwise(lambda x: x, argument, **{"dtype": "float32", **fields})
        own: dict[str, Any] = {"dtype": "float32", "shape": kept, **fields}
        over = tuple(sorted(dims))
        return self.of(Reduced, operator=operator, argument=copyable(argument), dims=over, **own)

    def keeping(self, value: Value, dims: Sequence[int], keep: bool) -> Value:
        """The value with dimensions of size 1 at `dims`, if they are to be kept."""
        if not keep or not dims:
            return value
        shape = list(value.shape)
        for d in sorted(dims):
            shape.insert(d, 1)
        return reshape(value, tuple(shape), f"{value.name}_kept")


def copyable(value: Value) -> Value:
    """The value, as a view where it is an argument that is not dense: a view can be copied into dense memory."""
    dense = not isinstance(value, Leaf) or value.strides == dense_strides(value.shape)
    return value if dense else reshape(value, value.shape)


def converted(value: Value, dtype: str, name: str = "") -> Value:
    """The value in another element type, as PyTorch converts it."""
    if value.dtype == dtype:
        return value
    result = Result(name or f"{value.name}_{dtype}", value.shape, dtype, value.line)
    number = constant_number(value) if is_float(value.dtype) and is_float(dtype) else None
    if number is not None:
        return result.constant(number)
    return result.elementwise(lambda x: conversions.converted(x, value.dtype, dtype), value)


def constant_number(value: Value) -> float | None:
    """The number that all elements of the value are; None if it is no constant, or not known yet."""
    if not isinstance(value, Pointwise) or value.arguments:
        return None
    element = value.expression
    if element == conversions.NOT_A_NUMBER:
        return math.nan
    return element.value if isinstance(element, Literal | Integer) else None


def as_constant(number: float, dtype: str) -> Expression:
    """The number as a constant of that element type."""
    if not is_float(dtype) and not math.isfinite(number):
        raise UnsupportedError(f"{number} as {dtype}")
    try:
        return conversions.constant(number, dtype)
    except (OverflowError, RuntimeError, ValueError):
        raise UnsupportedError(f"{number} as {dtype}, which does not hold it") from None


def reshape(value: Value, shape: tuple[int, ...], name: str = "") -> Value:
    """The elements of the value, in order, in another shape."""
    return View(
        name=name or f"{value.name}_view",
        shape=shape,
        dtype=value.dtype,
        line=value.line,
        argument=value,
        kind=Reshape(value.shape, shape),
    )


def arange(extent: int, rank: int, dim: int, name: str) -> Value:
    """The positions along dimension `dim` of a tensor of `rank` dimensions, of size 1 in the others."""
    line = Arange(name=name, shape=(extent,), dtype="int64", start=0, step=1)
    return reshape(line, tuple(extent if d == dim else 1 for d in range(rank)))


def number(value: Any) -> float:
    """A Python number as a constant."""
    return float(value)


def dims_of(dims: Any, rank: int) -> tuple[int, ...]:
    """The dimensions of an argument: all where it is empty."""
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return tuple(range(rank))
    given = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({d % rank if rank else 0 for d in given})) if rank else ()


def torch_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
