"""Work items: the rows of a tile, which data determines, are found by its program, or read from a list made before.

Before:  grid m.0, n.0: scan the tiles of all segments for the one of this program; compute it      (items=program)
After (items=list):
         grid m.0: scan the tiles of all segments; store items[m.0] = segment, first row, end
         grid m.0, n.0: load items[m.0]; compute the tile

A list is another kernel, and single numbers are all that a producer and its consumers need to find a tile.

Also called tile schedulers of grouped GEMMs (CUTLASS), block maps or sorted expert ids (vLLM, MegaBlocks).
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("items",)
WHERE_NOT = "Where no data cuts the rows of a product into segments."

PROGRAM, LIST = "program", "list"


def work_items() -> Decision:
    """The base program is made with it."""
    return Decision(Choice("items", (PROGRAM, LIST), ordered=False))
