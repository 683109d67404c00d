"""Tensors of exponents as arguments of rules, which know none: as the powers of two that their bytes are.

    scale: float8_e8m0fnu      →      power(scale.view(uint8)): float32

The view is PyTorch's, and moves nothing. Other views of exponents are those of the powers:

    scale[1:3]                         →      power(scale.view(uint8))[1:3]
    bytes.view(float8_e8m0fnu)         →      power(bytes)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from autosched.tracing.operators.binding import bind
from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import RULES
from autosched.tracing.translation.nodes import operator_name
from autosched.tracing.translation.rule_tables import rule_of
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation, with_values
from autosched.tracing.values.values import Value
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
            self._known[value] = _powers(f"{value.name}_powers", _bytes_of(value))
        return self._known[value]

    def note(self, value: Value, powers: Value) -> None:
        """Note the numbers that a tensor of exponents is."""
        self._known[value] = powers


def viewed(node: fx.Node, result: Result, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Value | None:
    """The numbers of a view with exponents as elements, of arguments as numbers; None for other operators."""
    source, target = next(iter(arguments), None), node.target
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(source, Value):
        return None
    if not source.readable or min(*source.shape, *result.shape, 1) < 1:
        return None
    name, overload = operator_name(node)
    if (name, overload) == ("view", "dtype"):
        return _powers(f"{result.name}_powers", source) if source.dtype == BYTES else None
    rule = rule_of(name, overload) if name in {*RULES, "select"} else None
    if rule is None:
        return None
    bound = bind(target, arguments, keywords)
    numbers = Result(f"{result.name}_powers", result.shape, "float32", result.line)
    made: Value = rule(numbers, *bound.required, **bound.options)
    return made


def _powers(name: str, stored: Value) -> Value:
    result = Result(name, stored.shape, "float32", stored.line)
    return result.elementwise(lambda byte: power(ex.call("to_float", byte)), stored)


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
