"""ATen's pointwise operators as values: arguments as elements, numbers as constants, results rounded."""

from __future__ import annotations

from functools import partial
from typing import Any

from autosched.tracing.operators.binding import Bound, check_declared
from autosched.tracing.operators.pointwise import integer_rules
from autosched.tracing.operators.pointwise.mixed_types import computed_in, computes_in_steps, eager_operands
from autosched.tracing.operators.pointwise.rules import COMPARING, RULES, SELECTING, STEPWISE, truth
from autosched.tracing.operators.rules import Result, UnsupportedError
from autosched.tracing.values.conversions import rounded
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.expression import Expression

# Operators with a result of 1 or 0.
_TRUE_OR_FALSE = {*COMPARING, *SELECTING, *(n for n in RULES if n.startswith(("logical", "bitwise", "is")))}
# The operators with a rule.
NAMES = frozenset({*RULES, *integer_rules.RULES})


def pointwise(result: Result, name: str, bound: Bound) -> Value:
    """A pointwise operator: tensors become the arguments of its rule, numbers constants in it.

    Raises:
        UnsupportedError: no rule has these element types, or it does not declare an argument.
    """
    options = {n: v for n, v in bound.options.items() if isinstance(v, Value) or n in bound.numbers}
    plain = {n: v for n, v in bound.options.items() if n not in options}
    elements = [*bound.required, *options.values()]
    dtype = computed_in(result, name, elements)
    whole = is_integer(dtype)
    rules = integer_rules.RULES if whole else RULES
    if name not in rules:
        raise UnsupportedError(f"no rule computes it of {dtype}")
    check_declared(rules[name], bound, own=0)
    given = eager_operands(result, name, elements)
    if name in STEPWISE and computes_in_steps(dtype, elements) and not whole:
        plain["rounding"] = partial(rounded, dtype=dtype)
    tensors = tuple(v for v in given if isinstance(v, Value))
    places = [_Placeholder() if isinstance(v, Value) else v for v in given]

    def combine(*elements: Expression) -> Expression:
        rest = iter(elements)
        filled: list[Any] = [next(rest) if isinstance(p, _Placeholder) else p for p in places]
        count = len(bound.required)
        made = rules[name](*filled[:count], **dict(zip(options, filled[count:], strict=True)), **plain)
        # Sums and products of booleans are True or False, too.
        return truth(made) if result.dtype == "bool" and name not in _TRUE_OR_FALSE and not whole else made

    fits = name in (integer_rules.FITTING if whole else SELECTING)
    if fits and all(t.dtype == result.dtype for t in tensors[1 if name == "where" else 0 :]):
        return result.elementwise(combine, *tensors)
    return result.pointwise(combine, *tensors)


class _Placeholder:
    """The position of a tensor's element among arguments."""
