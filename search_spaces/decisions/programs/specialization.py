"""Warp specialisation: one warp, the producer, loads operands; groups of warps, the consumers, multiply them.

Before:  for k.0: a = load …; b = load …; acc += dot(a, b)
After:   producer: for k.0: wait until a slot is empty; load a, b into it
         consumer: for k.0: wait until the slot is full; acc += dot(a, b); the slot is empty
         (cooperative: consumers share a tile's rows equally; pingpong: they alternate by tiles)

The launch asks for it; `programs.roles` assigns the roles, for contractions and for chained dots, or has the reason
that there are none.

Warp-specialised persistent cooperative and ping-pong kernels in CUTLASS 3, `warp_specialize` in Triton.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_launch
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("specialize",)
WHERE_NOT = "Where a device has no groups of warps that multiply together; of computed operands for 16-bit rows alone."

NONE, COOPERATIVE, PINGPONG = "none", "cooperative", "pingpong"


def specialization(possible: bool) -> Decision:
    """None, or one of two kinds."""
    kinds = (NONE, COOPERATIVE, PINGPONG) if possible else (NONE,)
    return Decision(Choice("specialize", kinds, ordered=False), _specialized)


def _specialized(program: TileProgram, values: Values) -> TileProgram:
    producers, alternating = int(values["specialize"] != NONE), values["specialize"] == PINGPONG
    return each_launch(program, lambda x: replace(x, producer_warps=producers, alternating=alternating))
