"""Warp specialisation of chained dots: loops in which dots multiply results of other dots, as in attention.

Before:  load q by descriptor; top, total, acc = …
         for c.0: load k, v by descriptor; s = 0; s += dot(q, k); …; p = …; acc = acc * …; acc += dot(p, v)
         epilogue: maps, stores
After:   rings: one slot of q; slots of k; slots of v
         producer: for each tile: acquire, copy q; for c.0: acquire, copy k; acquire, copy v; advance
         consumers: for each tile: await q; top, total, acc = …
           for c.0: await k; issue s; settle; release k; …; p = …; acc = acc * …; await v; issue acc; settle; release v
           release q; epilogue

Groups divide the rows of a tile: every dot has them, and its other operand is in shared memory.
Tiles of an iteration have rings of their own, so that a slot is free as soon as the dots are done that read it. Groups
may issue their first dots alternately (ping-pong), and dots may overlap with the pointwise work of other iterations.

(Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.roles.divisions import divided_by_rows
from search_spaces.programs.roles.halves import HALF, halved
from search_spaces.programs.roles.iteration import Ahead, InOrder, Iteration
from search_spaces.programs.roles.requests import refuse
from search_spaces.programs.roles.statements import (
    TURNS,
    Acquire,
    Advance,
    Await,
    Copy,
    Drain,
    Everywhere,
    Finish,
    Part,
    Release,
    Ring,
    Role,
    RoleStatement,
    Start,
    Steps,
    Tiles,
)
from search_spaces.programs.roles.trip_counts import most_iterations
from search_spaces.programs.statements import Dot, For, Load, Statement, Store, produced, read, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Tile

# Names of the positions of rings: iterations of the loops, and tiles that are resident over all of them.
STEP, TILE = "step", "tile"
# Name of the ring of resident tiles.
KEPT = "kept"


@dataclass(frozen=True)
class ChainRoles:
    """A kernel with its parts and roles.

    `kept`: loads of tiles resident over all loops. `loops` are the kernel's, for all rows of a tile; `start`, the work
    before them, `shares`, the same loops, and `epilogue` are one group's, for its `rows`.
    """

    kernel: Kernel
    units: WaveGroups
    kept: tuple[Load, ...]
    start: tuple[Statement, ...]
    loops: tuple[For, ...]
    shares: tuple[For, ...]
    epilogue: tuple[Statement, ...]
    rows: int

    @staticmethod
    def of(kernel: Kernel, units: WaveGroups) -> ChainRoles:
        """The roles in a kernel of this form.

        Raises:
            UnmatchedError: the kernel has another form.
        """
        loops = tuple(s for s in kernel.body if isinstance(s, For))
        if not loops or not any(isinstance(s, Dot) for s in loops[0].body):
            refuse(kernel, "expected a loop with dots")
        first = kernel.body.index(loops[0])
        if kernel.body[first : first + len(loops)] != loops:
            refuse(kernel, "expected nothing between loops")
        before, after = kernel.body[:first], kernel.body[first + len(loops) :]
        kept = copied(before)
        start = tuple(s for s in before if s not in kept)
        axis = next(s for s in loops[0].body if isinstance(s, Dot)).dst.axes[0]
        tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
        whole = next(t.extent(axis) for t in tiles.values() if axis in t.axes)
        rows = whole // max(1, kernel.launch.num_warps // units.waves)
        after = divided_by_rows(after, loops, tiles, axis)
        roles = ChainRoles(kernel, units, kept, start, loops, loops, after, rows)
        if roles.groups > 1:
            start, shares, after = (halved(part, axis, rows) for part in (start, loops, after))
            own = tuple(s for s in shares if isinstance(s, For))
            roles = replace(roles, start=start, shares=own, epilogue=after)
        return roles

    # The roles

    @cached_property
    def whole(self) -> Ring:
        """The ring of one slot for the resident tiles."""
        return Ring(KEPT, self.kept, 1, self.groups, TILE)

    @cached_property
    def streamed(self) -> tuple[Ring, ...]:
        """The rings of the tiles of an iteration, which all loops fill."""
        each = [*zip(*(copied(loop.body) for loop in self.loops), strict=True)]
        names = distinct([first.dst.name for first, *_ in each])
        loads = zip(names, each, strict=True)
        shared = (self.stages, self.groups, STEP)
        return tuple(Ring(name, (first,), *shared, others=tuple(others)) for name, (first, *others) in loads)

    @property
    def copied(self) -> tuple[Load, ...]:
        """The loads that the producer issues."""
        return (*self.kept, *(load for loop in self.loops for load in copied(loop.body)))

    @property
    def rings(self) -> tuple[Ring, ...]:
        return (self.whole, *self.streamed) if self.kept else self.streamed

    @cached_property
    def producer(self) -> Role:
        body: list[RoleStatement] = [*self._kept_once] if self.kept else []
        body += [*self.marking, Everywhere(self.marking)] if self.marking else []
        body += [Steps(loop, (*self._filled(loop), Advance(STEP))) for loop in self.loops]
        drained = (Drain(ring) for ring in self.rings)
        registers = self.units.shares.least
        return Role(self.kernel.launch.producer_warps, registers, (*self._starts, Tiles(tuple(body)), *drained))

    @cached_property
    def consumer(self) -> Role:
        """The role of each consumer group."""
        body: list[RoleStatement] = [Await(self.whole), Advance(TILE)] if self.kept else []
        body += self.start
        body += [Everywhere(self.marking)] if self.marking else []
        body += self._overlapped if self.overlapped else self._in_order
        body.append(Finish(self.epilogue))
        registers = self.units.group_registers(self.groups, self.kernel.launch.max_registers)
        starts = (*self._starts, Start(TURNS)) if self.alternating else self._starts
        return Role(self.units.waves, registers, (*starts, Tiles(tuple(body))))

    @property
    def _in_order(self) -> Iterator[RoleStatement]:
        for loop in self.shares:
            order = InOrder(loop, self.ring_of(loop), self.shared, self.alternating)
            yield Steps(loop, (*order.statements(), Advance(STEP)))
        yield from self._release_kept

    @property
    def _overlapped(self) -> Iterator[RoleStatement]:
        first, *others = self.shares
        one = self._ahead(first)
        yield Steps(first, (*one.first(), Advance(STEP)), "first")
        if most_iterations(self.kernel, self.loops[0]) > 1:
            yield Steps(first, (*one.behind(), Advance(STEP)), "behind the first")
        for loop in others:
            yield Steps(loop, (*self._ahead(loop).behind(), Advance(STEP)))
        late = {x for d in one.parts.then for x in (d.a, d.b)} & {s.dst.name for s in self.kept}
        if not late:
            yield from self._release_kept
        yield from one.then()
        yield from one.settled()
        if late:
            yield from self._release_kept

    def _ahead(self, loop: For) -> Ahead:
        return Ahead(self.iteration(loop), self.ring_of(loop), self.alternating)

    @property
    def _release_kept(self) -> list[RoleStatement]:
        return [Release(self.whole, -1)] if self.kept else []

    @property
    def _starts(self) -> tuple[RoleStatement, ...]:
        return (Start(STEP), Start(TILE)) if self.kept else (Start(STEP),)

    @property
    def _kept_once(self) -> Iterator[RoleStatement]:
        yield Acquire(self.whole)
        yield from (Copy(self.whole, load) for load in self.kept)
        yield Advance(TILE)

    def _filled(self, loop: For) -> Iterator[RoleStatement]:
        for ring, load in zip(self.streamed, copied(loop.body), strict=True):
            yield Acquire(ring)
            yield Copy(ring, load)

    def ring_of(self, loop: For) -> dict[str, Ring]:
        """The rings by the tiles that a loop loads."""
        return {load.dst.name: ring for load, ring in zip(copied(loop.body), self.streamed, strict=True)}

    # The shares of groups

    @property
    def groups(self) -> int:
        return self.kernel.launch.num_warps // self.units.waves

    @property
    def parts(self) -> tuple[Part, ...]:
        """The part of a tile that one group computes."""
        return (Part(self.rows_axis, self.rows, HALF),) if self.groups > 1 else ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the grid, and the number of a group."""
        return tuple(a.variable for a in self.moving.grid.axes)

    @property
    def rows_axis(self) -> str:
        return self._dots[0].dst.axes[0]

    @property
    def points_axis(self) -> str:
        """The axis of computed tiles besides the rows: the columns of the first dot."""
        return self._dots[0].dst.axes[1]

    def iteration(self, loop: For) -> Iteration:
        """The parts of a loop's body."""
        return Iteration.of(loop, {s.dst.name for s in (*self.kept, *copied(loop.body))})

    @property
    def _dots(self) -> list[Dot]:
        return [s for s in self.loops[0].body if isinstance(s, Dot)]

    @property
    def marking(self) -> tuple[Load, ...]:
        """The loads of the tiles that mark iterations; every warp that runs the loops reads them."""
        marks = {loop.marks for loop in self.loops}
        return tuple(s for s in self.start if isinstance(s, Load) and s.dst.name in marks)

    @property
    def stages(self) -> int:
        """Slots of every ring."""
        return max(s.pipeline_stages for s in self.loops) or self.kernel.launch.num_stages

    @property
    def alternating(self) -> bool:
        """True if the warp groups issue their first dots alternately."""
        return self.kernel.launch.alternating

    @property
    def overlapped(self) -> bool:
        """True if dots of an iteration run while the next one is computed."""
        return self.kernel.launch.overlapped

    @property
    def moving(self) -> Kernel:
        """The kernel of one group, with whole tiles of copied operands; its arguments follow from this."""
        grid = replace(self.kernel.grid, axes=(*self.kernel.grid.axes, GridAxis(HALF, self.groups)))
        body = (*self.kept, *self.start, *self.shares, *self.epilogue)
        return replace(self.kernel, grid=grid, body=body)

    @property
    def finishing(self) -> Kernel:
        """The epilogue as a kernel of its own."""
        return replace(self.moving, body=self.epilogue)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores by descriptor."""
        return tuple(s for s in self.epilogue if isinstance(s, Store) and s.via == "descriptor")

    @cached_property
    def tiles(self) -> dict[str, Tile]:
        """The tiles of one warp group, by name."""
        return {t.name: t for s in statements(self.moving.body) for t in produced(s)}

    @cached_property
    def shared(self) -> dict[str, Load]:
        """The loads into shared memory, by tile."""
        return {s.dst.name: s for s in self.copied}

    @property
    def computed(self) -> list[Tile]:
        """The tiles in registers."""
        return [t for name, t in self.tiles.items() if name not in self.shared]

    @property
    def finished(self) -> tuple[Tile, ...]:
        """The tiles that the epilogue takes from the loops, in the order of their definition."""
        needed = {x for s in self.epilogue for x in read(s)}
        made = {t.name: t for s in statements((*self.start, *self.shares)) for t in produced(s)}
        return tuple(t for name, t in made.items() if name in needed)


def follows_dots(kernel: Kernel) -> bool:
    """True if dots of a loop multiply results of its other dots, so that some operands are not loaded."""
    loaded = {s.dst.name for s in kernel.body if isinstance(s, Load)}
    for loop in (s for s in kernel.body if isinstance(s, For)):
        here = loaded | {s.dst.name for s in loop.body if isinstance(s, Load)}
        if len({{s.a, s.b} <= here for s in loop.body if isinstance(s, Dot)}) > 1:
            return True
    return False


def copied(body: Sequence[Statement]) -> tuple[Load, ...]:
    """The loads among these statements that a producer issues."""
    return tuple(s for s in body if isinstance(s, Load) and s.via == "descriptor")


def distinct(names: Sequence[str]) -> list[str]:
    """Unique names, numbered from the second use of a name on."""
    found: list[str] = []
    for name in names:
        found.append(name if name not in found else f"{name}_{len(found)}")
    return found


def sides(dot: Dot, tiles: dict[str, Tile]) -> tuple[str, str]:
    """The tiles of rows and columns of a dot, in this order."""
    return (dot.a, dot.b) if dot.dst.axes[0] in tiles[dot.a].axes else (dot.b, dot.a)
