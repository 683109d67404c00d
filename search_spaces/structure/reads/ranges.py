"""Ranges of positions whose ends are data: integers that are read where the positions are not counted.

    begin[g] <= t, t < end[g]             from begin[g] below end[g]
    begin[g] < t, t <= last[g]            from begin[g] + 1 below last[g] + 1
    segment(ends, t) == s[r]              from ends[s[r] - 1] below ends[s[r]]: whatever the order of the ends is, the
                                          bisection has compared t with both

In affine forms an end is a variable, named by its expression, which no axis is. Its value counts as the nearest one
from 0 to the number of positions, which changes no comparison with any of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    LookUp,
    Segment,
    add,
    call,
    sub,
    to_text,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import distinct, variables

# Integers up to here are exact in float32.
_EXACT = 2**24


@dataclass(frozen=True)
class RangeEnd:
    """The begin or the end of a range: an `expression` of integers; larger values than `most` count as that.

    `exactly`: some condition holds everywhere between this end and another one.
    """

    expression: Expression
    most: int
    exactly: bool

    @property
    def variable(self) -> str:
        """Its name as a variable of affine forms."""
        return f"({to_text(self.expression)})"


@dataclass(frozen=True)
class Range:
    """The positions outside, where one of the forms is negative; `exactly`: a condition holds at all others."""

    outside: frozenset[Affine]
    exactly: bool = True


def is_ranged(form: Affine) -> bool:
    """True if a variable of the form is the end of a range."""
    return any(not v.isidentifier() for v in form.axes)


@dataclass(frozen=True)
class Ranges:
    """Ranges of the `folded` axes in conditions. `position`: an expression as an affine form of positions, or None.

    `dtypes`: element types of the inputs; `ends`: all ends found, by their variables.
    """

    position: Callable[[Expression], Affine | None]
    extents: Mapping[str, int]
    folded: frozenset[str]
    dtypes: Mapping[str, str]
    ends: dict[str, RangeEnd]

    def of(self, condition: Expression) -> Range | None:
        """The range outside of which a condition does not hold, or None."""
        match condition:
            case Apply("lt" | "le", (first, second)):
                after = int(condition.operator == "lt")
                return self._compared(second, first, after, None) or self._compared(first, second, None, 1 - after)
            case Apply("eq", (first, second)):
                return (
                    self._compared(first, second, 0, 1)
                    or self._compared(second, first, 0, 1)
                    or self._in_segment(first, second)
                    or self._in_segment(second, first)
                )
            case _:
                return None

    def _compared(self, counted: Expression, e: Expression, begin: int | None, end: int | None) -> Range | None:
        """Positions from `e + begin` below `e + end`."""
        at, number = self._folded_position(counted), self._integer(e)
        if at is None or number is None:
            return None
        first, last = (None if by is None else _above(number, by, self._most(at)) for by in (begin, end))
        return self._between(at, first, last)

    def _in_segment(self, e: Expression, other: Expression) -> Range | None:
        """Positions whose segment is the number."""
        segment, number = segment_of(e), self._integer(other)
        if segment is None or number is None or not isinstance(segment.position, Affine):
            return None
        begin, end = ends_of(segment, number, self._most(segment.position))
        return self._between(segment.position, begin, end, exactly=False) if self._is_folded(segment.position) else None

    def _between(self, at: Affine, begin: Expression | None, end: Expression | None, exactly: bool = True) -> Range:
        forms, most = set(), self._most(at)
        if begin is not None:
            forms.add(at - self._variable(RangeEnd(begin, most, exactly)))
        if end is not None:
            forms.add(self._variable(RangeEnd(end, most, exactly)) - at + Affine(offset=-1))
        return Range(frozenset(forms), exactly)

    def _variable(self, end: RangeEnd) -> Affine:
        known = self.ends.get(end.variable, end)
        exactly = known.exactly or end.exactly
        self.ends[end.variable] = replace(end, most=max(end.most, known.most), exactly=exactly)
        return axis_index(end.variable)

    def _most(self, at: Affine) -> int:
        return at.maximum(self.extents) + 1

    def _folded_position(self, e: Expression) -> Affine | None:
        at = self.position(e)
        return at if at is not None and self._is_folded(at) else None

    def _is_folded(self, at: Affine) -> bool:
        return not self.folded.isdisjoint(at.axes) and at.minimum(self.extents) >= 0

    def _integer(self, e: Expression) -> Expression | None:
        """The expression as an integer; None unless it is one that is computed of inputs, and at no folded position."""
        read = {part.tensor for part in distinct(e) if isinstance(part, Access | LookUp)}
        if not read or not read <= self.dtypes.keys() or not self.folded.isdisjoint(variables(e)):
            return None
        if is_integral(e):
            return e
        if isinstance(e, Apply) and e.operator == "to_float":
            return e.arguments[0]
        # One that float32 rounds is beyond all positions, before and after.
        held = isinstance(e, Access | Gather) and is_integer(self.dtypes[e.tensor])
        return call("to_integer", e) if held else None


def segment_of(e: Expression) -> Segment | None:
    """The segment that an expression is, also in float32."""
    match e:
        case Segment():
            return e
        case Apply("to_float", (Segment() as inner,)) if inner.size <= _EXACT:
            return inner
        case _:
            return None


def ends_of(segment: Segment, number: Expression, most: int) -> tuple[Expression, Expression]:
    """The first position of the segment of this number, and the one after the last, `most` behind the last segment."""
    begin = call("to_integer", Gather(segment.tensor, (sub(number, Integer(1)),)))
    end = call("to_integer", Gather(segment.tensor, (number,)))
    # What is no index reads 0, where the first segment begins.
    return begin, call("where", call("lt", number, Integer(segment.size)), end, Integer(most))


def _above(number: Expression, by: int, most: int) -> Expression:
    """The number plus `by`, where that is at most `most`; the largest integer has no successor."""
    return add(call("minimum", number, Integer(most)), Integer(by)) if by else number
