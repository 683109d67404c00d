"""ATen's pointwise operators as values: their arguments as elements, their numbers as constants, what they round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autosched.reference import torch_dtype
from autosched.tracing import integer_rules
from autosched.tracing.binding import Bound, check_declared
from autosched.tracing.conversions import wrapped
from autosched.tracing.pointwise_rules import COMPARING, RULES, SELECTING, truth
from autosched.tracing.rules import Result, UnsupportedError, as_held, converted, torch_name
from autosched.tracing.values import Pointwise, Value
from search_spaces.dtypes import is_integer
from search_spaces.expression import Expression

# Operators whose result is 1 or 0 as it is.
_TRUE_OR_FALSE = {*COMPARING, *SELECTING, *(n for n in RULES if n.startswith(("logical", "bitwise", "is")))}
# Operators that ask of every argument whether it is 0, and nothing else.
_OF_TRUTHS = frozenset(n for n in RULES if n.startswith("logical"))
# The operators that there is a rule for.
NAMES = frozenset({*RULES, *integer_rules.RULES})


def pointwise(result: Result, name: str, bound: Bound) -> Value:
    """A pointwise operator: tensors become the arguments of its rule, numbers constants in it.

    Raises:
        UnsupportedError: no rule is for the element types, or it does not declare an argument.
    """
    options = {n: v for n, v in bound.options.items() if isinstance(v, Value) or n in bound.numbers}
    plain = {n: v for n, v in bound.options.items() if n not in options}
    given = [*bound.required, *options.values()]
    conditions = 1 if name == "where" else 0
    dtype = _computed_in(name, result, given[conditions:])
    whole = is_integer(dtype)
    rules = integer_rules.RULES if whole else RULES
    if name not in rules:
        raise UnsupportedError(f"no rule says what it computes of {dtype}")
    check_declared(rules[name], bound, own=0)
    types = ["bool"] * conditions + [dtype] * (len(given) - conditions)
    # A number that is chosen becomes an element; one that is computed with is not rounded before.
    held = dtype if whole else result.dtype if name in SELECTING else "float32"
    places = [_Place() if isinstance(v, Value) else as_held(v, held) for v in given]
    tensors = tuple(_as_argument(v, t) for v, t in zip(given, types, strict=True) if isinstance(v, Value))

    def combine(*elements: Expression) -> Expression:
        rest = iter(elements)
        filled: list[Any] = [next(rest) if isinstance(p, _Place) else p for p in places]
        count = len(bound.required)
        made = rules[name](*filled[:count], **dict(zip(options, filled[count:], strict=True)), **plain)
        if whole and is_integer(result.dtype) and name not in integer_rules.FITTING:
            return wrapped(made, result.dtype)
        # Sums and products of booleans are True or False, too.
        return truth(made) if result.dtype == "bool" and name not in _TRUE_OR_FALSE and not whole else made

    if name in SELECTING and all(t.dtype == result.dtype for t in tensors[conditions:]):
        return result.of(Pointwise, arguments=tensors, combine=combine)
    return result.pointwise(combine, *tensors)


class _Place:
    """Where the element of a tensor goes."""


def _computed_in(name: str, result: Result, operands: Sequence[Any]) -> str:
    """The element type that the operands are converted to first: that of the result, except where it is a truth."""
    if name in _OF_TRUTHS:
        return "bool"
    if result.dtype != "bool":
        return result.dtype
    # Of tensors only their element types count, and whether they have dimensions.
    shown = [_shown(v) if isinstance(v, Value) else v for v in operands]
    return torch_name(torch.result_type(*shown) if len(shown) > 1 else shown[0].dtype)


def _shown(value: Value) -> torch.Tensor:
    return torch.empty([1] * len(value.shape), dtype=torch_dtype(value.dtype))


def _as_argument(value: Value, dtype: str) -> Value:
    """The value as an operand; floating-point numbers and booleans are computed with in float32 as they are."""
    return converted(value, dtype) if is_integer(value.dtype) or is_integer(dtype) else value
