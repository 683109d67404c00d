"""Reductions and scans of rows: each row is resident in a tile, streamed in pieces, or shared by several programs.

Before:  for r: for c: total += x[r, c];  for c: out[r, c] = …
After (columns=4096):            grid r.0: total = sum of a tile of whole rows;  store …             `rows.resident`
      (columns=8x512):           grid r.0: for c.0: total += sum of x_tile;  for c.0: store …        `rows.streamed`
      (columns=8x512, split=4):  grid r.0, s: for c.0: …;  partial_total[s, r] = total
                                 grid r.0, s: total = sum of partial_total over s;  store …          `rows.shared`
                                 or, of segments of columns, an equal part of all in each program   `rows.segment_items`

The first decision chooses among these; each later one that has no meaning there has one value.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from search_spaces.anchors.points.rounding_in_pairs import rounding_in_pairs
from search_spaces.anchors.rows.folds.thread_parts import accumulations
from search_spaces.anchors.rows.reduced_rows import ReducedRows, is_resident, is_split
from search_spaces.anchors.rows.resident import resident_program, why_not_resident, why_too_long
from search_spaces.anchors.rows.row_parts import row_tiling
from search_spaces.anchors.rows.segment_items import segments_of, shared_segments_program, why_not_dealt
from search_spaces.anchors.rows.shared import shared_program, splits, why_not_split
from search_spaces.anchors.rows.shared_scans import shared_scans_program
from search_spaces.anchors.rows.starts import starts
from search_spaces.anchors.rows.streamed import column_tilings, streamed_program, why_not_streamed
from search_spaces.decisions.decision import Anchor, Decision, derived
from search_spaces.decisions.loops.folding import POINT, accumulation, online_folds
from search_spaces.decisions.loops.pipelining import pipelining
from search_spaces.decisions.loops.vectors import vectorizing
from search_spaces.decisions.memory.addressing import aligned
from search_spaces.decisions.memory.prefetching import prefetching
from search_spaces.decisions.memory.streaming import streaming
from search_spaces.decisions.programs.ordering import ROW_MAJOR, group, order
from search_spaces.decisions.programs.persistence import ONE_TILE, Units, persistence
from search_spaces.decisions.programs.splitting import join, splitting
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.tiling import nested
from search_spaces.devices.features import EARLY_LAUNCH
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule, only
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.segmented import segmented
from search_spaces.structure.segmented_sums import is_packed_in_segments
from search_spaces.workloads.workload import Workload

_STAGES = (1, 2, 3, 4)
# Decisions about the grid with the values that they have if parts of rows make its programs.
_GRID = (("order", ROW_MAJOR), ("group", 1), ("grid", ONE_TILE), ("per_sm", 1))


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for reductions and scans of rows."""
    if segmented(workload) if target.kind == "gpu" else is_packed_in_segments(workload):
        raise UnmatchedError("data cuts one of its axes into segments, each of which is a product of its own")
    reduced = ReducedRows.of(workload, target)
    decisions = _decisions(reduced)
    named = {d.name for d in decisions}
    rules = tuple(rule for rule in _rules(reduced) if named.issuperset(rule.knobs))
    anchor = Anchor("reduction", lambda values: _lower(reduced, values), rules, starts(reduced, decisions))
    return (derived(anchor, decisions),)


def _lower(reduced: ReducedRows, values: Values) -> TileProgram:
    if is_split(values) and reduced.structure.scans:
        return shared_scans_program(reduced, values)
    segments = segments_of(reduced) if is_split(values) else ()
    if segments:
        return rounding_in_pairs(shared_segments_program(reduced, segments, values), reduced.target)
    program = resident_program if is_resident(values) else shared_program if is_split(values) else streamed_program
    return rounding_in_pairs(program(reduced, values), reduced.target)


