"""Parts of a concatenation that differ in constants alone, as one expression of the part's number n.

    stack((x & 15, x >> 4)), x of 8 bits without a sign    (x >> 4 n) & 15
    stack(((x << 4) >> 4, x >> 4)), x of 8 bits            (x << 4 - 4 n) >> 4
    stack((a + 3, a + 5, a + 7))                           a + (3 + 2 n)

So every element is read once for all parts. Numbers of a few bits are packed like that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.values.templates import filled
from autosched.tracing.values.values import Pointwise, Value, View, as_read
from search_spaces.workloads.dtypes import range_of
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Position, call
from search_spaces.workloads.expressions.operators import WRAPPINGS
from search_spaces.workloads.expressions.whole_numbers import whole_numbers
from search_spaces.workloads.stages import MAX_EXTENT

# Operations between what is packed and a part.
_MOST_NESTED = 16
# Parts that are compared: of 64 bits four each.
_MOST_PARTS = 16
# Sets of terms that are compared within one of parts: of fields of bits about ten.
_MOST_TRIED = 100


def are_alike(parts: Sequence[Value]) -> bool:
    """True if the parts are of one shape, pointwise of the same values, and differ in such constants alone."""
    while isinstance(parts[0], View) and len({p.kind if isinstance(p, View) else None for p in parts}) == 1:
        parts = tuple(p.argument for p in parts if isinstance(p, View))
    first = parts[0]
    if (
        len(parts) > _MOST_PARTS
        or not isinstance(first, Pointwise)
        or any(p.shape != first.shape or p.dtype != first.dtype for p in parts)
    ):
        return False
    terms = _Terms()
    made = [terms.of(p, _MOST_NESTED) for p in parts]
    found = [e for e in made if e is not None]
    return len(found) == len(parts) and Stack(axis_index("part"), terms.dtypes).together(found) is not None


@dataclass
class _Terms:
    """Elements of pointwise values as expressions of other values, whose element types are `dtypes`, by name."""

    dtypes: dict[str, str] = field(default_factory=dict)
    _names: dict[Value, str] = field(default_factory=dict)

    def of(self, value: Value, nested: int) -> Expression | None:
        """The element; None where more values than that are computed from one another."""
        if not isinstance(value, Pointwise):
            name = self._names.setdefault(value, f"value{len(self._names)}")
            self.dtypes[name] = value.dtype
            return as_read(Access(name, ()), value.dtype)
        elements = [self.of(a, nested - 1) for a in value.arguments] if nested else [None]
        whole = [e for e in elements if e is not None]
        return filled(value.expression, whole) if len(whole) == len(elements) else None


@dataclass(frozen=True, eq=False)
class Stack:
    """Parts as one expression of `place`, the number of the part. `dtypes`: element types of the tensors read."""

    place: Affine
    dtypes: Mapping[str, str]
    _known: dict[tuple[Expression, ...], Expression | None] = field(default_factory=dict)

    def together(self, parts: Sequence[Expression]) -> Expression | None:
        """One expression that is each part at its number; None if they differ in more than such constants.

        Also if that takes long to find out: operations that change nothing may stand in many places.
        """
        given = tuple(parts)
        if given not in self._known and len(self._known) < _MOST_TRIED:
            self._known[given] = None
            self._known[given] = self._joined(given)
        return self._known.get(given)

    def _joined(self, parts: tuple[Expression, ...]) -> Expression | None:
        first = parts[0]
        if all(p == first for p in parts):
            return first
        if all(isinstance(p, Integer) for p in parts):
            return self._progression([p.value for p in parts if isinstance(p, Integer)])
        computed = [p for p in parts if isinstance(p, Apply)]
        of_all = [(like, self._all_arguments(parts, like)) for like in {p.operator: p for p in computed}.values()]
        of_one = ((like, self._all_arguments(parts, like, alone=True)) for like in computed)
        for like, rows in itertools.chain(of_all, of_one):
            made = [self.together(column) for column in zip(*rows, strict=True)]
            whole = [m for m in made if m is not None]
            if len(whole) == len(like.arguments):
                return Apply(like.operator, tuple(whole))
        return None

    def _all_arguments(
        self, parts: Sequence[Expression], like: Apply, alone: bool = False
    ) -> list[tuple[Expression, ...]]:
        """The arguments with which the operator of `like` yields each part; none if there are none for one.

        `alone`: parts other than `like` are arguments as a whole, also if they are of its operator.
        """
        rows = []
        for part in parts:
            own = isinstance(part, Apply) and part.operator == like.operator and (part == like or not alone)
            row = part.arguments if own and isinstance(part, Apply) else self._unchanged(part, like)
            if row is None:
                return []
            rows.append(row)
        return rows

    def _progression(self, numbers: Sequence[int]) -> Expression | None:
        steps = {b - a for a, b in itertools.pairwise(numbers)}
        if len(steps) > 1 or max(map(abs, numbers)) > MAX_EXTENT:
            return None
        return call("to_integer", Position(self.place * steps.pop() + Affine(offset=numbers[0])))

    def _unchanged(self, part: Expression, like: Apply) -> tuple[Expression, ...] | None:
        """Arguments of the operator of `like` with which it yields the part as it is."""
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
