"""Pointwise operators of several element types: what eager rounds before it computes, a Python number included.

Eager computes in the type that the arguments have in common, and converts each of them to it. Of the narrow types some
operators keep one argument as it is, if that is a single number: then they compute in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from autosched.tracing.operators.pointwise.rules import SELECTING
from autosched.tracing.operators.rules import Result, UnsupportedError, as_held, constant_number, converted, torch_name
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_float, is_integer

_NARROW = ("float16", "bfloat16")
# Operators that keep their second argument where it is a single number, on every device; and those that do on a GPU
# alone: a CPU adds what it has rounded before.
_KEPT = ("mul", "div")
_KEPT_ON_GPU = ("add", "sub", "rsub")
# Operators that ask of every argument whether it is 0, and nothing else.
_OF_TRUTHS = ("logical_not", "logical_and", "logical_or", "logical_xor")


def computed_in(result: Result, name: str, given: Sequence[Any]) -> str:
    """The element type that an operator computes in: that in common, or where that is one of integers and the result is
    not, as of quotients, that of the result.

    Raises:
        UnsupportedError: there is a number that no kernel computes with.
    """
    if any(isinstance(v, complex) for v in given):
        raise UnsupportedError("a complex number")
    if name in _OF_TRUTHS:
        return "bool"
    common = _common_type(given[1:] if name == "where" else given)
    return common if is_float(common) or result.dtype == "bool" else result.dtype


def as_eager_holds(result: Result, name: str, given: Sequence[Any]) -> list[Any]:
    """The arguments of a pointwise operator as it computes with them: values of that type, and constants.

    Raises:
        UnsupportedError: a number is none of that type.
    """
    computed = computed_in(result, name, given)
    condition = [converted(v, "bool") for v in given[:1]] if name == "where" else []
    elements = given[len(condition) :]
    kept = name in _KEPT or (name in _KEPT_ON_GPU and not result.on_cpu)
    # A number that is chosen becomes an element; one that is computed with is not rounded before.
    exact = is_integer(computed) or computed in _NARROW
    held = computed if exact else result.dtype if name in SELECTING else "float32"
    return [*condition, *(_held(v, held, computed, kept and n > 0) for n, v in enumerate(elements))]


def computes_in_steps(dtype: str, given: Sequence[Any]) -> bool:
    """Whether eager rounds every step of an operator of two arguments to a narrow type: not beside a single number,
    which it keeps as it is, and then computes in float32."""
    *_, last = given
    return dtype in _NARROW and isinstance(last, Value) and last.elements > 1


def _common_type(elements: Sequence[Any]) -> str:
    like = [
        torch.empty((1,) * len(v.shape), dtype=getattr(torch, v.dtype), device="meta") if isinstance(v, Value) else v
        for v in elements
    ]
    _, dtype = elementwise_dtypes(*like, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH)
    return torch_name(dtype)


def _held(element: Any, number: str, computed: str, kept: bool) -> Any:
    kept = kept and computed in _NARROW
    if not isinstance(element, Value):
        return as_held(element, "float32" if kept else number)
    if kept and element.elements == 1:
        computed = "float32"
    constant = constant_number(element)
    if computed in _NARROW and constant is not None:
        return as_held(constant, computed)
    # float32 holds all floating-point numbers and booleans as they are.
    as_it_is = computed not in _NARROW and not is_integer(computed) and not is_integer(element.dtype)
    return element if as_it_is else converted(element, computed)
