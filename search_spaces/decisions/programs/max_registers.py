"""Cap on the registers of a thread: fewer registers, more resident programs; spilled values go to memory.

Before:  launch: max_registers 0 (as many as the compiler takes)        After (max_registers=128):  launch: at most 128

Also called maxrregcount (nvcc), `maxnreg` (Triton).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_launch
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("max_registers",)
WHERE_NOT = "On a CPU; where registers are not what bounds how many programs are resident."


def max_registers(caps: tuple[int, ...]) -> Decision:
    """No cap, or one of these."""
    return Decision(Choice("max_registers", (0, *caps)), _launched)


def _launched(program: TileProgram, values: Values) -> TileProgram:
    return each_launch(program, lambda launch: replace(launch, max_registers=values.integer("max_registers")))
