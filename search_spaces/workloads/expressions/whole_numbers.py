"""Bounds of values that are whole numbers: data of narrow integers, parts of their bits, and sums of these.

((p >> 4*h) & 15) - 8      of bytes p and positions h: from -8 to 7
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from search_spaces.workloads.dtypes import is_float, range_of
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Integer, Literal
from search_spaces.workloads.expressions.operators import WRAPPINGS

Bounds = tuple[int, int]

# Whole numbers of float32 are exact up to here, and so are sums and products that are no larger.
_EXACT = 2**24
_BITS = 64
# Operators whose least and largest values are among those of the least and largest arguments.
_MONOTONIC: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
}


def whole_numbers(e: Expression, dtypes: Mapping[str, str]) -> Bounds | None:
    """The least and the largest value of an expression all of whose values are whole numbers; None for others.

    `dtypes` are those of the inputs. Numbers beyond 2^24, of which float32 has only some, count as others.
    """
    found = _bounds(e, dtypes)
    return found if found and max(map(abs, found)) <= _EXACT else None


def _bounds(e: Expression, dtypes: Mapping[str, str]) -> Bounds | None:
    match e:
        case Integer(value):
            return value, value
        case Literal(value) if abs(value) <= _EXACT and value == int(value):
            return int(value), int(value)
        case Access(tensor, _, fill) if not is_float(dtypes[tensor]):
            outside = whole_numbers(Literal(float(fill or 0)), dtypes)
            return _around([range_of(dtypes[tensor]), outside])
        case Gather(tensor) if not is_float(dtypes[tensor]):
            return _around([range_of(dtypes[tensor]), (0, 0)])
        case Apply("where", (_, *chosen)):
            return _around([whole_numbers(a, dtypes) for a in chosen])
        case Apply(operator, arguments):
            return applied(operator, [whole_numbers(a, dtypes) for a in arguments])
        case _:
            return None


def applied(operator: str, parts: Sequence[Bounds | None]) -> Bounds | None:
    """The least and the largest value of an operator whose arguments are whole numbers; None if unknown."""
    first, last = parts[0], parts[-1]
    if operator in WRAPPINGS:
        least, largest = kept = range_of(WRAPPINGS[operator])
        return first if first and least <= first[0] and first[1] <= largest else kept
    if operator == "bitwise_and":
        # One that is not negative leaves no bits but its own.
        most = [p[1] for p in parts if p and p[0] >= 0]
        return (0, min(most)) if most else None
    if operator == "shift_right" and first:
        known = last and last[0] == last[1] and 0 <= last[0] < _BITS
        # Shifted by a number that is not known, it is no further from 0, or -1.
        return (first[0] >> last[0], first[1] >> last[0]) if last and known else _around([first, (min(first[0], 0), 0)])
    if first is None or last is None:
        return None
    if operator == "shift_left":
        return (first[0] << last[0], first[1] << last[0]) if last[0] == last[1] and 0 <= last[0] < _BITS else None
    match operator:
        case "to_integer" | "to_float":
            return first
        case "neg":
            return -first[1], -first[0]
        case "abs":
            return 0, max(map(abs, first))
        case "bitwise_or" | "bitwise_xor" if first[0] >= 0 and last[0] >= 0:
            return 0, 2 ** max(first[1], last[1]).bit_length() - 1
        case _ if operator in _MONOTONIC:
            ends = [_MONOTONIC[operator](a, b) for a in first for b in last]
            return min(ends), max(ends)
        case _:
            return None


def _around(parts: list[Bounds | None]) -> Bounds | None:
    known = [p for p in parts if p]
    return (min(p[0] for p in known), max(p[1] for p in known)) if len(known) == len(parts) else None
