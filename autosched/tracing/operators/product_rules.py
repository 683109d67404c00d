"""ATen's matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from autosched.tracing.operators.rules import Result, UnsupportedError, converted, copyable, reshape
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.values.values import Pointwise, Product, Value, View, placeholder
from search_spaces.workloads.dtypes import is_float, is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal
from search_spaces.workloads.expressions.kinds import is_integral

_NARROW = ("float16", "bfloat16")
_MULTIPLIED = ("float32", *_NARROW)


def precision(dtype: str) -> str:
    """The precision of products of this element type, as set in PyTorch."""
    return "tf32" if dtype == "float32" and torch.get_float32_matmul_precision() != "highest" else "ieee"


def _product(result: Result, a: Value, b: Value) -> Value:
    """The sums in float32, before any rounding; of integers, in 64 bits."""
    if is_integer(a.dtype) and a.dtype == b.dtype:
        return _of_integers(result, a, b)
    if a.dtype == b.dtype == "float32":
        narrow = _as_it_was(a), _as_it_was(b)
        # Products of 16-bit floats are exact in float32.
        a, b = narrow if narrow[0].dtype == narrow[1].dtype else (a, b)
    if a.dtype not in _MULTIPLIED or a.dtype != b.dtype:
        raise UnsupportedError(f"a product of {a.dtype} and {b.dtype}; expected two of {', '.join(_MULTIPLIED)}")
    shape = (*a.shape[:-1], b.shape[-1])
    return result.of(
        Product,
        name=f"{result.name}_sums",
        shape=shape,
        dtype="float32",
        a=copyable(a),
        b=copyable(b),
        precision=precision(a.dtype),
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


def _of_integers(result: Result, a: Value, b: Value) -> Value:
    """Sums of products as a reduction: no device has dots of such integers."""
    *batch, m, k = a.shape
    n = b.shape[-1]
    factors = (reshape(a, (*batch, m, k, 1)), reshape(b, (*batch, 1, k, n)))
    terms = result.elementwise(
        ex.mul,
        *(converted(f, "int64") for f in factors),
        name=f"{result.name}_terms",
        shape=(*batch, m, k, n),
        dtype="int64",
    )
    return result.reduced("sum", terms, (len(batch) + 1,), name=f"{result.name}_sums", dtype="int64")


def _mm(result: Result, a: Value, b: Value) -> Value:
    sums = _product(result, a, b)
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
    sums = _product(result, a, b)
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
    scalar = reshape(_product(result, reshape(u, (1, u.shape[0])), reshape(v, (v.shape[0], 1))), ())
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
