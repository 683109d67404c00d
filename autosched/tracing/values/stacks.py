"""Parts of a concatenation that differ in constants alone, as one expression of the part's number n.

    stack((x & 15, x >> 4)), x of 8 bits without a sign    (x >> 4 n) & 15
    stack(((x << 4) >> 4, x >> 4)), x of 8 bits            (x << 4 - 4 n) >> 4
    stack((a + 3, a + 5, a + 7))                           a + (3 + 2 n)

So every element is read once for all parts. Numbers of a few bits are packed like that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.tracing.values.values import Pointwise, Value, View
from search_spaces.workloads.dtypes import range_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Apply, Expression, Integer, Position, call
from search_spaces.workloads.expressions.operators import WRAPPINGS
from search_spaces.workloads.expressions.whole_numbers import whole_numbers


def read_the_same(parts: Sequence[Value]) -> bool:
    """True if the parts are of one shape, and pointwise of the same values; views of such, if these are alike."""
    while isinstance(parts[0], View) and len({p.kind if isinstance(p, View) else None for p in parts}) == 1:
        parts = tuple(p.argument for p in parts if isinstance(p, View))
    computed = all(isinstance(p, Pointwise) for p in parts)
    return computed and len({(p.shape, _read(p)) for p in parts}) == 1


def _read(part: Value) -> frozenset[Value]:
    """The values that a part is pointwise of."""
    rest, found = [part], set[Value]()
    while rest:
        here = rest.pop()
        if isinstance(here, Pointwise):
            rest += here.arguments
        else:
            found.add(here)
    return frozenset(found)


@dataclass(frozen=True)
class Stack:
    """Parts as one expression of `place`, the number of the part. `dtypes`: element types of the tensors read."""

    place: Affine
    dtypes: Mapping[str, str]

    def together(self, parts: Sequence[Expression]) -> Expression | None:
        """One expression that is each part at its number; None if they differ in more than such constants."""
        first = parts[0]
        if all(p == first for p in parts):
            return first
        if all(isinstance(p, Integer) for p in parts):
            return self._progression([p.value for p in parts if isinstance(p, Integer)])
        for like in parts:
            rows = [self._arguments(p, like) for p in parts] if isinstance(like, Apply) else []
            columns = list(zip(*(r for r in rows if r is not None), strict=True)) if None not in rows else []
            made = [self.together(column) for column in columns]
            whole = [m for m in made if m is not None]
            if isinstance(like, Apply) and whole and len(whole) == len(like.arguments):
                return Apply(like.operator, tuple(whole))
        return None

    def _progression(self, numbers: Sequence[int]) -> Expression | None:
        step = numbers[1] - numbers[0]
        if any(b - a != step for a, b in itertools.pairwise(numbers)):
            return None
        return call("to_integer", Position(self.place * step + Affine(offset=numbers[0])))

    def _arguments(self, part: Expression, like: Apply) -> tuple[Expression, ...] | None:
        """The arguments with which the operator of `like` yields the part."""
        if isinstance(part, Apply) and part.operator == like.operator:
            return part.arguments
        match like:
            case Apply("shift_right" | "shift_left", (_, Integer())):
                return part, Integer(0)
            case Apply("bitwise_and", (_, Integer(mask))) if mask & (mask + 1) == 0 and self._is_within(part, 0, mask):
                return part, Integer(mask)
            case Apply(operator) if operator in WRAPPINGS and self._is_within(part, *range_of(WRAPPINGS[operator])):
                return (part,)
            case _:
                return None

    def _is_within(self, part: Expression, least: int, largest: int) -> bool:
        bounds = whole_numbers(part, self.dtypes)
        return bounds is not None and least <= bounds[0] and bounds[1] <= largest
