"""Warps of a program: the waves of threads that share its tiles.

Before:  launch: num_warps 4                     After (warps=8):  launch: num_warps 8

Also called block size (CUDA), num_warps (Triton), thread binding (TVM).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_launch
from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("warps",)
WHERE_NOT = "On a CPU, where a program is a thread."

_COUNTS = (1, 2, 4, 8, 16, 32)


def num_warps(target: Target, least: int = 1, most: int = 16, beside: tuple[int, ...] = ()) -> Decision:
    """Powers of two from `least` to `most`, and the counts of `beside`, as far as the device allows them."""
    counts = (*(c for c in _COUNTS if least <= c <= most), *beside)
    return Decision(Choice("warps", tuple(c for c in counts if c <= target.most_waves)), _launched)


def _launched(program: TileProgram, values: Values) -> TileProgram:
    return each_launch(program, lambda launch: replace(launch, num_warps=values.integer("warps")))
