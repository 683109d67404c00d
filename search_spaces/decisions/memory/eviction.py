"""Eviction: tiles that are read once leave the caches first, so that tiles that are read again stay.

Before:  b_tile = load b[…]                      After (eviction=evict_first):  b_tile = load b[…], evict first

Also called cache hints (PTX `L2::evict_first`, Triton's `eviction_policy`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_body
from search_spaces.programs.statements import Load, Statement
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("eviction",)
WHERE_NOT = "Where several programs read the same tiles, which then had better stay."


def eviction(buffers: Collection[str]) -> Decision:
    """Eviction of the tiles of these buffers: first, or in the usual order."""

    def evicted(program: TileProgram, values: Values) -> TileProgram:
        if not values["eviction"]:
            return program
        return each_body(program, evict)

    def evict(s: Statement) -> Statement:
        return replace(s, eviction="evict_first") if isinstance(s, Load) and s.buffer in buffers else s

    return Decision(Choice("eviction", ("", "evict_first")), evicted)
