"""Lines of a canonical form as stages of expressions, whose reads are still at addresses in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from search_spaces.workloads import scans
from search_spaces.workloads.canonical.axis_splitting import Line
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)


def parsed_line(name: str, line: Any, names: Sequence[str]) -> Line:
    """The stage `name` of a form; `names`: of all stages, by their numbers."""
    dtype, own, fold, data, *scan = line
    # A fold of one element is still one: over an axis of one position.
    folded = (fold[1:] or [1]) if fold else []
    loops = [f"{name}_{n}" for n in range(len(own) + len(folded))]
    mine, over = loops[: len(own)], loops[len(own) :]
    reader = _Reader(loops, names)
    scanned: Sequence[Any] = ()
    if scan:
        ((_, place, reverse, numbers, combination),) = scan
        scanned = (mine[place], bool(reverse), tuple(names[n] for n in numbers), reader.expression(combination))
    extents = {x: n for x, (n, _) in zip(mine, own, strict=True)}
    strides = {x: step for x, (_, step) in zip(mine, own, strict=True)}
    axes = dict(zip(over, folded, strict=True))
    return Line(name, dtype, extents, strides, axes, fold[0] if fold else "", reader.expression(data), scanned)


@dataclass(frozen=True)
class _Reader:
    """Reads the data of one line: the names of its loops and of all stages, by their numbers."""

    loops: Sequence[str]
    names: Sequence[str]
    _known: dict[int, Expression] = field(default_factory=dict)

    def form(self, given: Any) -> Affine:
        offset, *terms = given
        return Affine.of(*((self.loops[place], c) for place, c in terms), offset=offset)

    def expression(self, e: Any) -> Expression:
        """The expression of some data; a shared part of a form stays shared."""
        found = self._known.get(id(e))
        if found is None:
            found = self._known[id(e)] = self._parsed(e)
        return found

    def _parsed(self, e: Any) -> Expression:
        match e:
            case ["input", number, at]:
                return Access(f"in{number}", (self.form(at),))
            case ["stage", number, at]:
                return Access(self.names[number], (self.form(at),))
            case ["guarded", inside, fill, *guards]:
                return self._guarded(inside, fill, guards)
            case ["gather", number, *table]:
                at = tuple(self._place(i) for _, _, i in table)
                sizes = (Affine(offset=n) for size, step, _ in table for n in (size, step))
                return Gather(f"in{number}", (*at, *sizes))
            case ["segment", number, size, at]:
                return Segment(f"in{number}", self._place(at), size)
            case ["position", at]:
                return Position(self.form(at))
            case ["literal", value]:
                return Literal(float(value))
            case ["integer", value]:
                return Integer(value)
            case [str(side), int(number)]:
                return scans.operand(side, number)
            case [operator, *arguments]:
                return Apply(operator, tuple(map(self.expression, arguments)))
        raise AssertionError(e)

    def _place(self, at: Any) -> Affine | Expression:
        return self.form(at) if _is_form(at) else self.expression(at)

    def _guarded(self, inside: Any, fill: Any, guards: Any) -> Access:
        read = self.expression(inside)
        assert isinstance(read, Access)
        given = (i for size, at, step in guards for i in (self.form(at), Affine(offset=size), Affine(offset=step)))
        return Access(read.tensor, (*read.index, *given), float(fill))


def _is_form(data: Any) -> bool:
    return not data or isinstance(data[0], int)
