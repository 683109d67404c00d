"""Counts of a kernel's execution from one traversal of its statements: operations, and an entry per memory access.

Counts are expectations over the whole grid: a loop multiplies its body by its trips, a branch by how often it is taken,
a loop with a bound by the part of its trips that the bound leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cost_models import issue
from cost_models.bound_variables import bound_variables, live_tiles, repeats
from cost_models.contiguous import contiguous
from cost_models.trip_shares import TripShares
from cost_models.windows import Window, joined, may_overlap, windows_of
from search_spaces.programs.statements import (
    Deinterleave,
    Dot,
    Fill,
    For,
    Gather,
    If,
    Interleave,
    Let,
    Load,
    Map,
    Position,
    Prefetch,
    Reduce,
    Regroup,
    Scan,
    Split,
    Statement,
    Store,
    View,
    produced,
    read,
)
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import DTYPES
from search_spaces.workloads.expressions.operators import OPERATORS

Loops = tuple[tuple[str, float], ...]  # variable and trips, outermost first

# Operators that cost more operations than a division.
TRANSCENDENTAL = frozenset(name for name, (_, flops) in OPERATORS.items() if flops > OPERATORS["div"][1])


@dataclass(slots=True)
class Traffic:
    """One load, gather or store of a kernel, or one view of a loaded tile.

    `place` is the buffer, or the packed tile, that it touches, of `place_bytes`. `times`: executions per program of the
    grid; `taken`: the part of the iterations of its loops in which it is executed, less than 1 inside a branch;
    `loops`: the loops around it, outermost first, with their trips; `variables`: the grid and loop variables its place
    depends on; `covered`: the reach of all its executions relative to the buffer, 1 without padding; `run_bytes`:
    length of one contiguous piece; `row_bytes`: distance between the starts of two rows; `windows`, where reads of
    several iterations or programs overlap: its positions by dimension; `repeats`: values of a variable, one after the
    other, that usually have the same place.
    """

    statement: Load | Gather | Store | View
    place: str
    place_bytes: int
    tile_bytes: int
    times: float
    taken: float
    loops: Loops
    variables: frozenset[str]
    covered: float
    run_bytes: int
    row_bytes: int
    windows: tuple[Window, ...] = ()
    repeats: Mapping[str, float] = field(default_factory=dict)

    def distinct(self, variable: str, trips: float) -> float:
        """Places of so many values of a variable, one after the other."""
        if variable not in self.variables:
            return 1.0
        return max(1.0, trips / self.repeats[variable]) if variable in self.repeats else trips

    @property
    def bytes_per_program(self) -> float:
        """Bytes moved by one program, repeats included, padding not."""
        return self.tile_bytes * self.times / self.covered


@dataclass(slots=True)
class DotShape:
    """One dot of a kernel: extents of the tile product, its operands, and how often one program executes it."""

    m: int
    n: int
    k: int
    times: float
    statement: Dot
    a: Tile
    b: Tile
    load_a: Load | None  # the load of the operand, if any
    load_b: Load | None


@dataclass(slots=True)
class KernelCounts:
    """Operations per program of the grid, and all data movement."""

    program: TileProgram
    kernel: Kernel
    grid_tiles: int  # that have an effect
    dots: list[DotShape] = field(default_factory=list)
    loads: list[Traffic] = field(default_factory=list)
    # Loads that overlap, as the taps of an unrolled window do, and one load of all that they read.
    joined: list[tuple[list[Traffic], Traffic]] = field(default_factory=list)
    stores: list[Traffic] = field(default_factory=list)
    views: list[Traffic] = field(default_factory=list)
    loops: list[tuple[int, float, For]] = field(default_factory=list)  # depth from 0, trips of all loops up to it, loop
    tiles: dict[str, Tile] = field(default_factory=dict)
    map_flops: float = 0.0
    issued: float = 0.0  # operations that instructions of maps and reductions take the time of, on a GPU
    transcendental: float = 0.0
    reduced: float = 0.0
    moved: float = 0.0  # elements filled and split
    prefetched: float = 0.0  # elements
    branches: int = 0
    dot_flops: float = 0.0

    @property
    def work(self) -> float:
        """Operations and bytes of the whole grid: they decide which kernel of a program is the main one."""
        moved = sum([t.tile_bytes * t.times for t in (*self.loads, *self.stores)])
        return self.grid_tiles * (self.dot_flops + self.map_flops + self.reduced + moved)


def count(program: TileProgram) -> tuple[KernelCounts, ...]:
    """The counts of every kernel, in order."""
    return tuple(_Counter(program, kernel).counts for kernel in program.called.kernels)


class _Counter:
    """A traversal of one kernel; `counts` is filled when it is constructed."""

    def __init__(self, program: TileProgram, kernel: Kernel) -> None:
        self.counts = KernelCounts(program, kernel, live_tiles(kernel))
        self._buffers = {b.name: b for b in program.buffers}
        self._extents = {a.variable: a.extent for a in kernel.grid.axes}
        self._shares = TripShares(self._extents)
        self._counted: dict[str, str] = {}  # digit -> the variable of the loop that counts it
        self._numbers: dict[str, tuple[str, ...]] = {}  # digit -> all variables of the number
        self._sources: dict[str, Traffic] = {}  # tile -> its load, also for views of it
        self._bound = bound_variables(kernel)
        self._visit(kernel.body, 1.0, 1.0, ())
        self._join()

    def _visit(self, body: tuple[Statement, ...], times: float, taken: float, loops: Loops) -> None:
        counts, tiles = self.counts, self.counts.tiles
        pairs = issue.in_pairs(body, counts.kernel.launch.producer_warps > 0)
        for s in body:
            if isinstance(s, Map):
                self._map(s, times, pairs)
            elif isinstance(s, Load):
                tiles[s.dst.name] = s.dst
                self._sources[s.dst.name] = loaded = self._traffic(s, s.dst, times, taken, loops)
                counts.loads.append(loaded)
            elif isinstance(s, Gather):
                tiles[s.dst.name] = s.dst
                counts.loads.append(self._gather(s, times, taken, loops))
            elif isinstance(s, Position):
                tiles[s.dst.name] = s.dst
                counts.map_flops += times * s.dst.elements
                counts.issued += times * s.dst.elements
            elif isinstance(s, Dot):
                self._dot(s, times)
            elif isinstance(s, For):
                self._extents[s.variable] = s.extent
                if s.digits is not None:
                    self._extents.update(s.digits.radix)
                    self._counted.update((name, s.variable) for name, _ in s.digits.radix)
                    self._numbers.update((name, s.digits.number.axes) for name, _ in s.digits.radix)
                trips = s.extent * self._shares.within(s.bound) * self._shares.useful(s) * self._marked_share(s)
                counts.loops.append((len(loops), times * trips, s))
                self._visit(s.body, times * trips, taken, (*loops, (s.variable, trips)))
            elif isinstance(s, Store):
                counts.stores.append(self._traffic(s, tiles[s.src], times, taken, loops))
            elif isinstance(s, Reduce):
                tiles[s.dst.name] = s.dst
                counts.reduced += times * tiles[s.src].elements
                counts.issued += times * issue.of_reduction(s, tiles[s.src], bool(counts.dots))
            elif isinstance(s, Scan):
                self._scan(s, times)
            elif isinstance(s, If):
                counts.branches += 1
                share = self._shares.taken(s)
                self._visit(s.then, times * share, taken * share, loops)
                self._visit(s.otherwise, times * (1.0 - share), taken * (1.0 - share), loops)
            elif isinstance(s, Let):
                self._extents[s.variable] = s.extent
                self._shares.ends[s.variable] = self._elements_read(s.src, body)
                self._shares.usual[s.variable] = s.usual
            elif isinstance(s, View):
                self._view(s, times, taken, loops)
            elif isinstance(s, Regroup):
                tiles[s.dst.name] = s.dst
            elif isinstance(s, Prefetch):
                counts.prefetched += times * s.tile.elements
            else:
                self._move(s, times)

    def _map(self, s: Map, times: float, pairs: Mapping[str, float]) -> None:
        elements = times * s.dst.elements
        self.counts.map_flops += elements * _flops(s)
        self.counts.issued += elements * pairs.get(s.dst.name, issue.of_map(s, self.counts.tiles))
        self.counts.tiles[s.dst.name] = s.dst
        if s.operator in TRANSCENDENTAL:
            self.counts.transcendental += elements

    def _scan(self, s: Scan, times: float) -> None:
        """As many combinations as a reduction has, at every step of halving a tile."""
        self.counts.tiles.update((t.name, t) for t in s.dsts)
        steps = max(1, s.dsts[0].extent(s.axis) - 1).bit_length()
        self.counts.reduced += times * s.dsts[0].elements
        combined = times * s.dsts[0].elements * steps * sum(_flops(m) for m in s.combine.body)
        self.counts.map_flops += combined
        self.counts.issued += times * s.dsts[0].elements + combined

    def _dot(self, s: Dot, times: float) -> None:
        tiles = self.counts.tiles
        a, b = tiles[s.a], tiles[s.b]
        tiles.setdefault(s.dst.name, s.dst)
        k = a.extent(s.axis)
        m = a.elements // k
        n = s.dst.elements // m
        self.counts.dot_flops += 2.0 * m * n * k * times
        self.counts.dots.append(DotShape(m, n, k, times, s, a, b, self._load_of(s.a), self._load_of(s.b)))

    def _load_of(self, tile: str) -> Load | None:
        source = self._sources.get(tile)
        return source.statement if source and isinstance(source.statement, Load) else None

    def _view(self, s: View, times: float, taken: float, loops: Loops) -> None:
        """A view of a packed tile touches the tile; one of a tile that is read in place touches the buffer itself."""
        self.counts.tiles[s.dst.name] = s.dst
        source = self._sources.get(s.src)
        if source is None:
            return
        packed = isinstance(source.statement, Load) and source.statement.panels is not None
        own = frozenset(v for piece in s.slices for v, _ in piece.start.terms)
        viewed = Traffic(
            statement=s,
            place=s.src if packed else source.place,
            place_bytes=source.tile_bytes if packed else source.place_bytes,
            tile_bytes=source.tile_bytes * s.dst.elements // max(1, self.counts.tiles[s.src].elements),
            times=times,
            taken=taken,
            loops=loops,
            variables=own if packed else own | source.variables,
            covered=source.covered,
            run_bytes=source.run_bytes,
            row_bytes=source.row_bytes,
        )
        self.counts.views.append(viewed)
        self._sources[s.dst.name] = source

    def _join(self) -> None:
        """Join the loads of one buffer, in the same iterations, that overlap."""
        alike: dict[tuple[str, Loops, float], list[tuple[Traffic, Load]]] = {}
        for t in self.counts.loads:
            if isinstance(t.statement, Load):
                alike.setdefault((t.place, t.loops, t.taken), []).append((t, t.statement))
        for loads in alike.values():
            if len(loads) > 1 and (windows := joined([self._windows(s) for _, s in loads])):
                first, statement = loads[0]
                single = math.prod(w.positions for w in self._windows(statement))
                whole = int(first.tile_bytes * math.prod(w.positions for w in windows) / single)
                self.counts.joined.append(([t for t, _ in loads], replace(first, tile_bytes=whole, windows=windows)))

    def _windows(self, s: Load) -> tuple[Window, ...]:
        return windows_of(s.slices, self._buffers[s.buffer].shape, self._extents, self._counted)

    def _move(self, s: Fill | Split | Deinterleave | Interleave, times: float) -> None:
        for tile in produced(s):
            self.counts.tiles[tile.name] = tile
            self.counts.moved += times * tile.elements

    def _marked_share(self, s: For) -> float:
        """The part of a loop's iterations that a block mask keeps: half for boolean inputs, as in trials."""
        return 0.5 if s.marks and self.counts.tiles[s.marks].dtype == "bool" else 1.0

    def _elements_read(self, tile: str, body: Sequence[Statement]) -> int:
        """Elements of the largest of the buffers that a tile of a body is computed from."""
        needed, found = {tile}, 1
        for s in reversed(body):
            if not needed.isdisjoint(t.name for t in produced(s)):
                needed.update(read(s))
                found = max(found, math.prod(self._buffers[s.buffer].shape) if isinstance(s, Load | Gather) else 1)
        return found

    def _traffic(self, s: Load | Store, tile: Tile, times: float, taken: float, loops: Loops) -> Traffic:
        buffer = self._buffers[s.buffer]
        element = DTYPES[buffer.dtype].bytes
        variables, covered = self._reach(s.slices, buffer.shape)
        windows = self._windows(s) if isinstance(s, Load) and may_overlap(s.slices) else ()
        return Traffic(
            statement=s,
            place=buffer.name,
            place_bytes=buffer.bytes,
            tile_bytes=tile.elements * element,
            times=times,
            taken=taken,
            loops=loops,
            variables=variables,
            covered=covered,
            run_bytes=element * contiguous(s.slices, buffer.shape),
            row_bytes=element * (buffer.shape[-1] if buffer.shape else 1),
            windows=windows if any(w.overlaps for w in windows) else (),
            repeats=repeats(s.slices, self.counts.kernel, self._bound, self._extents) if self._bound else {},
        )

    def _gather(self, s: Gather, times: float, taken: float, loops: Loops) -> Traffic:
        """A gather without reuse: no two programs or iterations touch the same element."""
        buffer = self._buffers[s.buffer]
        element = DTYPES[buffer.dtype].bytes
        last = s.index[-1]
        run = min(last.extent or 1, buffer.shape[-1]) if isinstance(last, Slice) else 1
        return Traffic(
            statement=s,
            place=buffer.name,
            place_bytes=buffer.bytes,
            tile_bytes=s.dst.elements * element,
            times=times,
            taken=taken,
            loops=loops,
            variables=frozenset(self._extents),
            covered=1.0,
            run_bytes=element * run,
            row_bytes=element * buffer.shape[-1],
        )

    def _reach(self, slices: tuple[Slice, ...], shape: tuple[int, ...]) -> tuple[frozenset[str], float]:
        """The variables that the place depends on, and the reach relative to the buffer.

        One loop for both: this is the innermost loop of proposing. Reads with a negative step end at the beginning.
        """
        variables: list[str] = []
        covered = 1.0
        for piece, size in zip(slices, shape, strict=True):
            if piece.flat is not None and not piece.is_side:
                variables += (*piece.start.axes, *piece.flat.start.axes)
                last = piece.flat.start.maximum(self._extents) + (piece.extent or 1) - 1
                covered *= max(1.0, (piece.flat.of(last) + 1) / size) if not piece.flat.size else 1.0
                continue
            extent = piece.side
            reach = piece.start.offset + (extent if piece.step == 1 else max(0, piece.step * (extent - 1)) + 1)
            for variable, step in piece.start.terms:
                variables.append(variable)
                if step > 0:
                    reach += step * (self._extents[variable] - 1)
            if reach > size:
                covered *= reach / size
        if self._bound:
            variables = [of for v in variables for of in self._bound.get(v, (v,))]
        if self._numbers:
            variables = [of for v in variables for of in self._numbers.get(v, (v,))]
        return frozenset(variables), covered


def _flops(s: Map) -> int:
    """Operations charged per element."""
    return 1 if s.operator == "cast" else OPERATORS[s.operator][1]


def wave_extents(kernel: Kernel, count: int) -> dict[str, int]:
    """Number of values of each grid axis that `count` neighbouring programs cover, in rasterisation order."""
    extents: dict[str, int] = {}
    left = count
    axes = [(a.variable, a.extent) for a in reversed(kernel.grid.axes)]
    if kernel.grid.group is not None and len(axes) > 1:
        size = kernel.grid.group[1]
        (fast, fast_extent), (slow, slow_extent) = axes[0], axes[1]
        within = min(left, size, slow_extent)
        across = min(-(-left // within), fast_extent)
        more = min(-(-left // (within * across)), -(-slow_extent // within))
        extents = {fast: across, slow: min(within * more, slow_extent)}
        left = -(-left // max(1, math.prod(extents.values())))
        axes = axes[2:]
    for variable, extent in axes:
        extents[variable] = min(left, extent)
        left = -(-left // extents[variable])
    return extents
