"""One element as one of another element type, as PyTorch converts it.

Elements of integers are expressions of integers, those of floating-point numbers and booleans are float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from search_spaces.workloads.dtypes import is_float, is_integer, range_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS, WRAPPINGS

_ROUNDING = {dtype: operator for operator, dtype in ROUNDINGS.items()}
_WRAPPING = {dtype: operator for operator, dtype in WRAPPINGS.items()}


def converted(x: Expression, source: str, dtype: str) -> Expression:
    """Conversion of an element of type `source` to `dtype`: rounded, cut towards 0, or reduced to its lower bits."""
    if source == dtype:
        return x
    if dtype == "bool":
        return truth(x)
    if is_integer(dtype):
        return wrapped(x if is_integer(source) else ex.call("to_integer", x), dtype, source)
    number = ex.call("to_float", x) if is_integer(source) else x
    return rounded(number, dtype)


def fitting(combine: Callable[..., Expression], dtype: str) -> Callable[..., Expression]:
    """`combine`, followed by rounding, or wrapping, to a narrower type."""
    if dtype in _ROUNDING:
        return lambda *elements: rounded(combine(*elements), dtype)
    return (lambda *elements: wrapped(combine(*elements), dtype)) if is_integer(dtype) else combine


def rounded(x: Expression, dtype: str) -> Expression:
    """A float32 rounded to an element type."""
    return ex.call(_ROUNDING[dtype], x) if dtype in _ROUNDING else x


def wrapped(x: Expression, dtype: str, source: str = "int64") -> Expression:
    """An integer of any value of type `source`, wrapped to type `dtype`."""
    (low, high), (least, most) = range_of(dtype), range_of("int64" if is_float(source) else source)
    return x if low <= least and most <= high else ex.call(_WRAPPING[dtype], x)


def truth(x: Expression) -> Expression:
    """1 where a number is not 0, else 0."""
    zero = Integer(0) if is_integral(x) else Literal(0.0)
    return ex.call("eq", ex.call("eq", x, zero), Literal(0.0))


# There is no literal that is no number.
NOT_A_NUMBER = ex.div(Literal(0.0), Literal(0.0))


def constant(number: float, dtype: str) -> Expression:
    """The number rounded to that element type.

    Raises:
        OverflowError, RuntimeError, ValueError: it does not fit.
    """
    if is_integer(dtype):
        # Its lower bits: to eager 300 with uint8 is 44.
        return Integer(int(torch.tensor(int(number), dtype=torch.int64).to(getattr(torch, dtype))))
    stored = float(torch.tensor(number, dtype=getattr(torch, dtype)))
    return NOT_A_NUMBER if math.isnan(stored) else Literal(stored)
