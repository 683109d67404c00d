"""Prefetching on a CPU: operands are loaded into the caches ahead of their use.

Before:  for c: y[c] = f(x[c])
After (prefetch=1024):  for c: prefetch x[c] + 1024 bytes; y[c] = f(x[c])

In element-wise loops the distance is counted in bytes; in dots, where operands are read row by row, in rows of b.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, Effect, each_body, each_launch
from search_spaces.programs.statements import Dot, Statement
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("prefetch",)
WHERE_NOT = "On a GPU, where asynchronous copies and the number of programs hide latency."

# Not at all, or far enough to cover the latency of memory at its bandwidth.
_BYTES = (0, 1024, 4096)
_ROWS = (0, 1, 2, 8)


def prefetching() -> Decision:
    """Distance in bytes at which an element-wise loop prefetches."""
    return _prefetching(_BYTES, _launched)


def prefetching_rows() -> Decision:
    """Distance in rows of b at which a dot prefetches."""
    return _prefetching(_ROWS, _ahead)


def _prefetching(distances: tuple[int, ...], effect: Effect) -> Decision:
    return Decision(Choice("prefetch", distances), effect, bears_on="nothing")


def _launched(program: TileProgram, values: Values) -> TileProgram:
    return each_launch(program, lambda launch: replace(launch, prefetch_bytes=values.integer("prefetch")))


def _ahead(program: TileProgram, values: Values) -> TileProgram:
    def ahead(s: Statement) -> Statement:
        return replace(s, prefetch_b=values.integer("prefetch")) if isinstance(s, Dot) else s

    return each_body(program, ahead)