def _decisions(reduced: ReducedRows) -> tuple[Decision, ...]:
    """All decisions in order, the kind of program first."""
    structure, target = reduced.structure, reduced.target
    columns, split = _columns(reduced)
    streams = why_not_streamed(reduced) is None
    tiles = (
        columns,
        split,
        row_tiling(structure, target),
        online_folds(reduced.loops.choices if streams else (False,)),
    )
    streamed = streaming(reduced.workload, target)
    if not reduced.on_gpu:
        return (*tiles, vectorizing(), prefetching(), streamed)
    ahead = bool(segments_of(reduced)) and len(split.knob.values) > 1 and target.features.has(EARLY_LAUNCH)
    outer = [x.extent for x in structure.parallel[:-1]]
    several = bool(outer) and outer[-1] > 1
    units, tiled = Units(lambda values: target.num_sms), ("rows",)

    def counts(values: Values) -> tuple[int, int]:
        return outer[-1], values.tiling("rows")[0]

    ordering = (order(several, tiled, counts), group(several, ("order", *tiled), counts))
    return (
        *tiles,
        replace(accumulation(accumulations(structure) if streams else (POINT,)), bears_on="legality"),
        num_warps(target, most=32),
        pipelining(target, _STAGES if streams else _STAGES[:1]),
        *(replace(d, bears_on="legality") for d in ordering),
        *persistence(units, tiled, lambda values: math.prod(outer) * values.tiling("rows")[0]),
        streamed,
        *((join(ahead),) if ahead else ()),
        *((aligned(),) if reduced.aligned else ()),
    )


def _columns(reduced: ReducedRows) -> tuple[Decision, Decision]:
    """Columns of an iteration, or all, and programs that share them: each kind of program equally likely."""
    not_resident, not_streamed = why_not_resident(reduced), why_not_streamed(reduced)
    if not_resident and not_streamed:
        raise UnmatchedError(f"{not_resident}; {not_streamed}")
    extent = reduced.structure.column.extent
    whole = () if not_resident else ((extent,),)
    cut = () if not_streamed else column_tilings(reduced)
    parts = () if not_streamed else splits(reduced)
    likely = max(1, len(cut) // (2 if parts else 1)) if whole else 1
    columns = nested("columns", extent, ("loop", "tile"), (*whole, *cut), likely)
    return columns, splitting((1, *parts), max((1, *parts)), likely=max(1, len(parts)))


def _rules(reduced: ReducedRows) -> tuple[Rule, ...]:
    """Rules among decisions, without those of decisions that it lacks."""
    beside = ("columns", "split")

    def is_too_long(values: Values) -> str | None:
        return why_too_long(reduced, values) if reduced.on_gpu and is_resident(values) else None

    def is_skewed(values: Values) -> str | None:
        if not values.flag("aligned") or is_resident(values):
            return None
        if reduced.skips and not is_split(values):
            return "columns that leave folds as they are are left out, which are counted where aligned=False"
        return reduced.loops.why_not_aligned(values)

    def in_threads(values: Values) -> str | None:
        if is_split(values) and values["accumulate"] == "row":
            return "accumulate=row of rows that programs share; choose point or thread"
        return None

    segments = segments_of(reduced)

    def not_dealt(values: Values) -> str | None:
        return why_not_dealt(reduced, segments[0].axis, values) if segments and is_split(values) else None

    return (
        Rule(beside, partial(why_not_split, reduced)),
        only("join", "after", ("split",), lambda values: not is_split(values), "one kernel joins nothing"),
        Rule((*beside, "rows", "online"), not_dealt),
        Rule(("columns", "rows"), is_too_long),
        only("online", False, ("columns",), is_resident, "whole rows are folded at once"),
        only("accumulate", "point", ("columns",), is_resident, "whole rows are folded at once"),
        Rule(("split", "accumulate"), in_threads),
        only("stages", 1, ("columns",), is_resident, "whole rows take one iteration"),
        *(only(name, plain, ("split",), is_split, "parts make the programs that are wanted") for name, plain in _GRID),
        Rule(("columns", "rows", "aligned"), is_too_long),
        Rule((*beside, "online", "aligned"), is_skewed),
    )
