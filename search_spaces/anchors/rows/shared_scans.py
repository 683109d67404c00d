"""Shared scans: several programs for each row; for few rows, and for rows across memory.

Before:  for r: for c: h = combine(h, x[r, c]);  out[r, c] = h
After:   kernel 1, grid r.0, s in S:  total[s, r] = the scan of the s-th part of the columns, its last value
         kernel 2, grid r.0:          whole[s, r] = the scan of the totals along s
         kernel 3, grid r.0, s in S:  the scan of the s-th part again, carried on from whole[s - 1, r]
(Blelloch, "Prefix Sums and Their Applications", 1990, section 1.2.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.rows.reduced_rows import ReducedRows
from search_spaces.anchors.rows.row_parts import RowTiles, spread
from search_spaces.anchors.rows.scanning import Scanning, scan_along, together
from search_spaces.anchors.rows.shared import Parts
from search_spaces.programs.grid import Grid
from search_spaces.programs.lowering import buffers
from search_spaces.programs.statements import Statement, Store
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice
from search_spaces.schedules.knobs import Values
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage

# Prefixes of workspaces: the total of every part, and of all parts up to it.
_TOTAL, _WHOLE = "total", "whole"
# Index of this program's part.
_PART = Affine.of(("s", 1))


def shared_scans_program(reduced: ReducedRows, values: Values) -> TileProgram:
    """Three kernels: the scans of parts, of their totals, and of parts again."""
    workload = reduced.workload
    parts = Parts(*reduced.streams(values))
    scanned = _ScannedParts(parts)
    bodies = {
        "totals": (parts.grid, scanned.totals()),
        "wholes": (Grid(parts.joining.rows.grid), _ScannedParts(parts.joining).wholes()),
        "scan": (parts.grid, scanned.scan()),
    }
    kernels = tuple(Kernel(f"{workload.name}_{n}", grid, tuple(body)) for n, (grid, body) in bodies.items())
    spaces = (parts.workspace(kind, s) for kind in (_TOTAL, _WHOLE) for s in scanned.scans)
    return TileProgram(workload.name, buffers(workload, *spaces), kernels)


@dataclass(frozen=True)
class _ScannedParts:
    """The bodies of the kernels."""

    parts: Parts

    @property
    def rows(self) -> RowTiles:
        return self.parts.rows

    @property
    def scans(self) -> Sequence[Stage]:
        return self.rows.structure.scans

    def totals(self) -> list[Statement]:
        """Scan this program's part, and store the last values."""
        scanning, rows, names = self._scanning()
        body = self.parts.loop.over(lambda columns: rows.emitter(columns, names, {}).body)
        stored = rows.emitter(None, names, {})
        for stage in self.scans:
            value = spread(stored, scanning.carries[stage.name], rows.sliced)
            stored.body.append(Store(self.parts.name(_TOTAL, stage), self.parts.place(Slice(_PART)), value.name))
        return [*scanning.start(), *body, *stored.body]

    def wholes(self) -> list[Statement]:
        """Scan the totals of all parts."""
        names, body = self.parts.names, list[Statement]()
        for group in together(self.scans):
            tiles, loads = self.parts.tiles(_TOTAL, group, names)
            statement = scan_along(group, tiles, "s", reverse=False, names=names)
            place = self.parts.place(Slice(Affine(), self.parts.loop.split, "s"))
            stores = (
                Store(self.parts.name(_WHOLE, s), place, t.name) for s, t in zip(group, statement.dsts, strict=True)
            )
            body += [*loads, statement, *stores]
        return body

    def scan(self) -> list[Statement]:
        """Scan this program's part, carried on from the parts before it."""
        scanning, rows, names = self._scanning()

        def write(columns: Slice) -> list[Statement]:
            emitter = rows.emitter(columns, names, {})
            rows.store(rows.structure.outputs, emitter)
            return emitter.body

        before = self.parts.place(Slice(_PART + Affine(offset=-1)))
        buffers_before = {s.name: self.parts.name(_WHOLE, s) for s in self.scans}
        return [*scanning.start_from(buffers_before, before, _PART), *self.parts.loop.over(write)]

    def _scanning(self) -> tuple[Scanning, RowTiles, Names]:
        names = self.parts.names
        scanning = Scanning.carried(self.rows, self.scans, names)
        return scanning, replace(self.rows, scan=scanning.scan_all), names
