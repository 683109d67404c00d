"""Unrolling: several copies of a loop's body for one iteration.

Before:  for k: acc += a[k] * b[k]               After (unroll=4):  for k in 0, 4, 8, …: four copies of the body
Before:  for j in 64: out[j] = x[2*j] + x[2*j + 1] + x[2*j + 2]
After (unrolled_columns=2):  for j in 32: out[2*j], out[2*j + 1] of x[4*j : +5], which is loaded once

On a CPU of the innermost loop of a dot; where threads accumulate, with all tiles loaded before the first is used; of
points, along rows and columns. Unroll and jam, register tiling (compilers); unroll (Halide, TVM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_body
from search_spaces.programs.statements import Dot, Statement
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("unroll", "unrolled_planes", "unrolled_rows", "unrolled_columns")
# Unrolled points of an axis; of planes on a CPU those that divide them.
ROWS, COLUMNS, PLANES = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 3, 4, 5, 7, 8)
WHERE_NOT = "In dots on a GPU, whose compilers unroll them; where neighbouring points read nothing in common."


def unrolled_rows(counts: Sequence[int] = ROWS) -> Decision:
    """Rows of points of an iteration; the base program is made with it."""
    return Decision(Choice("unrolled_rows", tuple(counts)))


def unrolled_planes(counts: Sequence[int] = ROWS) -> Decision:
    """The same of another axis, as the rows of an image whose channels come last."""
    return Decision(Choice("unrolled_planes", tuple(counts)))


def unrolled_columns() -> Decision:
    """The same of columns."""
    return Decision(Choice("unrolled_columns", COLUMNS))


def unrolling() -> Decision:
    """One step of a reduction to eight; where threads accumulate, the base program is made with it."""
    return Decision(Choice("unroll", (1, 2, 4, 8)), _unrolled)


def _unrolled(program: TileProgram, values: Values) -> TileProgram:
    def unrolled(s: Statement) -> Statement:
        return replace(s, unroll=values.integer("unroll")) if isinstance(s, Dot) else s

    return each_body(program, unrolled)
