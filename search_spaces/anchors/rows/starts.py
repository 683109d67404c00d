"""Reductions of rows to start a search from: each kind with tiles of a few vectors a thread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from search_spaces.anchors.rows.aligned_rows import ALIGNED, with_aligned
from search_spaces.anchors.rows.reduced_rows import ReducedRows
from search_spaces.anchors.rows.resident import padded_elements
from search_spaces.anchors.rows.row_parts import ROWS_OUTER
from search_spaces.anchors.rows.shared import SPLITS, why_not_split
from search_spaces.anchors.thread_tiles import PROGRAMS_PER_SM, thread_tiles
from search_spaces.decisions.decision import Decision, start
from search_spaces.schedules.knobs import Knob, KnobValue, Values, nearest

# Whole rows that are started from at most; a tile of nearly a row is one of it.
_MOST_RESIDENT = 6
_NEARLY = 0.7
# Of the tiles of some vectors a thread, those with more than one and with all loads of an iteration in flight.
_STREAMED = slice(1, 5)
# Rows of a tile, where one has several that lie along memory.
_SEVERAL = 4
# Columns of an iteration where rows are neighbours in memory, of fewer and of more waves. Scans fold across the threads
# of a tile in every iteration: few rows, many columns, and the loads of the next iterations meanwhile.
_ACROSS, _SCANNED = (32, 32, 16, 16), (128, 128, 128, 64)
_STAGES_SCANNED = 3
# (columns, vectors, bytes of prefetching, online) on a CPU, where rows lie across memory.
_ON_CPU = ((4, 4, 0, False), (8, 4, 1024, False), (1, 1, 4096, False), (4, 4, 0, True))
# Bytes of a running value, and the part of a first-level cache that a CPU's program has of them.
_RUNNING_BYTES, _PART_OF_L1 = 4, 2


def starts(reduced: ReducedRows, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Rows that are streamed, then shared, then resident, each where they can be."""
    knobs = {d.name: d.knob for d in decisions}
    if not reduced.on_gpu:
        return tuple(start(decisions, values) for values in _on_cpu(reduced, knobs))
    kinds = (_streamed(reduced, knobs), _shared(reduced, knobs), _resident(reduced, knobs))
    found: list[Values] = []
    for kind, values in zip(("streamed", "shared", "resident"), kinds, strict=True):
        own = [start(decisions, v) for v in values]
        aligned = ALIGNED.name in knobs and not (kind == "streamed" and reduced.skips)
        found += with_aligned(own) if aligned and own else own
    return tuple(found)


def _streamed(reduced: ReducedRows, knobs: dict[str, Knob]) -> Iterator[Values]:
    """Each row read as seldom as can be."""
    if not _is_cut(knobs["columns"].values[-1]):
        return
    can_thread = "thread" in knobs["accumulate"].values
    shapes = [*_shapes(reduced)]
    if not reduced.structure.outer:
        _, size, warps = shapes[0]
        shapes.append((_SEVERAL, size // _SEVERAL, warps))
    for (rows, columns, warps), online in product(shapes, reduced.walks.starts):
        # By point an exponential more is computed for every element of what is rescaled.
        by_row = online and len(reduced.walks.starts) == 1 and not reduced.structure.outer
        # Fewer programs of more waves are resident, so each has more in flight.
        stages = _STAGES_SCANNED if reduced.structure.scans and reduced.structure.outer else warps // 4
        yield Values(
            _tiles(knobs, rows, columns),
            split=1,
            online=online,
            accumulate=("thread" if can_thread else "row") if by_row else "point",
            warps=warps,
            stages=nearest(knobs["stages"], stages),
        )


def _shared(reduced: ReducedRows, knobs: dict[str, Knob]) -> Iterator[Values]:
    """Where rows alone make too few programs to keep memory busy."""
    if len(knobs["split"].values) == 1:
        return
    outer = math.prod(x.extent for x in reduced.structure.parallel[:-1])
    can_thread = "thread" in knobs["accumulate"].values
    halves = [v for v in knobs["columns"].values if not why_not_split(reduced, Values(split=SPLITS[0], columns=v))]
    shorter = {**knobs, "columns": knobs["columns"].restricted(halves)}
    for rows, columns, warps in _shapes(reduced):
        tiles = _tiles(shorter, rows, columns)
        for programs, online in product(PROGRAMS_PER_SM, reduced.walks.starts):
            split = programs * reduced.target.num_sms / (outer * tiles.tiling("rows")[0])
            if split >= SPLITS[0]:
                accumulate = "thread" if online and can_thread else "point"
                stages, parts = knobs["stages"].values[0], nearest(knobs["split"], split)
                yield Values(tiles, split=parts, online=online, accumulate=accumulate, warps=warps, stages=stages)


def _resident(reduced: ReducedRows, knobs: dict[str, Knob]) -> Iterator[Values]:
    """As many whole rows as give every thread some vectors."""
    whole = knobs["columns"].values[0]
    if _is_cut(whole):
        return
    columns = padded_elements(reduced)
    least = _NEARLY * (ROWS_OUTER[0] if reduced.structure.outer else 1)
    sizes = [(elements / columns, warps) for elements, warps in thread_tiles(reduced.target)]
    for rows, warps in [(rows, warps) for rows, warps in sizes if rows >= least][:_MOST_RESIDENT]:
        yield Values(columns=whole, rows=nearest(knobs["rows"], rows), accumulate="point", warps=warps)


def _on_cpu(reduced: ReducedRows, knobs: dict[str, Knob]) -> Iterator[Values]:
    """Rows that lie across memory: long pieces of it, and running values that stay in a first-level cache."""
    if not reduced.structure.outer:
        return
    held = reduced.target.l1_bytes // _RUNNING_BYTES // _PART_OF_L1
    rows = min(held, reduced.structure.rows / reduced.target.num_sms)
    for columns, count, prefetch, online in _ON_CPU:
        # Squares about a mean in one loop: one time through memory less, and nothing dear for it.
        if not online or len(reduced.walks.starts) > 1:
            tiles = _tiles(knobs, rows, columns)
            yield Values(tiles, split=1, online=online, vectors=count, prefetch=prefetch)


def _shapes(reduced: ReducedRows) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, warps) of the tiles of streams."""
    tiles = thread_tiles(reduced.target)[_STREAMED]
    if reduced.structure.outer:
        widths = _SCANNED if reduced.structure.scans else _ACROSS
        yield from ((size // width, width, warps) for (size, warps), width in zip(tiles, widths, strict=False))
        return
    yield from ((1, size, warps) for size, warps in tiles)


def _tiles(knobs: dict[str, Knob], rows: float, columns: float) -> Values:
    """The nearest tiles of streams."""
    pieces = knobs["columns"].restricted([v for v in knobs["columns"].values if _is_cut(v)])
    return Values(rows=nearest(knobs["rows"], rows), columns=nearest(pieces, columns))


def _is_cut(columns: KnobValue) -> bool:
    return isinstance(columns, tuple) and len(columns) > 1
