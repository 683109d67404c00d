"""Bytes that cross each level of the memory hierarchy, estimated from the loop nest.

A cache keeps the data of the innermost loops: the outermost loop whose whole working set fits in the cache is entered
anew on every iteration of the loops around it, and each entry reads that working set once (the footprint argument of
Wolf and Lam, "A data locality optimizing algorithm", PLDI 1991, section 3). On a GPU the programs of one wave run side
by side, so operands that they share come from memory once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cost_models.program_counts import KernelCounts, Traffic, wave_extents
from search_spaces.programs.statements import Gather, Load, Store, View

# The share of a cache for reused data; streams take the rest.
_USABLE = 0.75

Level = tuple[str, float]  # a loop: its variable and how often its body runs


@dataclass(frozen=True)
class Nest:
    """The loop nest of one kernel with the bytes that its loops touch."""

    counts: KernelCounts

    @cached_property
    def traffic(self) -> list[Traffic]:
        """Accesses that really touch memory: on a CPU a tile that is only viewed, and not packed, is not loaded whole.

        A GPU loads it to shared memory, where its views touch it (`programs.halos`).
        """
        if self.counts.kernel.launch.lanes == 1:
            return [*self.counts.loads, *self.counts.stores]
        viewed = {v.statement.src for v in self.counts.views if isinstance(v.statement, View)}
        loads = [t for t in self.counts.loads if not _read_in_place(t.statement, viewed)]
        return [*loads, *self.counts.views, *self.counts.stores]

    @cached_property
    def reads(self) -> list[Traffic]:
        """The same, loads that overlap being one: each of its bytes comes from further away once."""
        joined = {id(t) for loads, _ in self.counts.joined for t in loads}
        rest = [t for t in self.traffic if id(t) not in joined] if joined else self.traffic
        return [*(whole for _, whole in self.counts.joined), *rest]

    @property
    def overlap(self) -> tuple[float, float]:
        """The overlapping reads of one program, and bytes read over distinct ones, of the buffer with most; else 0."""
        found = [(1.0, [t], t) for t in self.counts.loads if t.windows]
        found += [(float(len(loads)), loads, whole) for loads, whole in self.counts.joined]
        if not found:
            return 0.0, 0.0
        visits, loads, whole = max(found, key=lambda of: sum(t.tile_bytes * t.times for t in of[1]))
        trips = dict(whole.loops)
        moved = [w.visited(trips) / w.positions for w in whole.windows if w.overlaps]
        read = sum(t.tile_bytes * _trips(t) for t in loads)
        return min(visits * math.prod(moved), visits * _trips(whole)), read / _overlapping(whole, whole.loops)

    @cached_property
    def grid(self) -> list[Level]:
        """Grid axes in the order in which they vary, slowest first; a grouped axis is two of them."""
        grid = self.counts.kernel.grid
        levels: list[Level] = [(a.variable, a.extent) for a in grid.axes]
        if grid.group is not None and len(levels) > 1:
            (slow, extent), fast = levels[-2:]
            size = min(grid.group[1], extent)
            levels[-2:] = [(slow, math.ceil(extent / size)), fast, (slow, size)]
        return levels

    @cached_property
    def levels(self) -> list[Level]:
        """All loops, outermost first: the grid, then the longest chain of nested loops."""
        return [*self.grid, *max((t.loops for t in self.traffic), key=len, default=())]

    @cached_property
    def footprints(self) -> list[list[float]]:
        """Per access, the distinct bytes that one iteration around each level touches, the whole grid first."""
        return [_footprints(t, self.levels) for t in self.reads]

    @cached_property
    def working_sets(self) -> list[float]:
        """Bytes touched by one iteration around each level, the whole grid first; the last is one of the innermost."""
        by_place = {"": [0.0] * (len(self.levels) + 1)}
        for t, sizes in zip(self.reads, self.footprints, strict=True):
            known = by_place.get(t.place)
            by_place[t.place] = sizes if known is None else list(map(max, known, sizes))
        return [sum(sizes) for sizes in zip(*by_place.values(), strict=True)]

    def bytes_through(self, cache_bytes: float) -> float:
        """Bytes read and written beyond a cache of that size."""
        usable = _USABLE * cache_bytes
        levels, grid, total = self.levels, len(self.grid), 0.0
        depth = next((d for d, size in enumerate(self.working_sets) if size <= usable), len(levels))
        programs = math.prod([trips for _, trips in levels[: min(depth, grid)]])
        around = {variable for variable, _ in levels[grid:depth]}
        for t, sizes in zip(self.reads, self.footprints, strict=True):
            entries = programs
            for variable, trips in t.loops:
                if variable in around:
                    entries *= trips
            total += t.taken * entries * sizes[depth]
        return total

    def device_memory_bytes(self, concurrent: int, l2_bytes: int) -> float:
        """Bytes that a GPU moves to and from its memory when `concurrent` programs run at once."""
        grid, tiles = self.counts.kernel.grid, self.counts.grid_tiles
        wave = min(concurrent, tiles)
        covered = list(wave_extents(self.counts.kernel, wave).items())
        axes = [(a.variable, a.extent) for a in grid.axes]
        whole = unique = 0.0
        for t in self.reads:
            once = _footprint(t, axes)
            unique += once
            # The box of positions that a wave covers may have more than the wave has programs.
            touched = min(_footprint(t, covered), wave * _footprint(t, ()))
            whole += max(once, touched * tiles / max(1, wave))
        # Later waves hit the part of all data that the L2 cache keeps.
        reused = min(1.0, _USABLE * l2_bytes / unique) if unique else 1.0
        return unique + (whole - unique) * (1.0 - reused)


def _read_in_place(statement: Load | Gather | Store | View, viewed: set[str]) -> bool:
    return isinstance(statement, Load) and statement.panels is None and statement.dst.name in viewed


def _footprints(traffic: Traffic, levels: Sequence[Level]) -> list[float]:
    size, most = float(traffic.tile_bytes), float(traffic.place_bytes)
    if traffic.windows:
        inward = [levels[depth:] for depth in range(len(levels) + 1)]
        return [min(_overlapping(traffic, within), most) for within in inward]
    sizes = [size if size < most else most]
    for variable, trips in reversed(levels):
        size *= traffic.distinct(variable, trips)
        sizes.append(size if size < most else most)
    sizes.reverse()
    return sizes


def _footprint(traffic: Traffic, grid: Sequence[Level]) -> float:
    """Distinct bytes that a load or store touches in its own loops and these of the grid."""
    if traffic.windows:
        return min(_overlapping(traffic, (*grid, *traffic.loops)), traffic.place_bytes)
    size = float(traffic.tile_bytes)
    for levels in (grid, traffic.loops):
        for variable, trips in levels:
            size *= traffic.distinct(variable, trips)
    return min(size, traffic.place_bytes)


def _trips(traffic: Traffic) -> float:
    """Iterations of one program in which the place of a load differs."""
    return math.prod(times for variable, times in traffic.loops if variable in traffic.variables)


def _overlapping(traffic: Traffic, levels: Sequence[Level]) -> float:
    """Distinct bytes of a load whose windows overlap, over these levels."""
    trips: dict[str, float] = {}
    for variable, times in levels:
        if variable in traffic.variables:
            trips[variable] = times * trips.get(variable, 1.0)
    distinct = math.prod([w.distinct(trips) / w.positions for w in traffic.windows])
    return traffic.tile_bytes * min(math.prod(trips.values()), distinct)
