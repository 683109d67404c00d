"""Contractions with a thin side on a GPU (skinny GEMM): a matrix times one vector or a few, without a dot.

Before:  for m, n: out[m, n] = epilogue(sum over k of a[m, k] * b[k, n])           m is at most 16
After:   grid n.0, m.0:
           for k.0 (pipelined):                     `unroll` tiles of b at a time, all loaded before the first is used
             for each row i of m.0, unrolled:       acc_i += a[i, k] * b_tile
           for each row i:                          store out[i, n] = epilogue(sum over k of acc_i)

A dot pads m to 16 at least. Here every element of the large operand is loaded once and multiplied in float32 with each
thin row: memory is the bound as long as the rows are few. With `accumulate=row` the products of an iteration are
summed over k at once, and an accumulator has one element per column of the tile, not one per element of it. With
`split` > 1 a second kernel adds the partial sums, in a fixed order, and applies the epilogue. The same for a thin n.
The large operand may be computed of a tensor, as weights are of bytes and scales of groups (`contractions.thin_loop`).

Sources: Ansor's rules as in `contraction`; for the shape of the kernels, Abdelfattah, Keyes and Ltaief, "KBLAS: an
optimized library for dense matrix-vector multiplication on GPU accelerators", ACM TOMS 42(3), 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from search_spaces.anchors.contractions.split_reduction import combine, partial_sums
from search_spaces.anchors.contractions.thin_form import (
    MAX_PRODUCTS,
    ThinForm,
    thin_form,
    thin_rules,
    threads_of,
)
from search_spaces.anchors.contractions.thin_loop import accumulated, place_of
from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.loops.folding import POINT, ROW, accumulation
from search_spaces.decisions.loops.pipelining import pipelining
from search_spaces.decisions.loops.unrolling import unrolling
from search_spaces.decisions.memory.eviction import eviction
from search_spaces.decisions.programs.ordering import order_of_parts
from search_spaces.decisions.programs.splitting import splitting
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, start_of
from search_spaces.programs.statements import Statement, Store
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, nearest, padded
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload

# Tiles of the large operand along the contiguous axis: from a sector of 32 bytes up to one load of 16 bytes by each
# thread of eight warps.
RUNS = (32, 64, 128, 256, 512, 1024, 2048)
# And across that axis.
HEIGHTS = (1, 2, 4, 8, 16, 32, 64, 128)
# Shorter parts of k are not worth a program.
MIN_PART = 64
# Output elements of a program of the second kernel: few, since one load's latency dominates there.
COMBINE_TILE = 64
# Loads in flight of starts: bytes per thread, in at most so many loads, on so many warps per multiprocessor.
# Together 64 KB, twice what an H200 needs (4.8 TB/s, 132 multiprocessors, about 800 ns a load).
_BYTES_PER_THREAD = 128
_MOST_LOADS = 32
_WARPS_PER_SM = 16
# Accumulators per thread of starts: more would limit the occupancy.
_SUMS = 64


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for a contraction in floating point with a thin side and a pointwise epilogue, on a GPU."""
    form = thin_form(workload, target) if target.kind == "gpu" else None
    if form is None:
        raise UnmatchedError("no product in floating point of a tensor, on a GPU, with 16 rows or columns at most")
    workload = form.whole.workload
    decisions = _decisions(form, target)
    anchor = Anchor(
        "thin_contraction",
        lambda values: _lower(workload, form, values),
        thin_rules(form, target),
        tuple(_starts(form, decisions, target)),
        decided_first=("wide", "k", "warps", "accumulate", "thin", "stages", "unroll", "split", "order"),
    )
    return (derived(anchor, decisions),)


