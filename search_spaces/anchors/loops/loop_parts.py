"""Parts of a loop under a mask: iterations that have an effect, and those that need no mask.

    every row m sees columns c <= m             tiles of 128 rows from m.0*128 on, and of 64 columns from c.0*64 on

    for c.0 from 0 while c.0*64 + 63 <= m.0*128:                  whole: no column of the tile is masked
    for c.0 from there while c.0*64 <= m.0*128 + 127:             the boundary, with the mask
                                                                  and no more: nothing is seen there

A set of positions is an affine form of the axes: the positions where it is not negative (`contributions`). The
end of the streamed axis is one more form, if a tile does not end with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from search_spaces.anchors.loops.contributions import Guards, Sign
from search_spaces.anchors.loops.range_ends import useful_within
from search_spaces.programs.lowering import largest_at
from search_spaces.programs.tiles import Bound, Slice
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Apply, Expression, Integer, Literal, call
from search_spaces.workloads.expressions.walking import distinct, rewritten
from search_spaces.workloads.workload import Axis


@dataclass(frozen=True)
class LoopPart:
    """The iterations of one loop: those within all of `until`, without those within all of a group of `since`.

    `known`: forms that are negative nowhere in their tiles, and conditions that hold everywhere. `reaches`: true if
    tiles may reach beyond the streamed axis. `between`: they lie between boundaries, and may be empty.
    """

    until: tuple[Bound, ...] = ()
    since: tuple[tuple[Bound, ...], ...] = ()
    known: frozenset[Sign] = frozenset()
    reaches: bool = False
    between: bool = False


@dataclass(frozen=True)
class Mask:
    """Positions where folds gain nothing: where one of the forms is negative, or a condition does not hold.

    `ranged`: further forms, of ends that are data. `ends`: that is so of all positions beyond the end of the streamed
    axis. `online`: the forms for which that holds while points are folded, whatever becomes of rows without any;
    `conditions`: the same for values that are read.
    """

    guards: Guards
    forms: frozenset[Affine]
    ends: bool = False
    online: frozenset[Affine] = frozenset()
    conditions: frozenset[Expression] = frozenset()
    ranged: frozenset[Affine] = frozenset()

    def useful(self, place: Mapping[str, Slice], variable: str) -> tuple[Bound, ...]:
        """Bounds of the iterations that have an effect."""
        return useful_within(self.forms, place, variable)

    @property
    def apart(self) -> frozenset[Affine]:
        """The forms that are worth loops of their own: where none is negative, nothing is masked."""
        return frozenset(f for f in self.forms if all(e.exactly for v, e in self.guards.ends.items() if f.step(v)))

    def unmasked(self, e: Expression, known: Collection[Sign]) -> Expression:
        """The expression where none of these forms is negative, and these conditions hold."""

        def chosen(part: Expression) -> Expression | None:
            if not (isinstance(part, Apply) and part.operator == "where" and known):
                return None
            condition, first, second = part.arguments
            left = self._undecided(condition, known)
            if left is None:
                return self.unmasked(first, known)
            failing = {-form + Affine(offset=-1) for form in self.guards.holding(condition) or ()}
            if (len(failing) == 1 and failing <= {*known}) or _denied(condition) in known:
                return self.unmasked(second, known)
            return (
                None if left == condition else call("where", left, *(self.unmasked(x, known) for x in (first, second)))
            )

        return rewritten(e, chosen)

    def _undecided(self, condition: Expression, known: Collection[Sign]) -> Expression | None:
        """The remaining condition where none of these forms is negative; None if it then holds."""
        holding = self.guards.holding(condition)
        if condition in known or (holding and holding <= {*known}):
            return None
        match condition:
            case Apply("mul" | "minimum", (a, b)):
                parts = [x for x in (self._undecided(a, known), self._undecided(b, known)) if x is not None]
                return parts[0] if len(parts) == 1 else call(condition.operator, *parts) if parts else None
            case _:
                return condition


def ruled_out(e: Expression, failing: Expression) -> Expression:
    """The expression where a condition does not hold."""

    def chosen(part: Expression) -> Expression | None:
        if not (isinstance(part, Apply) and part.operator == "where"):
            return None
        condition, *branches = part.arguments
        holds = _holds(condition, failing)
        return None if holds is None else ruled_out(branches[not holds], failing)

    return rewritten(e, chosen)


def failing(e: Expression, guards: Guards, forms: Collection[Affine]) -> frozenset[Expression]:
    """The conditions of an expression's selections that do not hold where one of these forms is negative."""
    found: set[Expression] = set()
    left = [part.arguments[0] for part in distinct(e) if isinstance(part, Apply) and part.operator == "where"]
    while left:
        match left.pop():
            case Apply("mul" | "minimum" | "bitwise_and", arguments):
                left += arguments
            case condition:
                outside, _ = guards.truth(condition)
                found |= {condition} if outside and not outside.isdisjoint(forms) else set()
    return frozenset(found)


