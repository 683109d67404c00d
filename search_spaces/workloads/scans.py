"""Scans: every element is combined with all that come before it along an axis.

    y[t] = y[t - 1] + x[t]                          one value:    left[0] + right[0]
    a[t] = a[t - 1] u[t]                            two values:   left[0] * right[0]
    h[t] = u[t] h[t - 1] + x[t]                                   right[0] * left[1] + right[1]

The stages of a scan, its members, are one value each: `left[1]` is the second one, combined over some neighbouring
elements, `right[1]` over the elements that follow these. The very first element is that of the stage's expression.
Combinations are associative, so that pieces can be scanned apart; integers are read as integers (`to_integer`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.errors import InputError
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.operators import LARGEST_INTEGER, LEAST_INTEGER
from search_spaces.workloads.expressions.walking import accesses, rewritten, walk

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True)
class Scan:
    """Stages that are scanned together along one of their axes; `combine`: the combination of each of these `members`.

    `reverse`: from the last element to the first one. Then the left operand comes after the right one.
    """

    axis: str
    members: tuple[str, ...]
    combine: tuple[Expression, ...]
    reverse: bool = False

    def __post_init__(self) -> None:
        if not self.members or len(set(self.members)) < len(self.members):
            raise InputError(f"a scan of {list(self.members)}; expected at least one stage, each once")
        if len(self.combine) != len(self.members):
            raise InputError(f"a scan of {len(self.members)} stages combines {len(self.combine)} values")
        for e in (e for c in self.combine for e in walk(c)):
            if isinstance(e, ex.LookUp | ex.Position) or (isinstance(e, Access) and not self._is_operand(e)):
                raise InputError(f"a scan of {list(self.members)} combines {ex.to_text(e)}; expected its own values")

    def _is_operand(self, access: Access) -> bool:
        return access in {operand(side, n) for side in (LEFT, RIGHT) for n in range(len(self.members))}

    def combined(self, left: Sequence[Expression], right: Sequence[Expression]) -> tuple[Expression, ...]:
        """The combinations of these values of all members."""
        given = {operand(LEFT, n): e for n, e in enumerate(left)} | {operand(RIGHT, n): e for n, e in enumerate(right)}
        return tuple(rewritten(c, lambda e: given.get(e) if isinstance(e, Access) else None) for c in self.combine)


def operand(side: str, number: int) -> Access:
    """The value of a member of the scan in a combination."""
    return Access(side, (Affine(offset=number),))


def needed_members(combine: Sequence[Expression], wanted: int) -> list[int]:
    """The values that one of them depends on, itself first, the others in the order in which they are read."""
    found = {wanted: None}
    rest = [wanted]
    while rest:
        read = (a.index[0].offset for a in accesses(combine[rest.pop(0)]))
        new = [number for number in dict.fromkeys(read) if number not in found]
        found.update(dict.fromkeys(new))
        rest += new
    return [*found]


def of_some(combine: Sequence[Expression], numbers: Sequence[int]) -> tuple[Expression, ...]:
    """The combinations of some of the values, which read no others, renumbered by their places among these."""

    def change(e: Expression) -> Expression | None:
        return operand(e.tensor, numbers.index(e.index[0].offset)) if isinstance(e, Access) else None

    return tuple(rewritten(combine[n], change) for n in numbers)


def unchanging(combine: Sequence[Expression], whole: bool) -> Expression | None:
    """The neutral value of a combination; None if unknown. `whole`: of integers."""
    (combined, *others) = combine
    if others or not isinstance(combined, Apply):
        return None
    sides = [ex.call("to_integer", operand(s, 0)) if whole else operand(s, 0) for s in (LEFT, RIGHT)]
    neutral = (_OF_INTEGERS if whole else _OF_NUMBERS).get(combined.operator)
    return neutral if list(combined.arguments) in (sides, sides[::-1]) else None


_OF_NUMBERS: Mapping[str, Expression] = {
    "add": Literal(0.0),
    "mul": Literal(1.0),
    "maximum": Literal(-math.inf),
    "minimum": Literal(math.inf),
}
_OF_INTEGERS: Mapping[str, Expression] = {
    "add": Integer(0),
    "mul": Integer(1),
    "maximum": Integer(LEAST_INTEGER),
    "minimum": Integer(LARGEST_INTEGER),
}
