"""Skipping: tiles that a mask in memory rules out are neither loaded nor multiplied.

Before:  for c0.0 in 64: s = dot(q, k_tile); …; acc += dot(p, v_tile)            p is 0 where kept[m0, c0] does not hold
After (skip=True):  marks = load kept[m0.0, 0 : +64]
                    for c0.0 in 64 where marks: the same, of the kept blocks

If a mask is a range whose ends are data, a loop has the tiles between these instead, and needs no marks.

Block-sparse attention, block masks (FlexAttention), `cu_seqlens` and key lengths where padding makes the mask.
"""

from __future__ import annotations

from collections.abc import Callable

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice, Values
from search_spaces.schedules.rules import Rule

NAMES = ("skip",)
WHERE_NOT = "Where no mask is read, it differs between the rows of a tile, or no loop is over what it is of."


def skipping(tiled: str, iterations: Callable[[Values], int]) -> Decision:
    """All iterations, or those that a mask leaves; `iterations`: their number by the decision `tiled`.

    The base program is made with it: tiles that are known to be unmasked need no mask.
    """

    def why_none(values: Values) -> str | None:
        if not values["skip"] or iterations(values) > 1:
            return None
        return "skip leaves out iterations of a loop; a tile holds all that is walked"

    return Decision(Choice("skip", (False, True)), rules=(Rule(("skip", tiled), why_none),))


def is_skipping(values: Values) -> bool:
    """True if a schedule computes only what a mask leaves."""
    return "skip" in values and values.flag("skip")
