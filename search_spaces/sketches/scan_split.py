"""Scans with each row shared by several programs: for few rows, and for rows that lie across memory.

Before:  for r: for c: h = combine(h, x[r, c]);  out[r, c] = h
After:   kernel 1, grid r.0, s in S:  total[s, r] = the scan of the s-th part of the columns, its last value
         kernel 2, grid r.0:          whole[s, r] = the scan of these along s
         kernel 3, grid r.0, s in S:  the scan of the s-th part again, carried on from whole[s - 1, r]
(Blelloch, "Prefix Sums and Their Applications", 1990, section 1.2.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.pipelining import pipelining
from search_spaces.decisions.splitting import splitting
from search_spaces.decisions.streaming import streaming
from search_spaces.decisions.warps import num_warps
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import buffers, workspace_name
from search_spaces.programs.statements import Load, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, nearest
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.row_looped import column_tiling
from search_spaces.sketches.row_split import JOINED, SPLITS, splits
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.row_parts import RowTiles, folded_in, row_tiling, rows_on, spread
from search_spaces.sketches.rows.scanning import Scanning, scan_along, together
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage, Workload

# (rows, columns, warps, stages), see `row_looped`; and programs per multiprocessor, enough to hide latency.
_SEEDS = ((1, 2048, 4, 1), (1, 4096, 8, 1))
_SEEDS_OUTER = ((32, 128, 8, 1), (64, 64, 4, 2), (128, 32, 4, 1))
_PROGRAMS_PER_SM = (4, 8)


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for scans of rows long enough to share."""
    structure = rows_on(workload, target)
    if target.kind != "gpu" or not structure.scans:
        raise UnmatchedError("nothing is scanned" if not structure.scans else "a CPU scans whole rows")
    if structure.folds:
        raise UnmatchedError(f"{structure.folds[0].name} is folded beside a scan, which is not shared among programs")
    if not splits(structure, target):
        raise UnmatchedError(f"rows of {structure.column.extent} elements are too short to share among programs")
    decisions = (
        splitting(splits(structure, target), SPLITS[-1]),
        Decision(row_tiling(structure, target)),
        Decision(column_tiling(structure, target)),
        num_warps(target),
        pipelining(target, (1, 2, 3, 4)),
        streaming(workload, target),
    )
    starts = _starts(structure, target, decisions)
    return (derived(Anchor("scan_split", lambda values: _lower(structure, values), starts=starts), decisions),)


def _starts(structure: Structure, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Tiles of a few vectors a thread, where rows alone make too few programs to keep memory busy."""
    knobs, found = {d.name: d.knob for d in decisions}, []
    for rows, columns, warps, stages in _SEEDS_OUTER if structure.outer else _SEEDS:
        height = nearest(knobs["rows"], rows)
        assert isinstance(height, tuple)
        of_rows = -(-structure.rows // height[-1])
        for programs in _PROGRAMS_PER_SM:
            split = programs * target.num_sms / of_rows
            values = Values(
                split=nearest(knobs["split"], max(2.0, split)),
                rows=height,
                columns=nearest(knobs["columns"], columns),
                warps=warps,
                stages=nearest(knobs["stages"], stages),
            )
            found.append(start(decisions, values))
    return tuple(found)


def _lower(structure: Structure, values: Values) -> TileProgram:
    workload, split = structure.workload, values.integer("split")
    walk = ColumnWalk(
        structure.column,
        values.tiling("columns")[1],
        split,
        backwards=structure.backwards,
    )
    parts = _Parts(RowTiles(structure, values.tile("rows")), walk)
    bodies = {
        "totals": (parts.grid, parts.totals()),
        "wholes": (Grid(parts.joining.rows.grid), parts.joining.wholes()),
        "scan": (parts.grid, parts.scan()),
    }
    kernels = tuple(Kernel(f"{workload.name}_{n}", grid, tuple(body)) for n, (grid, body) in bodies.items())
    return TileProgram(workload.name, buffers(workload, *parts.workspaces()), kernels)


@dataclass(frozen=True)
class _Parts:
    """The bodies of the kernels."""

    rows: RowTiles
    walk: ColumnWalk

    @property
    def scans(self) -> Sequence[Stage]:
        return self.rows.structure.scans

    @property
    def grid(self) -> Grid:
        """Programs that follow each other read neighbouring memory."""
        part = GridAxis("s", self.walk.split)
        return Grid((part, *self.rows.grid) if self.rows.structure.outer else (*self.rows.grid, part))

    @property
    def joining(self) -> _Parts:
        """The same parts, with as many rows a program as the second kernel scans at once."""
        height = max(1, min(self.rows.height, JOINED // self.walk.split))
        return replace(self, rows=replace(self.rows, height=height))

    def workspaces(self) -> list[Buffer]:
        """A value per part and row: of every part, and of all up to it."""
        shape = (self.walk.split, *(x.extent for x in self.rows.structure.parallel))
        return [Buffer(self._name(kind, s), shape, folded_in(s), "workspace") for kind in _KINDS for s in self.scans]

    def totals(self) -> list[Statement]:
        """Scan this program's part, and store the last values."""
        names = Names({s.name for s in self.rows.workload.stages})
        scanning = Scanning.carried(self.rows, self.scans, names)
        rows = replace(self.rows, scan=scanning.scan_all)
        body = self.walk.over(lambda columns: rows.emitter(columns, names, {}).body)
        stored = rows.emitter(None, names, {})
        for stage in self.scans:
            value = spread(stored, scanning.carries[stage.name], rows.sliced)
            stored.body.append(Store(self._name("total", stage), self._place(Slice(_PART)), value.name))
        return [*scanning.start(), *body, *stored.body]

    def wholes(self) -> list[Statement]:
        """Scan the totals of all parts."""
        names, body = Names({s.name for s in self.rows.workload.stages}), list[Statement]()
        place = self._place(Slice(Affine(), self.walk.split, "s"))
        shape = (self.walk.split, *self.rows.sliced.values())
        for group in together(self.scans):
            tiles = [
                Tile(names.fresh(f"{s.name}_totals"), ("s", *self.rows.sliced), shape, folded_in(s)) for s in group
            ]
            body += [Load(t, self._name("total", s), place) for t, s in zip(tiles, group, strict=True)]
            statement = scan_along(group, tiles, "s", reverse=False, names=names)
            body += [statement]
            body += [Store(self._name("whole", s), place, t.name) for s, t in zip(group, statement.dsts, strict=True)]
        return body

    def scan(self) -> list[Statement]:
        """Scan this program's part, from what all before it are."""
        names = Names({s.name for s in self.rows.workload.stages})
        scanning = Scanning.carried(self.rows, self.scans, names)
        rows = replace(self.rows, scan=scanning.scan_all)

        def write(columns: Slice) -> list[Statement]:
            emitter = rows.emitter(columns, names, {})
            rows.store(rows.structure.outputs, emitter)
            return emitter.body

        before = self._place(Slice(_PART + Affine(offset=-1)))
        buffers_before = {s.name: self._name("whole", s) for s in self.scans}
        return [*scanning.start_from(buffers_before, before, _PART), *self.walk.over(write)]

    def _place(self, part: Slice) -> tuple[Slice, ...]:
        return (part, *self.rows.place.values())

    def _name(self, kind: str, stage: Stage) -> str:
        return workspace_name(self.rows.workload, f"{kind}_{stage.name}")


_KINDS = ("total", "whole")
# Which part is this program's.
_PART = Affine.of(("s", 1))
