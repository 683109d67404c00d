"""Long segments apart: products of segments of few rows and of many are two kernels over the same outputs.

Before:  grid m.0 in 248, n.0: items of all segments, tiles of 16 rows
After (long=128):
         grid m.0 in 248, n.0: items of segments of at most 64 rows, tiles of 16 rows
         grid m.0 in 46, n.0:  items of segments of more, tiles of 128 rows

The tile of few rows is right for most segments, and reads the matrix of one that has all rows once for each tile. Up to
half of a long tile's rows a segment is short, so that it has no long tile which is mostly padding. Both kernels find
their items in the same way, those of the other's segments being none. The long one is the start whose tiles keep the
device busy for the shortest time if one segment has all rows, with at most the stages of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from search_spaces.anchors.contractions.dot_knobs import tiles_in
from search_spaces.anchors.contractions.work_items import Lengths, with_work_items
from search_spaces.decisions.programs.persistence import PERSISTENT
from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.segmented import Segmented

# Rows of tiles for long segments: those of the starts with most operations for what they load.
_SIZES = (64, 128)
# Sides of tiles that keep dot units busy, as the roofline has it: smaller ones load more for each operation.
_FULL_SIDE = 128


@dataclass(frozen=True)
class LongSegments:
    """The kernel of segments of more than half of `size` rows, in tiles of so many."""

    size: int
    of: Segmented
    sketch: Sketch
    values: Values

    @property
    def shorter(self) -> Lengths:
        """Lengths of the segments that it leaves to another kernel."""
        return Lengths(0, self.size // 2)

    def beside(self, short: TileProgram, stages: int) -> TileProgram:
        """The program with this kernel behind its own; `stages`: of its pipelines at most."""
        values = Values({**self.values, "stages": min(stages, self.values.integer("stages"))})
        longer = Lengths(self.size // 2, _rows(self.of))
        program = with_work_items(self.sketch.lower(values), self.of, self.size, False, longer)
        own = (replace(k, name=f"{k.name}_long") for k in program.kernels)
        return replace(short, kernels=(*short.kernels, *own))


def long_segments(of: Segmented, target: Target, sketched: Callable[[Segmented], Sketch]) -> dict[int, LongSegments]:
    """Kernels of long segments by the rows of their tiles, as far as there may be such segments.

    `sketched`: the schedules of one segment's product, by the tiles of all segments.
    """
    found = dict[int, LongSegments]()
    for size in _SIZES:
        # So many segments may be as long.
        most = min(_rows(of) // (size // 2 + 1), of.segment.size + 1)
        if not most:
            continue
        few = replace(of, form=replace(of.form, cuts=(of.form.cuts[0], max(1, most - 1))))
        sketch = sketched(few)
        plain = (sketch.plainly(v, "") for v in sketch.seeds if v.tile(of.cut) == size)
        starts = [v for v in plain if sketch.why_illegal(v) is None]
        if starts:
            # Persistent programs end behind the last item, which of others every one finds out for itself.
            best = min(starts, key=lambda v: (_busy(few, v, target), v["grid"] != PERSISTENT))
            found[size] = LongSegments(size, few, sketch, best)
    return found


def _rows(of: Segmented) -> int:
    return of.form.extents[of.form.cuts[0]]


def _busy(of: Segmented, values: Values, target: Target) -> float:
    """A measure of the time that a unit computes tiles one after the other, if one segment has all rows."""
    tiles = tiles_in(replace(of.form, cuts=("", 0)), values)
    side = math.sqrt(values.tile("m") * values.tile("n"))
    return math.ceil(tiles / target.num_sms) * side * max(side, _FULL_SIDE)
