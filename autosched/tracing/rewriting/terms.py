"""Values as terms: two are the same term if their kind, attributes and operands are, whatever they are called."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.parts import stored_part
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation, with_values
from autosched.tracing.values.values import (
    Arange,
    Gathered,
    InParts,
    Joined,
    Padded,
    Pointwise,
    Product,
    Reduced,
    Scanned,
    ScanOperation,
    Segments,
    Value,
    View,
)


@dataclass(frozen=True)
class Operations:
    """Operations of several results, by those that they are in the place of."""

    scans: dict[ScanOperation, ScanOperation] = field(default_factory=dict)
    calls: dict[FallbackOperation, FallbackOperation] = field(default_factory=dict)


def key_of(value: Value, number: Callable[[Value], Hashable]) -> Hashable:
    """Equal for equal terms; `number` is that of an operand's class, or what else operands are compared by.

    Values of other kinds (arguments and constants, scans, calls of PyTorch) are equal to themselves only. Values in
    other memory layouts are other terms: one is a part of a tensor in memory, say, and the other is not.
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
        case Segments():
            own = "segments"
        case _:
            return id(value)
    return type(value), value.shape, value.dtype, value.strides, own, operands


def numbered(results: Sequence[Value], known: dict[Hashable, int]) -> tuple[int, ...]:
    """The numbers of the results' terms: equal for equal ones; new ones are added to the `known`."""
    numbers: dict[Value, int] = {}
    for value in below(results):
        numbers[value] = known.setdefault(key_of(value, numbers.__getitem__), len(known))
    return tuple(numbers[r] for r in results)


def with_operands(value: Value, of: Callable[[Value], Value], operations: Operations | None = None) -> Value:
    """The value computed from other operands, `of` its own; itself where these are the same, or cannot be others.

    `operations`: those made so far, so that the results of one remain the results of one; without it scans and calls
    of PyTorch stay as they are.
    """
    if all(of(o) is o for o in value.operands):
        return value
    match value:
        case Pointwise(arguments=arguments):
            return replace(value, arguments=tuple(map(of, arguments)))
        case Reduced(argument=argument) | View(argument=argument) | Padded(argument=argument):
            return replace(value, argument=of(argument))
        case Product(a=a, b=b):
            return replace(value, a=of(a), b=of(b))
        case Joined(parts=parts):
            return replace(value, parts=tuple(map(of, parts)))
        case InParts(parts=parts):
            # Each part is stored in one place: what others read, or store elsewhere, is copied there.
            return replace(value, parts=tuple(p if of(p) is p else stored_part(value, of(p)) for p in parts))
        case Scanned(operation=scan) if operations is not None:
            if scan not in operations.scans:
                operations.scans[scan] = replace(scan, elements=tuple(map(of, scan.elements)))
            return replace(value, operation=operations.scans[scan])
        case Fallback(operation=call) if operations is not None:
            if call not in operations.calls:
                arguments, keywords = with_values((call.arguments, call.keywords), of)
                operations.calls[call] = replace(call, arguments=arguments, keywords=keywords)
            return replace(value, operation=operations.calls[call])
        case Gathered(table=table, index=index):
            return replace(value, table=of(table), index=tuple(i if isinstance(i, int) else of(i) for i in index))
        case Segments(ends=ends, position=position):
            return replace(value, ends=of(ends), position=of(position))
        case _:
            return value


def takes_other_operands(value: Value) -> bool:
    """True if a value may be computed from equal operands."""
    return isinstance(value, Pointwise | Reduced | View | Padded | Product | Joined | InParts | Gathered | Segments)


def is_computed_from_nothing(value: Value) -> bool:
    """True for numbers and positions."""
    return isinstance(value, Pointwise | Arange) and not value.operands


def is_constant(value: Value) -> bool:
    """True if all that a value is computed from is constant, and something is in memory."""
    return value.source == "constants"
