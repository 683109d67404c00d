"""Cache tiles of a contraction on a CPU: the parts of m, n and k in each level of the caches, and starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from search_spaces.decisions.decision import Decision, modulo
from search_spaces.decisions.loops.unrolling import unrolling
from search_spaces.decisions.memory.packing import IN_PLACE, PANELS, PREPARED, ROWS, packing
from search_spaces.decisions.memory.prefetching import prefetching_rows
from search_spaces.decisions.programs.ordering import nesting, order
from search_spaces.decisions.tiles.register_tiles import REGISTER_ROWS, register_tiles, register_tiling
from search_spaces.decisions.tiles.tiling import counted, nested
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import KnobValue, Values, cover, nearest
from search_spaces.structure.contraction import Contraction

# Rows and vectors of the register tiles to start from.
_START_TILES = ((8, 2), (12, 2), (6, 4), (8, 3))
# Numbers of pieces of about equal size per dimension: by the grid, for the caches, along the reduction.
GRID_PIECES = (1, 2, 3, 4, 6, 8, 16, 32)
SWEEP_PIECES = (1, 2, 4, 8, 16, 32)
REDUCTION_PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
SHORTEST_REDUCTION = 16
# Longest cache tiles: packed ones take at most 4096 * 4096 elements, 64 MB, far more than any cache.
MAX_CACHE_TILE = 4096


def cache_decisions(form: Contraction, target: Target) -> tuple[Decision, ...]:
    """All decisions of a contraction on a CPU."""
    a, b = form.tensors
    by_rows = (ROWS,) if form.map_of(a).runs_along(form.k.name) else ()
    once_a, once_b = ((PREPARED,) if form.constant_of(x) else () for x in (a, b))
    # Panels of a segment's rows begin where data says; along k they are read from any step on.
    once_a = () if form.cuts[0] == form.m.name else once_a
    packing_a: tuple[KnobValue, ...] = (IN_PLACE, *by_rows, PANELS, *once_a)
    in_place = (IN_PLACE,) if form.map_of(b).runs_along(form.n.name) else ()
    packing_b: tuple[KnobValue, ...] = (*in_place, PANELS, *once_b)
    tiles = register_tiles([r for r in REGISTER_ROWS if r <= form.m.extent], target)
    m = counted("m", _cuts(form.m.extent, GRID_PIECES))
    n = nested("n", form.n.extent, ("grid", "sweep"), _column_cuts(form.n.extent))
    k = nested("k", form.k.extent, ("loop", "cache"), _reduction_cuts(form.k.extent))
    m, n, k = (replace(d, bears_on="nothing") for d in (m, n, k))
    return (
        register_tiling("register", tiles, target),
        modulo(m, ("register",), partial(row_tiles, form)),
        modulo(n, ("register",), partial(column_tiles, form)),
        k,
        packing("pack_a", packing_a),
        packing("pack_b", packing_b),
        order(several=True),
        modulo(nesting(), ("register", "m", "n"), partial(_nesting, form)),
        unrolling(),
        prefetching_rows(),
    )


def cache_starts(form: Contraction, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Starts as in GotoBLAS and BLIS: operands packed, 256 steps of k at a time, a block of b in the L2 cache.

    With few rows, for which packing b costs as much as its use: b read in place, some steps at a time, and every thread
    with columns of its own.
    """
    by_name = {d.name: d.knob for d in decisions}
    ways_a, ways_b = by_name["pack_a"].values, by_name["pack_b"].values
    packed_a, packed_b = PREPARED if PREPARED in ways_a else ways_a[1], ways_b[-1]
    rows = form.m.extent // form.cuts[1] if form.cuts[0] == form.m.name else form.m.extent
    few_rows = rows < 2 * SHORTEST_REDUCTION
    steps = (32, 128) if few_rows else (256, 512)
    found = []
    for rows, vectors in _START_TILES:
        register = nearest(by_name["register"], rows, vectors * target.lanes)
        assert isinstance(register, tuple)
        pieces = max(float(target.threads), 1.0 if few_rows else form.n.extent / 512)
        sweeps = form.n.extent / register[1] / pieces if few_rows else 1.0
        found += [
            Values(
                register=register,
                m=1 if 1 in by_name["m"].values else by_name["m"].values[0],
                n=nearest(by_name["n"], pieces, sweeps),
                k=nearest(by_name["k"], form.k.extent / step, step),
                pack_a=IN_PLACE if few_rows else packed_a,
                pack_b=ways_b[0] if few_rows and packed_b != PREPARED else packed_b,
                order="row_major",
                inner="i_pack_j",
                unroll=2,
                prefetch=1 if few_rows else 8,
            )
            for step in steps
        ]
    return tuple(found)


def _cuts(extent: int, pieces: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of pieces that leave none longer than `MAX_CACHE_TILE`, or else the largest."""
    return tuple(p for p in pieces if p <= extent and -(-extent // p) <= MAX_CACHE_TILE) or pieces[-1:]


def _column_cuts(extent: int) -> tuple[tuple[int, ...], ...]:
    """(grid, sweep): a program's block of columns, cut once more into sweeps that are packed at a time."""
    found = [(g, s) for g in GRID_PIECES for s in SWEEP_PIECES if g * s <= extent]
    return tuple(c for c in found if -(-extent // (c[0] * c[1])) <= MAX_CACHE_TILE) or tuple(found[-1:])


def _reduction_cuts(extent: int) -> tuple[tuple[int, ...], ...]:
    """(loop, cache): the reduction in even pieces, not too short unless the whole is."""
    least = -(-extent // MAX_CACHE_TILE)
    pieces = [p * least for p in REDUCTION_PIECES if p == 1 or extent // (p * least) >= SHORTEST_REDUCTION]
    return tuple(sorted({cover(extent, (-(-extent // p),)) for p in pieces}))


def row_tiles(form: Contraction, values: Values) -> tuple[int, int]:
    """Register tiles of a cache tile along m, and cache tiles of the grid.

    Whole register tiles are divided among the pieces as evenly as possible: different numbers may give the same tiles.
    """
    tiles = -(-form.m.extent // values.tiling("register")[0])
    cache = -(-tiles // values.integer("m"))
    return cache, -(-tiles // cache)


def column_tiles(form: Contraction, values: Values) -> tuple[int, int, int]:
    """Register tiles of a cache tile along n, cache tiles of a program's block, and blocks of the grid."""
    tiles, (pieces, sweeps) = -(-form.n.extent // values.tiling("register")[1]), values.tiling("n")
    block = -(-tiles // pieces)
    cache = -(-block // sweeps)
    sweeps = -(-block // cache)
    return cache, sweeps, -(-tiles // (sweeps * cache))


def _nesting(form: Contraction, values: Values) -> str:
    """Order of the loops over register tiles; a single row or column of them has one order.

    If blocks are uneven, some have no column: a possibly empty column has a loop.
    """
    tiles, (cache, sweeps, blocks) = -(-form.n.extent // values.tiling("register")[1]), column_tiles(form, values)
    single = row_tiles(form, values)[0] == 1 or (cache == 1 and sweeps * blocks == tiles)
    return "ij" if single and values["inner"] == "ji" else values.word("inner")