def _decisions(form: ThinForm, target: Target) -> tuple[Decision, ...]:
    def tiled(name: str, axis: Axis, sizes: tuple[int, ...]) -> Decision:
        # A tile may exceed the extent, but by less than a whole smaller tile.
        fitting = [s for s in sizes if s < 2 * axis.extent] or [sizes[0]]
        if name == "k" and form.is_exact:
            fitting = [s for s in sizes if axis.extent % s == 0]
        if not fitting:
            raise UnmatchedError(f"k={axis.extent}, which none of the tiles {sizes} divides")
        return tiling(name, axis.extent, "loop" if name == "k" else "grid", fitting)

    # Even shares: 12 rows are one tile of 12, two of 6, four of 3 …
    rows = tuple(sorted({-(-form.thin.extent // count) for count in (1, 2, 4, 8, 16)}))
    return (
        tiled("thin", form.thin, rows),
        tiled("wide", form.wide, HEIGHTS if form.along_k else RUNS),
        tiled("k", form.k, RUNS if form.along_k else HEIGHTS),
        accumulation((POINT, ROW)),
        unrolling(),
        pipelining(target, (1, 2, 3, 4, 6), marks_one=False),
        splitting(
            (1, 2, 4, 8, 16, 32, 64), math.prod(x.extent for x in (*form.around, form.k)) * form.digits // MIN_PART
        ),
        order_of_parts("k.split"),
        eviction((form.large.tensor,)),
        num_warps(target, most=8),
    )


def _starts(form: ThinForm, decisions: Sequence[Decision], target: Target) -> Iterator[Values]:
    """Enough bytes in flight, by many loads per thread or by a pipeline, and programs for every multiprocessor."""
    by_name = {d.name: d.knob for d in decisions}
    rows = min(form.thin.extent, MAX_PRODUCTS // 4)
    in_flight = min(_BYTES_PER_THREAD // form.element_bytes, _MOST_LOADS * form.vector)
    batch = math.prod(x.extent for x in form.whole.outer)
    for warps, run, height, accumulate in _start_tiles(form, target.wave, rows, in_flight // form.vector):
        tiles = {"wide": height, "k": run} if form.along_k else {"wide": run, "k": height}
        wide = nearest(by_name["wide"], tiles["wide"])
        k = nearest(by_name["k"], tiles["k"])
        elements = threads_of(
            form, Values(x=wide).tile("x"), Values(x=k).tile("x"), warps * target.wave, target.wave
        ).elements
        programs = batch * Values(x=wide).tiling("x")[0] * -(-form.thin.extent // rows)
        for stages in (1, 4):
            values = Values(
                thin=nearest(by_name["thin"], rows),
                wide=wide,
                k=k,
                accumulate=accumulate,
                unroll=1 if stages > 1 else nearest(by_name["unroll"], min(in_flight / elements, MAX_PRODUCTS / rows)),
                stages=nearest(by_name["stages"], stages),
                split=nearest(by_name["split"], _WARPS_PER_SM * target.num_sms / (programs * warps)),
                eviction="evict_first",
                warps=warps,
            )
            yield start(decisions, values)


def _start_tiles(form: ThinForm, wave: int, rows: int, loads: int) -> tuple[tuple[int, int, int, str], ...]:
    """(warps, extent along the contiguous axis, extent across it, accumulate); `loads` in flight per thread."""
    vector = form.vector
    height = max(1, min(loads, _SUMS // (rows * vector)))
    narrow = max(RUNS[0], 8 * vector)
    if form.along_k and form.row_vector < vector:
        # Rows shorter than the number of threads are read in the layout of the tile.
        short = [(warps, warps * wave // (2 * form.digits)) for warps in (8, 4)]
        across = [(warps, run, warps * wave * vector // run) for warps, run in short]
        return (
            *((warps, run, lanes * loads, ROW) for warps, run, lanes in across),
            *((warps, run, lanes * max(1, loads // 4), ROW) for warps, run, lanes in across),
            *((warps, run, lanes * max(1, height // 2), POINT) for warps, run, lanes in across),
        )
    if form.along_k:
        return (
            (1, wave * vector, height, POINT),
            (4, 4 * wave * vector, height, POINT),
            (1, 4 * wave * vector, 1, ROW),
            (1, 4 * wave * vector, max(1, loads // 4), ROW),
            (4, narrow, 4 * wave * vector // narrow * height, POINT),
        )
    return (
        (1, wave * vector, min(loads, wave // 2), ROW),
        (4, 4 * wave * vector, loads, ROW),
        (4, 4 * wave * vector, height, POINT),
        (8, narrow, 8 * wave * vector // narrow * height, POINT),
    )


def _lower(workload: Workload, form: ThinForm, values: Values) -> TileProgram:
    split, grid = values.integer("split"), _grid(form, values)
    names = Names()
    sums, body = accumulated(workload, form, values, names)
    places = [place_of(form, values, row) for row in range(len(sums))]
    if split == 1:
        for place, total in zip(places, sums, strict=True):
            body += _finish(workload, form, place, total, names)
        return TileProgram(workload.name, buffers(workload), (Kernel(workload.name, grid, tuple(body)),))
    (partial,) = partial_sums(workload, form.whole, split)
    for place, total in zip(places, sums, strict=True):
        where = (Slice(start_of(("k.split", 1))), *(place[x.name] for x in form.whole.axes))
        body.append(Store(partial.name, where, total.name))
    first = Kernel(f"{workload.name}_partial", grid, tuple(body))
    columns = min(COMBINE_TILE, padded(form.whole.n.extent))
    second = combine(workload, form.whole, (partial,), (COMBINE_TILE // columns, columns))
    return TileProgram(workload.name, buffers(workload, partial), (first, second))


def _grid(form: ThinForm, values: Values) -> Grid:
    """Programs that read the same tile of the large operand are neighbours."""
    axes = [GridAxis(f"{form.wide.name}.0", values.tiling("wide")[0])]
    if values.integer("split") > 1:
        axes.insert(0, GridAxis("k.split", values.integer("split")))
    batch = [GridAxis(f"{x.name}.0", x.extent) for x in form.whole.outer]
    return Grid((*batch, *axes, GridAxis(f"{form.thin.name}.0", values.tiling("thin")[0])))


def _finish(workload: Workload, form: ThinForm, place: dict[str, Slice], total: Tile, names: Names) -> list[Statement]:
    """Apply the epilogue to the sums of one row and store it."""
    tiles = {form.whole.dots[0].stage: total}
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, names, tiles)
    index = tuple(x.name for x in form.whole.axes)
    for name, result in form.whole.results:
        emitter.store(name, index, emitter.tile(result, "out"))
    return emitter.body
