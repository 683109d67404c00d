"""Starts of reductions of rows: each kind with tiles of a few vectors per thread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from search_spaces.anchors.rows.aligned_rows import with_aligned
from search_spaces.anchors.rows.reduced_rows import ReducedRows
from search_spaces.anchors.rows.resident import padded_elements
from search_spaces.anchors.rows.row_parts import ROWS_OUTER
from search_spaces.anchors.rows.segment_items import segments_of
from search_spaces.anchors.rows.shared import SPLITS, why_not_split
from search_spaces.anchors.thread_tiles import PROGRAMS_PER_SM, thread_tiles
from search_spaces.decisions.decision import Decision, start
from search_spaces.schedules.knobs import Knob, KnobValue, Values, nearest

# Number of resident starts, at most; a tile of nearly a whole row counts as one of it.
_MOST_RESIDENT = 6
_NEARLY = 0.7
# Of the tiles of some vectors per thread, those with more than one and with all loads of an iteration in flight.
_STREAMED = slice(1, 5)
# Rows of a tile, if it has several that are contiguous.
_SEVERAL = 4
# Factor of the waves of a program that has the whole row to itself, with as many vectors per thread.
_WIDER = 4
# Columns of an iteration if rows are neighbours in memory, with fewer and with more waves. Scans fold across the
# threads of a tile in every iteration: few rows, many columns, and the loads of the next iterations meanwhile.
_ACROSS, _SCANNED = (32, 32, 16, 16), (128, 128, 128, 64)
_STAGES_SCANNED = 3
# (columns, vectors, bytes of prefetching, online) on a CPU, if rows lie across memory.
_ON_CPU = ((4, 4, 0, False), (8, 4, 1024, False), (1, 1, 4096, False), (4, 4, 0, True))
# Factor of the programs for parts of all segments: most parts are cut by the ends of segments.
_OF_SEGMENTS = 2
# Programs that share a segment at least where any do, if each segment has parts of its own: the longest may have most
# of all rows.
_OF_LONGEST = 16
# Bytes of a running value, and a program's share of a CPU's first-level cache for them.
_RUNNING_BYTES, _PART_OF_L1 = 4, 2


def starts(reduced: ReducedRows, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Streamed, then shared, then resident rows, each if possible; of segments, shared ones first.

    Parts of segments take as long as each other whatever the data is; one program of a segment may have all rows.
    """
    knobs = {d.name: d.knob for d in decisions}
    if not reduced.on_gpu:
        return tuple(start(decisions, values) for values in _on_cpu(reduced, knobs))
    found: list[Values] = []
    shared = PROGRAMS_PER_SM if len(knobs["split"].values) > 1 else ()
    streamed = (*shared, 0) if segments_of(reduced) else (0, *shared)
    for programs in streamed if _is_cut(knobs["columns"].values[-1]) else ():
        own = [start(decisions, values) for values in _cut(reduced, knobs, programs)]
        aligned = "aligned" in knobs and (programs or not reduced.skips)
        found += with_aligned(own) if aligned else own
    whole = [start(decisions, values) for values in _resident(reduced, knobs)]
    return (*found, *(with_aligned(whole) if "aligned" in knobs else whole))


