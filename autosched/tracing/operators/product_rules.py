"""ATen's matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.tracing.operators.rules import Result, UnsupportedError, converted, copyable, reshape
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.values.values import Pointwise, Product, Value, View, placeholder
from search_spaces.workloads.dtypes import FLOAT8, is_float, is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal
from search_spaces.workloads.expressions.kinds import is_integral

_NARROW = ("float16", "bfloat16")
_MULTIPLIED = ("float32", *_NARROW, *FLOAT8)


def product(
    result: Result, a: Value, b: Value, shape: Sequence[int], a_loops: Sequence[int], b_loops: Sequence[int]
) -> Value:
    """Sums of products of this shape (`Product`): in float32, before any rounding; of integers, in 64 bits."""
    if is_integer(a.dtype) and a.dtype == b.dtype:
        return _of_integers(result, a, b, shape, (a_loops, b_loops))
    if a.dtype == b.dtype == "float32":
        narrow = _as_it_was(a), _as_it_was(b)
        # Products of 16-bit floats are exact in float32.
        a, b = narrow if narrow[0].dtype == narrow[1].dtype else (a, b)
    if a.dtype not in _MULTIPLIED or a.dtype != b.dtype:
        raise UnsupportedError(f"a product of {a.dtype} and {b.dtype}; expected two of {', '.join(_MULTIPLIED)}")
    return result.of(
        Product,
        name=f"{result.name}_sums",
        shape=tuple(shape),
        dtype="float32",
        a=copyable(a),
        b=copyable(b),
        a_loops=tuple(a_loops),
        b_loops=tuple(b_loops),
        precision=result.precision if a.dtype == "float32" or result.precision == "fast" else "",
    )


def _as_it_was(value: Value) -> Value:
    """The value before its conversion from 16 bits to float32, and copies."""
    match value:
        case View(argument=argument):
            narrow = _as_it_was(argument)
            return value if narrow is argument else replace(value, dtype=narrow.dtype, argument=narrow)
        case Pointwise(arguments=(argument,), expression=expression) if (
            argument.shape == value.shape and is_float(value.dtype) and expression == placeholder(0, argument.dtype)
        ):
            narrow = argument if argument.dtype in _NARROW else _as_it_was(argument)
            return narrow if narrow.dtype in _NARROW else value
        case _:
            return value


def _of_integers(
    result: Result, a: Value, b: Value, shape: Sequence[int], loops: tuple[Sequence[int], Sequence[int]]
) -> Value:
    """Sums of products as a reduction: no device has dots of such integers."""
    extents = {n: size for x, own in zip((a, b), loops, strict=True) for n, size in zip(own, x.shape, strict=True)}
    rank = len(extents)
    terms = result.elementwise(
        ex.mul,
        *(converted(_along(result, x, own, rank), "int64") for x, own in zip((a, b), loops, strict=True)),
        name=f"{result.name}_terms",
        shape=tuple(extents[n] for n in range(rank)),
        dtype="int64",
    )
    summed = range(len(shape), rank)
    return result.reduced("sum", terms, summed, name=f"{result.name}_sums", shape=tuple(shape), dtype="int64")


def _along(result: Result, x: Value, loops: Sequence[int], rank: int) -> Value:
    """The value with a dimension for each of so many loops, of size 1 along those that it does not have."""
    order = sorted(range(len(loops)), key=lambda d: loops[d])
    sizes = {loops[d]: x.shape[d] for d in order}
    ordered = permute(result.part(f"{x.name}_ordered", [x.shape[d] for d in order], x.dtype), x, order)
    return reshape(ordered, tuple(sizes.get(n, 1) for n in range(rank)))


def matrices(result: Result, a: Value, b: Value) -> Value:
    """`a @ b` of [*batch, m, k] and [*batch, k, n]."""
    rank = len(a.shape) - 2
    outer = range(rank)
    return product(result, a, b, (*a.shape[:-1], b.shape[-1]), (*outer, rank, rank + 2), (*outer, rank + 2, rank + 1))


def _mm(result: Result, a: Value, b: Value) -> Value:
    sums = matrices(result, a, b)
    return result.pointwise(_same, sums) if result.dtype != sums.dtype else sums


def _same(x: Expression) -> Expression:
    return x


def _addmm(result: Result, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta bias + alpha (a @ b), rounded once. An operand scaled by 0 is not read, so that it cannot contribute NaN."""

    def scaled(x: Expression, factor: float) -> Expression:
        number = ex.Integer(int(factor)) if is_integral(x) else Literal(float(factor))
        return x if factor == 1 else ex.mul(x, number)

    if alpha == 0:
        return result.pointwise(lambda added: scaled(added, beta), bias) if beta else result.constant(0.0)
    sums = matrices(result, a, b)
    if beta == 0:
        return result.pointwise(lambda total: scaled(total, alpha), sums)
    return result.pointwise(lambda added, total: ex.add(scaled(total, alpha), scaled(added, beta)), bias, sums)


def _mv(result: Result, a: Value, v: Value) -> Value:
    column = reshape(v, (*v.shape, 1))
    whole = result.part("column", (*a.shape[:-1], 1), result.dtype)
    return reshape(_mm(whole, a, column), result.shape, result.name)


def _addmv(result: Result, bias: Value, a: Value, v: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    whole = result.part("column", (*a.shape[:-1], 1), result.dtype)
    column, row = reshape(v, (*v.shape, 1)), reshape(bias, (*bias.shape, 1)) if bias.shape else bias
    return reshape(_addmm(whole, row, a, column, beta=beta, alpha=alpha), result.shape, result.name)


def _addbmm(result: Result, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """Products summed over their batch: one product with the batch moved into k."""
    batch, m, k = a.shape
    rows = result.part("rows", (m, batch, k), a.dtype)
    joined = reshape(permute(rows, a, (1, 0, 2)), (m, batch * k))
    return _addmm(result, bias, joined, reshape(b, (batch * k, b.shape[-1])), beta=beta, alpha=alpha)


def _dot(result: Result, u: Value, v: Value) -> Value:
    scalar = reshape(matrices(result, reshape(u, (1, u.shape[0])), reshape(v, (v.shape[0], 1))), ())
    return result.pointwise(_same, scalar) if result.dtype != scalar.dtype else scalar


RULES: Mapping[str, Callable[..., Any]] = {
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "mv": _mv,
    "addmv": _addmv,
    "addbmm": _addbmm,
    "dot": _dot,
}
