"""Divisions by a number for every row: one reciprocal a row, and a product for every element.

    result = acc / total                    total_inverse = 1 / total
                                            result = acc * total_inverse

A division takes eight instructions. A row whose divisor is denormal has no finite reciprocal; sums of weights relative
to the largest are no less than 1. Other divisors of rows are taken alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from search_spaces.programs.statements import Map, Statement
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.names import Names


def divided_by_rows(body: Sequence[Statement], tiles: Mapping[str, Tile], rows: str) -> tuple[Statement, ...]:
    """The statements with the reciprocals of their rows' divisors; `tiles`: all there are."""
    names = Names({*tiles})
    return tuple(new for s in body for new in _divided(s, tiles, rows, names))


def _divided(s: Statement, tiles: Mapping[str, Tile], rows: str, names: Names) -> Iterator[Statement]:
    match s:
        case Map(dst=dst, operator="div", arguments=(dividend, str(divisor))) if (
            len(dst.axes) > 1 and tiles[divisor].axes == (rows,) and s.computed == "float32"
        ):
            inverse = replace(tiles[divisor], name=names.fresh(f"{divisor}_inverse"), dtype="float32")
            yield Map(inverse, "div", (1.0, divisor))
            yield replace(s, operator="mul", arguments=(dividend, inverse.name))
        case _:
            yield s
