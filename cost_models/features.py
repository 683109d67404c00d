"""Features of a tile program on a target: a vector of fixed length, from one traversal.

All values go through sign(x)·log2(|x| + 1), as in Ansor (OSDI 2020, appendix B), whose groups of features these follow:
operations, traffic per buffer, arithmetic intensity over loop depth, tiles relative to memory capacities, launch. Added
to Ansor's: the rasterisation order of the grid, windows that overlap, and the analytic estimate of where the time goes,
so that a model need only learn what the estimate misses. Amounts are summed over kernels; shapes are those of the
kernel with the most work.
"""

from __future__ import annotations

import itertools
import operator
import zlib

import numpy as np
from numpy.typing import NDArray

from cost_models.program_counts import KernelCounts, Traffic, count, wave_extents
from cost_models.reuse import Nest
from cost_models.roofline import Estimate, estimate
from search_spaces import Target, TileProgram
from search_spaces.programs.statements import Load, Store
from search_spaces.schedules.limits import UNLIMITED, Limits

_LOAD_SLOTS = 3
_DEPTHS = 5
_PAGE_BYTES = 4096
_LINE_BYTES = 64
_BYTES = 4.0  # of an element in registers
PICOSECONDS = 1e12  # so that times are far above 1, where the logarithm is taken
_EVICTION = {"": 0.0, "evict_last": 1.0, "evict_first": 2.0}

_TOTALS = (
    "kernels",
    "dot_flops",
    "map_flops",
    "transcendental",
    "reduced",
    "moved",
    "loaded_bytes",
    "stored_bytes",
    "unique_bytes",
    "loaded_over_unique",
    "flops_per_loaded_byte",
    "memory_bytes",
    "cache_bytes",
    "dot_s",
    "map_s",
    "memory_s",
    "cache_s",
    "latency_s",
    "workspace_bytes",
)
_GRID = (
    "tiles",
    "programs",
    "resident",
    "waves",
    "tail",
    "grid_slow",
    "grid_fast",
    "grid_outer",
    "wave_slow",
    "wave_fast",
    "group",
    "persistent",
    "num_warps",
    "num_stages",
    "num_ctas",
    "max_registers",
    "producer_warps",
    "alternating",
    "overlapped",
    "lanes",
    "vectors",
)
_LOOPS = (
    "loops",
    "depth",
    "outer_trips",
    "inner_trips",
    "pipeline_stages",
    "flatten",
    "branches",
    "prefetched",
)
_DOT = (
    "dots",
    "dot_m",
    "dot_n",
    "dot_k",
    "dot_times",
    "dot_aspect",
    "dot_intensity",
    "dot_accumulators",
    "dot_ragged",
    "dot_operand_bytes",
    "dot_unroll",
    "dot_tf32",
    "panel_a",
    "packed_a_bytes",
    "panel_b",
    "packed_b_bytes",
)
_FIT = (
    "shared_bytes",
    "shared_share",
    "registers_per_thread",
    "register_share",
    "threads",
    "largest_tile_bytes",
    "elements_per_thread",
    "target_units",
    "target_balance",
)
_DEPTH_NAMES = tuple(
    f"{what}_{depth}" for depth in range(_DEPTHS) for what in ("set_over_l1", "set_over_l2", "intensity")
)
_ACCESS = (
    "bytes",
    "tile_bytes",
    "times",
    "run_bytes",
    "run_whole_vectors",
    "row_bytes",
    "row_page_offset",
    "padding",
    "descriptor",
    "along_fast_axis",
)
_LOAD = (*_ACCESS, "panels_along_last_axis", "eviction", "repeats")
_STORE = (*_ACCESS, "atomic", "streaming")

# Overlapping reads of a program, as the taps of a convolution are: their number, and bytes read over distinct ones.
_WINDOWS = ("window_visits", "window_reuse")

FEATURE_NAMES: tuple[str, ...] = (
    *_TOTALS,
    *_GRID,
    *_LOOPS,
    *_DOT,
    *_FIT,
    *_DEPTH_NAMES,
    *(f"load{slot}_{name}" for slot in range(_LOAD_SLOTS) for name in _LOAD),
    *(f"store_{name}" for name in _STORE),
    *_WINDOWS,
    "backend",
)
# Number of hash values for backends: two of them collide with a chance of a thousandth.
_BACKENDS = 1000


