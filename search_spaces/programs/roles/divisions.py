"""Divisions by a number for every row: one reciprocal a row, and a product for every element.

    result = acc / total                    total_inverse = 1 / total
                                            result = acc * total_inverse

A division takes eight instructions. Denormal numbers have no finite reciprocal, and that of the largest numbers is
denormal: so divisors are sums of exponentials only, which are relative to the largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from search_spaces.programs.statements import Map, Reduce, Statement, statements
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.names import Names

_EXPONENTIALS = frozenset({"exp", "exp2", "exp2_normal"})


def divided_by_rows(
    body: Sequence[Statement], loops: Sequence[Statement], tiles: Mapping[str, Tile], rows: str
) -> tuple[Statement, ...]:
    """The statements with the reciprocals of their rows' divisors, which `loops` reduce; `tiles`: all, by name."""
    names, sums = Names({*tiles}), _sums_of_exponentials(loops)
    divisors = {name: t for name, t in tiles.items() if name in sums and t.axes == (rows,)}
    return tuple(new for s in body for new in _divided(s, divisors, names))


def _sums_of_exponentials(loops: Sequence[Statement]) -> set[str]:
    """Accumulators of sums of exponentials."""
    every = [*statements(tuple(loops))]
    powers = {s.dst.name for s in every if isinstance(s, Map) and s.operator in _EXPONENTIALS}
    parts = {s.dst.name for s in every if isinstance(s, Reduce) and s.operator == "sum" and s.src in powers}
    return parts | {s.dst.name for s in every if isinstance(s, Map) and s.operator == "add" and parts & {*s.arguments}}


def _divided(s: Statement, divisors: Mapping[str, Tile], names: Names) -> Iterator[Statement]:
    match s:
        case Map(dst=dst, operator="div", arguments=(dividend, str(divisor))) if (
            len(dst.axes) > 1 and divisor in divisors and s.computed == "float32"
        ):
            inverse = replace(divisors[divisor], name=names.fresh(f"{divisor}_inverse"), dtype="float32")
            yield Map(inverse, "div", (1.0, divisor))
            yield replace(s, operator="mul", arguments=(dividend, inverse.name))
        case _:
            yield s
