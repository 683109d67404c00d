"""Starts of warp-group tiles on backends with other sizes than powers of two: those whose waves end first.

A wave is one tile per multiprocessor; with large tiles the last one leaves many idle (wave quantisation):

    3072 x 1024 on 132 multiprocessors      128 x 256: 96 tiles at once, which take as long as 32768 sums
                                            192 x 128: 128 tiles at once, which take as long as 24576
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from search_spaces.anchors.contractions.class_tiles import CLASSES, class_positions
from search_spaces.devices.group_dots import block_shape
from search_spaces.schedules.knobs import Knob, KnobValue
from search_spaces.schedules.limits import Offers
from search_spaces.structure.contraction import Contraction

# Number of such starts.
_STARTS = 10
# Sums that take as long as the loads of a row and of a column of a tile: smaller tiles load more for each sum.
_LOADED = 24.0
# Iterations of the main loop that a tile's epilogue takes, unless the other warp group's dots run meanwhile.
_EPILOGUE = 48
# Sums that take as long as a second kernel that joins the parts of a split reduction: 4 µs at 3.6 a picosecond (H100).
_JOINED = 14e6


@dataclass(frozen=True)
class OfferedStart:
    """A tile of `rows` x `columns` of `blocks` blocks, each of `groups` warp groups."""

    rows: int
    columns: int
    kind: str
    groups: int
    stages: int
    blocks: int = 1
    split: int = 1

    def values(self, swapped: bool, waves: int) -> dict[str, KnobValue]:
        """Values of its knobs except the tile's; a warp group has `waves` waves."""
        return {
            "specialize": self.kind,
            "warps": waves * self.groups,
            "stages": self.stages,
            "ctas": self.blocks,
            "swap": swapped,
            "split": self.split,
        }

    def seconds(self, rows: int, columns: int, depth: int, num_sms: int) -> float:
        """Time of all tiles of an output of `rows` x `columns`, in steps of one sum."""
        tiles = math.ceil(rows / self.rows) * math.ceil(columns / self.columns) * self.split
        block_rows, block_columns = block_shape(self.rows, self.columns, self.blocks)
        waves = math.ceil(tiles / (num_sms // self.blocks))
        loads = 1 + _LOADED / self.rows + _LOADED / self.columns
        epilogue = _EPILOGUE * (self.kind != "pingpong")
        joined = _JOINED if self.split > 1 else 0
        return waves * block_rows * block_columns * (depth / self.split * loads + epilogue) + joined


_ALL = (
    OfferedStart(128, 256, "cooperative", 2, 4),
    OfferedStart(256, 256, "cooperative", 2, 4, 2),
    OfferedStart(128, 192, "cooperative", 2, 5),
    OfferedStart(192, 128, "cooperative", 3, 5),
    OfferedStart(192, 160, "cooperative", 3, 4),
    OfferedStart(128, 192, "pingpong", 2, 4),
    OfferedStart(256, 192, "pingpong", 2, 4, 2),
    OfferedStart(128, 160, "pingpong", 2, 5),
    OfferedStart(256, 160, "pingpong", 2, 5, 2),
    OfferedStart(128, 128, "pingpong", 2, 6),
    OfferedStart(128, 128, "cooperative", 2, 8, 2),
    OfferedStart(64, 128, "cooperative", 1, 8),
    OfferedStart(128, 96, "cooperative", 2, 8),
)


# For outputs of few rows or columns: all of these in a tile, and more of the others, which share them.
_NARROW = (
    OfferedStart(256, 128, "cooperative", 2, 6, 2),
    OfferedStart(256, 128, "pingpong", 2, 6, 2),
    OfferedStart(192, 64, "cooperative", 3, 6),
    OfferedStart(256, 64, "cooperative", 2, 5),
    OfferedStart(128, 64, "cooperative", 2, 8),
    OfferedStart(128, 64, "pingpong", 2, 8),
    OfferedStart(256, 64, "cooperative", 2, 8, 2),
    OfferedStart(64, 256, "cooperative", 1, 5),
    OfferedStart(64, 192, "cooperative", 1, 6),
)
_FEW = 64
# The same of windows, of which taps are loaded again and again; and parts of their reduction, if there are few tiles.
_FEW_OF_WINDOWS = 128
_SPLITS = (1, 2, 4, 8)


def offered_starts(
    form: Contraction, knobs: Mapping[str, Knob], offers: Offers, num_sms: int, ranged: Collection[str] = ()
) -> Iterator[tuple[OfferedStart, bool]]:
    """The most promising tiles first, each with a flag: rows and columns are swapped.

    `ranged`: the classes whose tiles are ranges, next to one loop over all reduced axes; without any there are several.
    """
    within = {x for name in ranged for x in form.classes[name][0]}
    outer = math.prod(x.extent for x in form.outer if x not in within)
    extents = {name: class_positions(form, name, ranged=name in ranged) for name in CLASSES}
    depth = class_positions(form, "k", ranged=bool(ranged))
    cut, segments = next((x for x in "mn" if form.classes[x][1].name == form.cuts[0]), ""), form.cuts[1]
    # One segment that has all rows stands for many that have few.
    narrow = segments == 1 or min(extents["m"], extents["n"]) <= (_FEW_OF_WINDOWS if ranged else _FEW)
    candidates = (*_ALL, *(_NARROW if narrow else ()))
    sizes = {name: {v[-1] for v in knobs[name].values if isinstance(v, tuple)} for name in "mn"}
    found = []
    for start in candidates:
        for swapped in (False, True):
            m, n = (start.columns, start.rows) if swapped else (start.rows, start.columns)
            if m not in sizes["m"] or n not in sizes["n"] or start.blocks > offers.blocks:
                continue
            # Segments end within tiles, half of which are computed for nothing.
            padded = extents | ({cut: extents[cut] + segments * {"m": m, "n": n}[cut] // 2} if cut else {})
            rows, columns = (padded["n"], padded["m"]) if swapped else (padded["m"], padded["n"])
            each = [replace(start, split=s) for s in (_SPLITS if ranged else (1,))]
            found.append(
                min(((s.seconds(outer * rows, columns, depth, num_sms), s, swapped) for s in each), key=lambda x: x[0])
            )
    found.sort(key=lambda x: x[0])
    yield from ((start, swapped) for _, start, swapped in found[:_STARTS])
