"""Decisions of a direct contraction: register tiles, blocks of panels and rows, the order of loops; and starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from search_spaces.decisions.decision import Decision, modulo
from search_spaces.decisions.loops.unrolling import unrolling
from search_spaces.decisions.memory.packing import BOX, IN_PLACE, PANELS, PREPARED, packing
from search_spaces.decisions.memory.prefetching import prefetching_rows
from search_spaces.decisions.programs.ordering import COLUMN_MAJOR, ROW_MAJOR, nesting, order_of_blocks
from search_spaces.decisions.tiles.register_tiles import MAX_LOOP_BODY, REGISTER_ROWS, register_tiles, register_tiling
from search_spaces.decisions.tiles.tiling import counted
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import KnobValue, Values, nearest
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.copied_boxes import in_place
from search_spaces.workloads.expressions.expression import Access

# Numbers of pieces of about equal size, of rows and of panels.
PIECES = (1, 2, 3, 4, 6, 8, 16, 32)
# Tallest register tile: with one vector a row it fills the registers of AVX-512.
_TALLEST = max(REGISTER_ROWS)
# Rows and vectors of the register tiles to start from.
_START_TILES = ((14, 2), (8, 3), (28, 1), (6, 4), (12, 2), (9, 3))

# Part of a multiply-add that a load takes, where both keep their units busy: loads are hidden, but not all of them.
_LOAD = 1 / 8


def direct_decisions(form: Contraction, target: Target) -> tuple[Decision, ...]:
    """All decisions of a direct contraction."""
    ((a,), (b,)) = form.operands
    box, panels = (PREPARED if form.constant_of(x) else way for x, way in ((a, BOX), (b, PANELS)))
    ways: tuple[KnobValue, ...] = (IN_PLACE, box) if in_place(a) else (box,)
    rows_of_b = isinstance(b, Access) and in_place(b) and form.map_of(b).runs_along(form.n.name)
    packing_b: tuple[KnobValue, ...] = (IN_PLACE, panels) if rows_of_b else (panels,)
    m = counted("m", [p for p in PIECES if p <= form.m.extent])
    n = counted("panels", [p for p in PIECES if p <= form.n.extent])
    return (
        register_tiling("register", register_tiles(_heights(form.m.extent), target), target),
        modulo(m, ("register",), partial(row_blocks, form)),
        modulo(n, ("register",), partial(panel_blocks, form)),
        packing("pack_a", ways),
        packing("pack_b", packing_b),
        order_of_blocks(),
        modulo(nesting(between=False), ("register", "m", "panels"), partial(_nesting, form)),
        unrolling(),
        prefetching_rows(),
    )


def direct_starts(form: Contraction, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Starts: register tiles with the least waste first, a panel of columns for all rows before the next one."""
    by_name = {d.name: d.knob for d in decisions}
    near = (nearest(by_name["register"], r, v * target.lanes) for r, v in _START_TILES)
    tiles = {tile for tile in near if isinstance(tile, tuple)}
    return tuple(
        Values(
            register=tile,
            m=1,
            panels=nearest(by_name["panels"], -(-form.n.extent // tile[1])),
            pack_a=by_name["pack_a"].values[0],
            pack_b=by_name["pack_b"].values[-1],
            order=order,
            inner="ji",
            unroll=4 if 4 * tile[0] * tile[1] // target.lanes <= MAX_LOOP_BODY else 2,
            prefetch=0,
        )
        for order in (COLUMN_MAJOR, ROW_MAJOR)
        for tile in sorted(tiles, key=lambda tile: _work(form, tile, target.lanes))
    )


def _work(form: Contraction, tile: tuple[int, ...], lanes: int) -> float:
    """Relative time of register tiles of this size: positions that they compute, and loads for each multiply-add."""
    rows, columns = tile
    covered = -(-form.m.extent // rows) * rows * -(-form.n.extent // columns) * columns
    return covered * (1 + _LOAD * (1 / rows + lanes / columns))


def _heights(extent: int) -> tuple[int, ...]:
    """Rows of register tiles: the usual ones, and those that cut the extent in even pieces."""
    even = {-(-extent // pieces) for pieces in range(1, extent + 1)}
    return tuple(sorted({r for r in (*REGISTER_ROWS, *even) if r <= min(extent, _TALLEST)}))


def row_blocks(form: Contraction, values: Values) -> tuple[int, int]:
    """Register tiles along m of a program, and programs."""
    return _blocks(form.m.extent, values.tiling("register")[0], values.integer("m"))


def panel_blocks(form: Contraction, values: Values) -> tuple[int, int]:
    """Panels of a program, and programs."""
    return _blocks(form.n.extent, values.tiling("register")[1], values.integer("panels"))


def _blocks(extent: int, size: int, pieces: int) -> tuple[int, int]:
    tiles = -(-extent // size)
    own = -(-tiles // pieces)
    return own, -(-tiles // own)


def _nesting(form: Contraction, values: Values) -> str:
    """Order of the loops over register tiles; a single row or column of them has one order."""
    single = row_blocks(form, values)[0] == 1 or panel_blocks(form, values)[0] == 1
    return "ij" if single else values.word("inner")