def _holds(condition: Expression, failing: Expression) -> bool | None:
    """True if a condition holds wherever another one fails, false if it fails there, None if that is undecided."""
    if condition == failing:
        return False
    if condition == _denied(failing):
        return True
    match condition:
        case Apply("eq", (denied, Literal(0.0) | Integer(0))):
            held = _holds(denied, failing)
            return None if held is None else not held
        case Apply("mul" | "minimum" | "bitwise_and", arguments):
            return False if any(_holds(a, failing) is False for a in arguments) else None
        case _:
            return None


def _denied(condition: Expression) -> Expression | None:
    """The condition whose negation this one is."""
    match condition:
        case Apply("eq", (denied, Literal(0.0) | Integer(0))):
            return denied
        case _:
            return None


def parts_of(axis: Axis, mask: Mask, place: Mapping[str, Slice], variable: str, even: bool) -> tuple[LoopPart, ...]:
    """The parts of a loop over a variable, which goes over an axis; `even`: tiles end where that does."""
    end = Affine.of((axis.name, -1), offset=axis.extent - 1)
    forms = sorted({*mask.apart, *(() if even else (end,))}, key=str)
    steps = {f: dict(_smallest(f, place).terms).get(variable, 0) for f in forms}
    upper = [f for f in forms if steps[f] < 0]
    lower = [f for f in forms if steps[f] > 0]
    # If several begin somewhere, one is separated from its boundary; the others stay masks.
    known = frozenset({*upper, *lower[:1]})
    ending = tuple(Bound(-_smallest(f, place), 1) for f in upper)
    beginning = tuple(Bound(_smallest(f, place), 0) for f in lower[:1])
    if not known:
        return (LoopPart(reaches=not even),)
    before = (beginning,) if beginning else ()
    parts = list[LoopPart]()
    if not all(_is_single(f, place) for f in lower[:1]):
        parts.append(LoopPart(until=beginning, known=_beside(lower[0], upper, place), reaches=not even))
    reaches = not even and end not in known
    parts.append(LoopPart(until=ending, since=before, known=known, reaches=reaches, between=True))
    if not all(_is_single(f, place) for f in upper):
        far = _beside(upper[0], lower[:1], place) if len(upper) == 1 else frozenset()
        parts.append(LoopPart(since=(*before, ending), known=far, reaches=not even))
    return tuple(parts)


def _beside(form: Affine, others: Collection[Affine], place: Mapping[str, Slice]) -> frozenset[Affine]:
    """The other forms that are negative nowhere in a tile in which this form is somewhere.

    A window of 512 is wider than a tile: if one of its ends is in a tile, the other is not.
    """
    spread = largest_at(form, place) - _smallest(form, place)
    sums = {other: form + other - spread for other in others}
    return frozenset(other for other, left in sums.items() if not left.terms and left.offset >= -1)


def _is_single(form: Affine, place: Mapping[str, Slice]) -> bool:
    """True if a form has one value in a tile: no tile is then at a boundary, and those beyond have no effect."""
    return largest_at(form, place) == _smallest(form, place)


def _smallest(form: Affine, place: Mapping[str, Slice]) -> Affine:
    return -largest_at(-form, place)
