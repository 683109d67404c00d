"""Packing on a CPU: operands of a dot are read in place, or copied first into the order of the main loop's reads.

Before:  for i, j: c += dot(rows i of a, columns j of b)             columns of b are as far apart as its rows are long
After (pack_b=panels):  copy b into panels;  for i, j: c += dot(rows i of a, panel j of b)
      (pack_a=rows):    copy rows of a with padding between them, so that they do not share a set of the cache
      (pack_a=box):     copy what is read of a once, with its padding, and read the copy in place at every tap
      (pack_b=prepared): the panels of a constant b are made once, and not at a call

Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008); packing in BLIS; cache stage (Ansor).
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice, KnobValue

NAMES = ("pack_a", "pack_b", "pack_rows", "pack_walked", "pack_carried")
WHERE_NOT = "On a GPU, where operands go through shared memory; on a CPU where there is no dot."

IN_PLACE, ROWS, PANELS, BOX, PREPARED = "no", "rows", "panels", "box", "prepared"


def packing(name: str, ways: tuple[KnobValue, ...]) -> Decision:
    """One of these ways, with which the base program is made."""
    return Decision(Choice(name, ways, ordered=False), bears_on="nothing")