def features(
    program: TileProgram, target: Target, limits: Limits = UNLIMITED, backend: str = ""
) -> NDArray[np.float32]:
    """The features of `program` on `target`, in the order of `FEATURE_NAMES`; `limits` are those of the backend."""
    return scaled(np.array(amounts(program, target, limits, backend), dtype=np.float64))


def scaled(amounts: NDArray[np.float64]) -> NDArray[np.float32]:
    """Features from amounts, of one program or of many: sign(x)·log2(|x| + 1)."""
    return np.copysign(np.log2(np.abs(amounts) + 1.0), amounts).astype(np.float32)


def amounts(program: TileProgram, target: Target, limits: Limits, backend: str) -> list[float]:
    """The features before the logarithm, in the order of `FEATURE_NAMES`."""
    nests = [Nest(counts) for counts in count(program)]
    estimates = [estimate(nest, target, limits) for nest in nests]
    at = max(range(len(nests)), key=lambda i: nests[i].counts.work) if len(nests) > 1 else 0
    main = nests[at].counts
    return [
        *_totals(program, nests, estimates),
        *_grid(main, estimates[at], target),
        *_loops(main),
        *_dot(main, target),
        *_fit(main, estimates[at], target),
        *_depths(nests[at], target),
        *_accesses(main),
        *nests[at].overlap,
        zlib.crc32(backend.encode()) % _BACKENDS,
    ]


def _totals(program: TileProgram, nests: list[Nest], estimates: list[Estimate]) -> list[float]:
    dot_flops = map_flops = transcendental = reduced = moved = loaded = stored = 0.0
    for counts in (nest.counts for nest in nests):
        tiles = counts.grid_tiles
        dot_flops += tiles * counts.dot_flops
        map_flops += tiles * counts.map_flops
        transcendental += tiles * counts.transcendental
        reduced += tiles * counts.reduced
        moved += tiles * counts.moved
        loaded += tiles * sum([t.bytes_per_program for t in counts.loads])
        stored += tiles * sum([t.bytes_per_program for t in counts.stores])
    workspace = sum([b.bytes for b in program.buffers if b.role == "workspace"])
    unique = max(1.0, float(sum([b.bytes for b in program.given]) - workspace))
    return [
        len(nests),
        dot_flops,
        map_flops,
        transcendental,
        reduced,
        moved,
        loaded,
        stored,
        unique,
        loaded / unique,
        (dot_flops + map_flops + reduced) / (loaded + 1.0),
        sum(e.memory_bytes for e in estimates),
        sum(e.cache_bytes for e in estimates),
        PICOSECONDS * sum(e.dot_s for e in estimates),
        PICOSECONDS * sum(e.map_s for e in estimates),
        PICOSECONDS * sum(e.memory_s for e in estimates),
        PICOSECONDS * sum(e.cache_s for e in estimates),
        PICOSECONDS * sum(e.latency_s for e in estimates),
        workspace,
    ]


def _grid(counts: KernelCounts, estimated: Estimate, target: Target) -> list[float]:
    grid, launch, tiles = counts.kernel.grid, counts.kernel.launch, counts.grid_tiles
    slots = target.num_sms * estimated.resident
    wave = wave_extents(counts.kernel, min(slots, tiles))
    extents = [1, 1, *(a.extent for a in grid.axes)]
    covered = [1, 1, *(wave[a.variable] for a in grid.axes)]
    return [
        tiles,
        grid.programs,
        estimated.resident,
        tiles / slots,
        estimated.tail,
        extents[-2],
        extents[-1],
        tiles / (extents[-1] * extents[-2]),
        covered[-2],
        covered[-1],
        grid.group[1] if grid.group else 0,
        grid.persistent is not None,
        launch.num_warps,
        launch.num_stages,
        launch.num_ctas,
        launch.max_registers,
        launch.producer_warps,
        launch.alternating,
        launch.overlapped,
        launch.lanes,
        launch.vectors,
    ]


def _loops(counts: KernelCounts) -> list[float]:
    loops = counts.loops
    if not loops:
        return [*([0.0] * (len(_LOOPS) - 2)), counts.branches, counts.prefetched]
    return [
        len(loops),
        1 + max(depth for depth, _, _ in loops),
        loops[0][1],
        max(times for _, times, _ in loops),
        max(loop.pipeline_stages for _, _, loop in loops),
        any(loop.flatten for _, _, loop in loops),
        counts.branches,
        counts.prefetched,
    ]


