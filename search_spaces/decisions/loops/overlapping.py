"""Overlap of dots with their consumers: dots of an iteration run while the results of the previous ones are used.

Before:  for c.0: s = dot(q, k); p = exp(s - top); acc += dot(p, v)
After (overlap=True):  s of the first iteration;  for c.0: the next s = dot(q, k), and meanwhile p = exp(s - top); …

Intra-warpgroup pipelining in FlashAttention-3 (Shah et al., 2024, section 3.2).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_launch
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("overlap",)
WHERE_NOT = "Where dots follow on no dots."


def overlapping() -> Decision:
    """Overlapped or one after the other."""
    return Decision(Choice("overlap", (False, True)), _overlapped)


def _overlapped(program: TileProgram, values: Values) -> TileProgram:
    return each_launch(program, lambda launch: replace(launch, overlapped=values.flag("overlap")))
