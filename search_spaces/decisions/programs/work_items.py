"""Work items: the rows of a tile, which data determines, are found by its program, or read from a list made before.

Before:  grid m.0, n.0: scan the tiles of all segments for the one of this program; compute it      (items=program)
After (items=list):
         grid m.0: scan the tiles of all segments; store items[m.0] = segment, first row, end
         grid m.0, n.0: load items[m.0]; compute the tile                  (grid=persistent: as many as listed)

After (long=128):
         grid m.0, n.0: the same of segments of at most 64 rows
         grid m.0, n.0: the same of segments of more, in tiles of 128 rows

A list is another kernel, and single numbers are all that a producer and its consumers need to find a tile.

Also called tile schedulers of grouped GEMMs (CUTLASS), block maps or sorted expert ids (vLLM, MegaBlocks).
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("items", "long")
WHERE_NOT = "Where no data cuts the rows of a product into segments."

PROGRAM, LIST = "program", "list"


def work_items() -> Decision:
    """The base program is made with it."""
    return Decision(Choice("items", (PROGRAM, LIST), ordered=False))


def long_tiles(sizes: tuple[int, ...]) -> Decision:
    """Rows of tiles for long segments, which a kernel of their own computes; 0: there is none."""
    return Decision(Choice("long", (0, *sizes)))
