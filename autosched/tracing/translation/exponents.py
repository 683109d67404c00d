"""Tensors of exponents as arguments of rules, which know none: as the powers of two that their bytes are.

    scale: float8_e8m0fnu      →      power(scale.view(uint8)): float32

The view is PyTorch's, and moves nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from autosched.tracing.operators.rules import Result
from autosched.tracing.values.values import Fallback, FallbackOperation, Value, with_values
from search_spaces.workloads.exponents import BYTES, EXPONENTS, power
from search_spaces.workloads.expressions import expression as ex


class Exponents:
    """The powers of two of the tensors of one graph, each made once."""

    def __init__(self) -> None:
        self._known: dict[Value, Value] = {}

    def as_numbers(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of an operator with float32 numbers in the place of exponents."""
        return with_values(arguments, self._as_numbers), with_values(keywords, self._as_numbers)

    def _as_numbers(self, value: Value) -> Value:
        if value.dtype != EXPONENTS or min(value.shape, default=0) < 0:
            return value
        if value not in self._known:
            result = Result(f"{value.name}_powers", value.shape, "float32", value.line)
            self._known[value] = result.elementwise(lambda byte: power(ex.call("to_float", byte)), _bytes_of(value))
        return self._known[value]


def _bytes_of(value: Value) -> Value:
    operation = FallbackOperation(torch.ops.aten.view.dtype, (value, getattr(torch, BYTES)), (), "exponents as bytes")
    return Fallback(
        name=f"{value.name}_bytes",
        shape=value.shape,
        dtype=BYTES,
        line=value.line,
        strides=value.memory_strides,
        operation=operation,
    )
