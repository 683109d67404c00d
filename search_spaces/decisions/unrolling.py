"""Unrolling on a CPU: the steps of a dot's reduction in one iteration of its innermost loop.

Before:  for k: acc += a[k] * b[k]               After (unroll=4):  for k in 0, 4, 8, …: four of them, written out
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_kernel
from search_spaces.programs.statements import Dot, Statement, mapped
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("unroll",)
WHERE_NOT = "On a GPU, whose compilers unroll dots; on a CPU where there is no dot."


def unrolling() -> Decision:
    """One step to eight."""
    return Decision(Choice("unroll", (1, 2, 4, 8)), _unrolled)


def _unrolled(program: TileProgram, values: Values) -> TileProgram:
    def unrolled(s: Statement) -> Statement:
        return replace(s, unroll=values.integer("unroll")) if isinstance(s, Dot) else s

    return each_kernel(program, lambda kernel: replace(kernel, body=mapped(kernel.body, unrolled)))
