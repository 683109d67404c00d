"""Type promotion of pointwise operators: eager's roundings of operands, Python numbers included.

Eager computes in the promoted type of the arguments, and converts each of them to it. On narrow types some operators
leave one argument unrounded, if that is a single number: then they compute in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from autosched.tracing.operators.pointwise.rules import SELECTING
from autosched.tracing.operators.rules import (
    Result,
    UnsupportedError,
    as_constant,
    constant_number,
    converted,
    torch_name,
)
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_float, is_integer

_NARROW = ("float16", "bfloat16")
# Operators that leave a single number as second argument unrounded, on every device; and those that do so on a GPU
# alone: a CPU rounds it first.
_KEPT = ("mul", "div")
_KEPT_ON_GPU = ("add", "sub", "rsub")
# Operators that only compare every argument with 0.
_OF_TRUTHS = ("logical_not", "logical_and", "logical_or", "logical_xor")


def computed_in(result: Result, name: str, given: Sequence[Any]) -> str:
    """The promoted operand type; the result's type if integers give a float (true division).

    Raises:
        UnsupportedError: there is a number that no kernel computes with.
    """
    if any(isinstance(v, complex) for v in given):
        raise UnsupportedError("a complex number")
    if name in _OF_TRUTHS:
        return "bool"
    common = _common_type(given[1:] if name == "where" else given)
    return common if is_float(common) or result.dtype == "bool" else result.dtype


def eager_operands(result: Result, name: str, given: Sequence[Any]) -> list[Any]:
    """The arguments of a pointwise operator as values of eager's operand type, and constants.

    Raises:
        UnsupportedError: the type does not represent a number.
    """
    computed = computed_in(result, name, given)
    condition = [converted(v, "bool") for v in given[:1]] if name == "where" else []
    elements = given[len(condition) :]
    kept = name in _KEPT or (name in _KEPT_ON_GPU and not result.on_cpu)
    # A selected number becomes an element; a number in arithmetic is not rounded first.
    exact = is_integer(computed) or computed in _NARROW
    constants_in = computed if exact else result.dtype if name in SELECTING else "float32"
    return [*condition, *(_operand(v, constants_in, computed, kept and n > 0) for n, v in enumerate(elements))]


def computes_in_steps(dtype: str, given: Sequence[Any]) -> bool:
    """True if eager rounds every step of a binary operator to a narrow type: not with a single number, which stays
    unrounded, so that the operator computes in float32.
    """
    *_, last = given
    return dtype in _NARROW and isinstance(last, Value) and last.elements > 1


def _common_type(elements: Sequence[Any]) -> str:
    like = [
        torch.empty((1,) * len(v.shape), dtype=getattr(torch, v.dtype), device="meta") if isinstance(v, Value) else v
        for v in elements
    ]
    _, dtype = elementwise_dtypes(*like, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH)
    return torch_name(dtype)


def _operand(element: Any, number: str, computed: str, kept: bool) -> Any:
    kept = kept and computed in _NARROW
    if not isinstance(element, Value):
        return as_constant(element, "float32" if kept else number)
    if kept and element.elements == 1:
        computed = "float32"
    constant = constant_number(element)
    if computed in _NARROW and constant is not None:
        return as_constant(constant, computed)
    # float32 represents all floating-point elements and booleans exactly.
    as_it_is = computed not in _NARROW and not is_integer(computed) and not is_integer(element.dtype)
    return element if as_it_is else converted(element, computed)