def _dot(counts: KernelCounts, target: Target) -> list[float]:
    if not counts.dots:
        return [0.0] * len(_DOT)
    d = max(counts.dots, key=lambda dot: dot.m * dot.n * dot.k * dot.times)
    return [
        len(counts.dots),
        d.m,
        d.n,
        d.k,
        d.times,
        d.m / d.n,
        d.m * d.n / (d.m + d.n),
        d.m * d.n / target.lanes,
        d.n % target.lanes,
        _BYTES * d.k * (d.m + d.n),
        d.statement.unroll,
        d.statement.precision == "tf32",
        *_panels(d.load_a),
        *_panels(d.load_b),
    ]


def _panels(load: Load | None) -> tuple[float, float]:
    """Width of the panels that an operand is packed in, 0 when it is not, and the size of the packed tile."""
    return (load.panels.width, load.dst.bytes) if load and load.panels else (0.0, 0.0)


def _fit(counts: KernelCounts, estimated: Estimate, target: Target) -> list[float]:
    largest = max([t.bytes for t in counts.tiles.values()], default=0)
    elements = max([t.elements for t in counts.tiles.values()], default=0)
    balance = target.fp32_flops / target.memory_bytes_per_s
    need = estimated.need
    if need is None:
        launch = counts.kernel.launch
        workers = launch.num_warps * target.wave if target.kind == "gpu" else max(1, launch.lanes)
        return [0.0, 0.0, 0.0, 0.0, 0.0, largest, elements / workers, target.num_sms, balance]
    return [
        need.shared_memory_bytes,
        need.shared_memory_bytes / max(1, target.shared_memory_bytes),
        need.registers_per_thread,
        need.registers_per_thread * need.threads / max(1, target.registers_per_sm),
        need.threads,
        largest,
        elements / need.threads,
        target.num_sms,
        balance,
    ]


def _depths(nest: Nest, target: Target) -> list[float]:
    """Working set against each cache, and operations per byte of it, innermost loop first."""
    counts, levels, sets = nest.counts, nest.levels, nest.working_sets
    work = counts.grid_tiles * (counts.dot_flops + counts.map_flops + counts.reduced)
    iterations = [1.0, *itertools.accumulate((trips for _, trips in levels), operator.mul)]
    values: list[float] = []
    for depth in range(len(levels), max(-1, len(levels) - _DEPTHS), -1):
        size = max(1.0, sets[depth])
        values += [size / target.l1_bytes, size / target.l2_bytes, work / max(1.0, iterations[depth]) / size]
    return values + [0.0] * (3 * _DEPTHS - len(values))


def _accesses(counts: KernelCounts) -> list[float]:
    fast = counts.kernel.grid.axes[-1].variable if counts.kernel.grid.axes else ""
    tiles = counts.grid_tiles
    values: list[float] = []
    for t in counts.loads[:_LOAD_SLOTS]:
        along_last, eviction = False, ""
        if isinstance(t.statement, Load):
            along_last = bool(t.statement.panels and t.statement.panels.axis == t.statement.dst.axes[-1])
            eviction = t.statement.eviction
        repeats = t.tile_bytes * t.times / t.place_bytes
        values += [*_access(t, tiles, fast), along_last, _EVICTION[eviction], repeats]
    values += [0.0] * (len(_LOAD) * max(0, _LOAD_SLOTS - len(counts.loads)))
    if not counts.stores:
        return values + [0.0] * len(_STORE)
    # The store of the most bytes, as of several dots the largest; of pieces of one output, the last.
    main = max(reversed(counts.stores), key=lambda t: t.bytes_per_program)
    assert isinstance(main.statement, Store)
    return [*values, *_access(main, tiles, fast), main.statement.atomic, main.statement.streaming]


def _access(traffic: Traffic, tiles: int, fast: str) -> list[float]:
    s = traffic.statement
    return [
        tiles * traffic.bytes_per_program,
        traffic.tile_bytes,
        traffic.times,
        traffic.run_bytes,
        traffic.run_bytes % _LINE_BYTES == 0,
        traffic.row_bytes,
        # Rows a multiple of a page apart fall into the same cache sets.
        min(traffic.row_bytes % _PAGE_BYTES, -traffic.row_bytes % _PAGE_BYTES),
        traffic.covered,
        isinstance(s, Load | Store) and s.via != "pointer",
        fast in traffic.variables,
    ]
