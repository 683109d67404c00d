"""Values as terms: two are the same term if their kind, attributes and operands are, whatever they are called."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from autosched.tracing.values.values import (
    Arange,
    Gathered,
    InParts,
    Joined,
    Padded,
    Pointwise,
    Product,
    Reduced,
    Value,
    View,
)


def key_of(value: Value, number: Callable[[Value], int]) -> Hashable:
    """Equal for equal terms; `number` is that of an operand's class.

    Values of other kinds (arguments and constants, scans, calls of PyTorch) are equal to themselves only.
    """
    operands = tuple(map(number, value.operands))
    own: object
    match value:
        case Pointwise(expression=expression):
            own = expression
        case Arange(start=start, step=step):
            own = start, step
        case Reduced(operator=operator, dims=dims):
            own = operator, dims
        case Product():
            own = value.a_loops, value.b_loops, value.precision
        case View(kind=kind):
            own = kind
        case Padded(before=before, fill=fill):
            own = before, fill
        case Joined(dim=dim, in_groups=in_groups):
            own = dim, in_groups
        case Gathered(index=index):
            own = tuple(i if isinstance(i, int) else None for i in index)
        case _:
            return id(value)
    return type(value), value.shape, value.dtype, own, operands


def with_operands(value: Value, of: Callable[[Value], Value]) -> Value:
    """The value computed from other operands, `of` its own; itself where these are the same, or cannot be others."""
    if all(of(o) is o for o in value.operands):
        return value
    match value:
        case Pointwise(arguments=arguments):
            return replace(value, arguments=tuple(map(of, arguments)))
        case Reduced(argument=argument) | View(argument=argument) | Padded(argument=argument):
            return replace(value, argument=of(argument))
        case Product(a=a, b=b):
            return replace(value, a=of(a), b=of(b))
        case Joined(parts=parts) | InParts(parts=parts):
            return replace(value, parts=tuple(map(of, parts)))
        case Gathered(table=table, index=index):
            return replace(value, table=of(table), index=tuple(i if isinstance(i, int) else of(i) for i in index))
        case _:
            return value


def takes_other_operands(value: Value) -> bool:
    """True if a value may be computed from equal operands."""
    return isinstance(value, Pointwise | Reduced | View | Padded | Product | Joined | InParts | Gathered)


def is_computed_from_nothing(value: Value) -> bool:
    """True for numbers and positions."""
    return isinstance(value, Pointwise | Arange) and not value.operands


def is_constant(value: Value) -> bool:
    """True if all that a value is computed from is constant, and something is in memory."""
    rest, seen, in_memory = [value], {value}, False
    while rest:
        here = rest.pop()
        if here.constant or is_computed_from_nothing(here):
            in_memory |= here.constant
            continue
        if not here.operands or not takes_other_operands(here):
            return False
        new = [o for o in here.operands if o not in seen]
        seen.update(new)
        rest += new
    return in_memory