def _cut(reduced: ReducedRows, knobs: Mapping[str, Knob], programs: int) -> Iterator[Values]:
    """Streamed rows, each read as seldom as possible; or shared ones, with this many programs per multiprocessor,
    if rows alone are too few to keep memory busy."""
    structure, columns, segments = reduced.structure, knobs["columns"], segments_of(reduced)
    outer = math.prod(x.extent for x in structure.parallel[:-1])
    average = structure.column.extent // segments.axis.extent if segments else structure.column.extent
    most = SPLITS[0] if programs else 1
    pieces = [v for v in columns.values if _is_cut(v) and not why_not_split(reduced, Values(split=most, columns=v))]
    for (rows, width, warps, stages), online in product(_shapes(reduced, not programs), reduced.loops.starts):
        height = nearest(knobs["rows"], rows)
        assert isinstance(height, tuple)
        if segments:
            width = min(width, max(1, average))
            # Of short segments the device has many programs, each of which waits for one load after another.
            warps = 1 if average <= width and not programs else warps
        split = programs * reduced.target.num_sms / (outer * height[0]) if programs else 1
        if programs and segments:
            split = min(_OF_SEGMENTS * split * segments.axis.extent, structure.column.extent / width)
        elif programs and any(s.cut for s in structure.folds):
            split = max(split, _OF_LONGEST)
        if split < most:
            continue
        # By point, one more exponential is computed for every rescaled element.
        by_row = online and len(reduced.loops.starts) == 1 and not structure.outer
        ways = ("thread", "point" if programs else "row") if by_row else ("point",)
        yield Values(
            columns=nearest(columns.restricted(pieces), width),
            split=nearest(knobs["split"], split),
            rows=height,
            online=online,
            accumulate=next(way for way in ways if way in knobs["accumulate"].values),
            warps=warps,
            stages=nearest(knobs["stages"], stages),
            # Programs that wait take the place of those that read rows, which outweighs a launch.
            **({"join": knobs["join"].values[-1]} if programs and "join" in knobs and not structure.outer else {}),
        )


def _resident(reduced: ReducedRows, knobs: Mapping[str, Knob]) -> Iterator[Values]:
    """As many whole rows as give every thread some vectors."""
    whole = knobs["columns"].values[0]
    if _is_cut(whole):
        return
    columns = padded_elements(reduced)
    least = _NEARLY * (ROWS_OUTER[0] if reduced.structure.outer else 1)
    sizes = [(elements / columns, warps) for elements, warps in thread_tiles(reduced.target)]
    for rows, warps in [(rows, warps) for rows, warps in sizes if rows >= least][:_MOST_RESIDENT]:
        yield Values(columns=whole, rows=nearest(knobs["rows"], rows), accumulate="point", warps=warps)


def _on_cpu(reduced: ReducedRows, knobs: Mapping[str, Knob]) -> Iterator[Values]:
    """Rows across memory: long contiguous pieces, and running values that stay in a first-level cache."""
    resident = reduced.target.l1_bytes // _RUNNING_BYTES // _PART_OF_L1
    rows = nearest(knobs["rows"], min(resident, reduced.structure.rows / reduced.target.num_sms))
    for width, vectors, prefetch, online in _ON_CPU if reduced.structure.outer else ():
        # Squares about a mean in one loop: one pass through memory less, at little cost.
        if not online or len(reduced.loops.starts) > 1:
            columns = nearest(knobs["columns"], width)
            yield Values(columns=columns, rows=rows, online=online, vectors=vectors, prefetch=prefetch)


def _shapes(reduced: ReducedRows, alone: bool) -> list[tuple[int, int, int, int]]:
    """(rows, columns, warps, stages) of the tiles of pieces; `alone`: one program has the whole row.

    Fewer programs of more waves are resident, so each has more stages in flight; one of many waves has enough loads.
    """
    tiles = thread_tiles(reduced.target)[_STREAMED]
    if reduced.structure.outer:
        scans = reduced.structure.scans
        widths = _SCANNED if scans else _ACROSS
        return [
            (size // width, width, warps, 1 if not alone else _STAGES_SCANNED if scans else warps // 4)
            for (size, warps), width in zip(tiles, widths, strict=False)
        ]
    shapes = [(1, size, warps, warps // 4 if alone else 1) for size, warps in tiles]
    if not alone:
        return shapes
    _, size, warps, stages = shapes[0]
    wide = [(1, size * _WIDER, warps * _WIDER, 1)] if warps * _WIDER <= reduced.target.most_waves else []
    return [*shapes, (_SEVERAL, size // _SEVERAL, warps, stages), *wide]


def _is_cut(columns: KnobValue) -> bool:
    return isinstance(columns, tuple) and len(columns) > 1
