"""Pointwise operators of several element types: what eager rounds before it computes, a Python number included.

Eager computes in the type that the arguments have in common, and converts each of them to it. Of the narrow types some
operators keep one argument as it is, if that is a single number: then they compute in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from autosched.tracing.pointwise_rules import SELECTING
from autosched.tracing.rules import Result, UnsupportedError, as_held, constant_number, converted, torch_name
from autosched.tracing.values import Value

_NARROW = ("float16", "bfloat16")
# Operators that keep their second argument where it is a single number, on every device; and those that do on a GPU
# alone: a CPU adds what it has rounded before.
_KEPT = ("mul", "div")
_KEPT_ON_GPU = ("add", "sub", "rsub")


def as_eager_holds(result: Result, name: str, given: Sequence[Any]) -> list[Any]:
    """The arguments of a pointwise operator as it computes with them: values of the type in common, and numbers.

    Raises:
        UnsupportedError: a number is none of that type.
    """
    if any(isinstance(v, complex) for v in given):
        raise UnsupportedError("a complex number")
    condition = list(given[:1]) if name == "where" else []
    elements = list(given[len(condition) :])
    common = _common_type(elements)
    kept = name in _KEPT or (name in _KEPT_ON_GPU and not result.on_cpu)
    # Of integers float32 stands for the type in common; whether it holds them is looked at afterwards.
    held = common if common in _NARROW else result.dtype if name in SELECTING else "float32"
    return [*condition, *(_held(v, held, common, kept and n > 0) for n, v in enumerate(elements))]


def _common_type(elements: Sequence[Any]) -> str:
    like = [
        torch.empty((1,) * len(v.shape), dtype=getattr(torch, v.dtype), device="meta") if isinstance(v, Value) else v
        for v in elements
    ]
    _, dtype = elementwise_dtypes(*like, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH)
    return torch_name(dtype)


def _held(element: Any, number: str, common: str, kept: bool) -> Any:
    if not isinstance(element, Value):
        return as_held(element, "float32" if kept else number)
    if common not in _NARROW or element.dtype == common or (kept and element.elements == 1):
        return element
    constant = constant_number(element)
    return converted(element, common) if constant is None else as_held(constant, common)
