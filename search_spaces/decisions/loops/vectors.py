"""Vectors of an iteration on a CPU: the registers' worth of neighbours that an element-wise loop processes at once.

Before:  for c in 0, 8, 16, …: y[c : +8] = f(x[c : +8])              After (vectors=4):  for c in 0, 32, …: four of them
      (across=True):  for r in 0, 8, …: for c: y[r : +8, c] = …      where columns are fewer than a vector has

Also called interleaving (LLVM), vectorise and unroll (Halide, TVM).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_launch
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("vectors", "across")
WHERE_NOT = "On a GPU, whose threads take vectors as wide as memory allows; in dots, whose register tile says it."


def vectorizing() -> Decision:
    """One vector to eight."""
    return Decision(Choice("vectors", (1, 2, 4, 8)), _launched, bears_on="nothing")


def across() -> Decision:
    """Vectors along the last axis, or across a short one; the base program is made with it."""
    return Decision(Choice("across", (False, True)))


def _launched(program: TileProgram, values: Values) -> TileProgram:
    return each_launch(program, lambda launch: replace(launch, vectors=values.integer("vectors")))
