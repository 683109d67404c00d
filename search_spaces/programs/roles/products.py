"""Warp specialisation of contractions: the main loop's loads become a producer's, its dots those of groups of warps.

Before:  acc, acc2 = 0, 0
         for k.0: load a, b and b2 by descriptor; acc += dot(a, b); acc2 += dot(a, b2)
         epilogue: maps, loads and cuts of tiles, stores
After:   ring operands: slots of a, b and b2
         producer: for each tile: for k.0: acquire operands; copy a, b, b2; advance
         consumers: for each tile: acc, acc2 = 0, 0
           for k.0: await operands; issue the dots; settle those of the last iteration; release its slot; advance
           settle; release; epilogue, which reads what the producer copied into a ring of its own

    cooperative    groups have equal parts of the rows of every tile
    ping-pong      two groups compute alternate tiles, and issue their main loops alternately
    clusters       the blocks of a cluster have equal parts of a tile, and each copies a part of the shared operand

(CUTLASS: `KernelTmaWarpSpecializedCooperative`, `KernelTmaWarpSpecializedPingpong`; Bauer et al., "CudaDMA", SC 2011.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.devices.group_dots import block_shape
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.roles.halves import BLOCK, HALF, halved
from search_spaces.programs.roles.requests import (
    check_load,
    k_major,
    refuse,
)
from search_spaces.programs.roles.statements import (
    TURNS,
    Acquire,
    Advance,
    Await,
    Copy,
    Drain,
    EachGroup,
    Fetch,
    Finish,
    Give,
    Issue,
    Next,
    Part,
    Partial,
    Place,
    Promote,
    Release,
    Ring,
    Role,
    RoleStatement,
    Settle,
    Skip,
    Start,
    Steps,
    Take,
    Tiles,
)
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Gather,
    Let,
    Load,
    Map,
    Position,
    Split,
    Statement,
    Store,
    produced,
)
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import dtype, is_promoted

# Names of the positions of the two rings: iterations of the main loop, and tiles of the outputs.
STEP, TILE = "step", "tile"


@dataclass(frozen=True)
class ProductRoles:
    """A kernel with its parts and roles.

    Tiles of `rows_read` have the rows of the accumulators and those of `columns_read` their columns, in either order of
    the operands. `epilogue`: that of one group of a block, for its part; `extras`: the loads of it that the producer
    issues.
    """

    kernel: Kernel
    units: WaveGroups
    loop: For
    rows_read: tuple[Load, ...]
    columns_read: tuple[Load, ...]
    dots: tuple[Dot, ...]
    epilogue: tuple[Statement, ...]
    extras: tuple[Load, ...]
    kept_registers: int = 0
    placing: tuple[Statement, ...] = ()

    @staticmethod
    def of(kernel: Kernel, units: WaveGroups, kept_registers: int = 0) -> ProductRoles:
        """The roles in a kernel of this form; `kept_registers`: of a thread of the producer (0: the least).

        Raises:
            UnmatchedError: the kernel has another form.
        """
        placing, loop, epilogue = _parts(kernel)
        loads, dots = _operands(kernel, loop)
        row = dots[0].dst.axes[0]
        rows_read = tuple(s for s in loads if row in s.dst.axes)
        columns_read = tuple(s for s in loads if row not in s.dst.axes)
        each = (loop, rows_read, columns_read, dots, epilogue)
        roles = ProductRoles(kernel, units, *each, (), kept_registers, placing)
        if roles.blocks > 1:
            if any(isinstance(s, Split) and s.axis == roles.cut_axis for s in epilogue):
                refuse(kernel, f"its epilogue cuts tiles along {roles.cut_axis}, as the blocks of a cluster do")
            epilogue = halved(epilogue, roles.cut_axis, roles.cut_size, BLOCK)
        if roles.shares_tile:
            epilogue = halved(epilogue, row, roles.rows)
        extras = tuple(s for s in epilogue if isinstance(s, Load) and s.via == "descriptor")
        return replace(roles, epilogue=epilogue, extras=extras)

    # The roles

    @cached_property
    def operands(self) -> Ring:
        """The ring of the dots' operands."""
        return Ring("operands", self.loads, self.stages, self.groups if self.shares_tile else 1, STEP)

    @cached_property
    def extra(self) -> Ring:
        """The ring of the epilogue's tiles, of one slot for each group."""
        return Ring("extras", self.extras, 1, 1, TILE, apart=True)

    @property
    def copied(self) -> tuple[Load, ...]:
        """The loads that the producer issues."""
        return (*self.loads, *self.extras)

    @property
    def rings(self) -> tuple[Ring, ...]:
        return (self.operands, self.extra) if self.extras else (self.operands,)

    @cached_property
    def producer(self) -> Role:
        # The tiles of an epilogue are needed last, and their place is free late.
        ring, extras = self.operands, EachGroup(_filled(self.extra), self.alternating)
        body: tuple[RoleStatement, ...] = (*self._place, Steps(self.loop, (*_filled(ring), Advance(STEP))))
        body += (extras, Advance(TILE)) if self.extras else ()
        registers = self.kept_registers or self.units.shares.least
        return Role(1, registers, (*(Start(x.position) for x in self.rings), Tiles(body), Drain(ring)))

    @cached_property
    def consumer(self) -> Role:
        """The role of each consumer group."""
        extent, turns = self.loop.extent, self.alternating
        starts: list[RoleStatement] = [Start(STEP, extent if turns else 0)]
        starts += [Start(TURNS)] if turns else []
        starts += [Start(TILE)] if self.extras else []
        body: list[RoleStatement] = [*self._place, *(Fill(t, 0.0) for t in self.accumulators)]
        body += [Take()] if turns else []
        body += self._main_loop
        # Past the steps of the other group's tile.
        body += [Skip(STEP, extent)] if turns else []
        body.append(Finish(tuple(self._finish)))
        registers = self.units.group_registers(self.groups, kept=self.kept_registers) if self.groups > 1 else 0
        return Role(self.units.waves, registers, (*starts, Tiles(tuple(body), 2 if turns else 1)))

    @property
    def _place(self) -> tuple[Place, ...]:
        return (Place(self.placing),) if self.placing else ()

    @property
    def _main_loop(self) -> list[RoleStatement]:
        if self.promotes:
            return self._promoted
        return self._through_registers if self.a_through_registers else self._in_flight

    @property
    def _in_flight(self) -> list[RoleStatement]:
        """The dots of one iteration run during the wait for the next one's operands."""
        ring, dots = self.operands, self.dots
        step = (Await(ring), Issue(dots), Settle(dots, len(dots)), Release(ring, -1, "behind the first"), Advance(STEP))
        return [Steps(self.loop, step), *self._hand_over, Settle(dots), Release(ring, -1, "had any")]

    @property
    def _through_registers(self) -> list[RoleStatement]:
        """Rows go through registers: those of the next dot are loaded while the previous dot runs."""
        ring, dots = self.operands, self.dots
        following, done = (Await(ring, 1), Fetch(ring, self.a, 1)), (Settle(dots), Release(ring))
        step = (Issue(dots), *following, *done, Next(self.a), Advance(STEP))
        steps = Steps(self.loop, step, "before the last")
        return [Await(ring), Fetch(ring, self.a), steps, Issue(dots), *self._hand_over, *done, Advance(STEP)]

    @property
    def _promoted(self) -> list[RoleStatement]:
        """The accumulators of a step are added up in float32 before the next dot begins.

        Other groups' dots run meanwhile. Two dots in flight would be serialised by ptxas, which refuses to read the
        accumulators of one while the other runs (its note C7514).
        """
        ring, dots = self.operands, self.dots
        issue = Issue(dots, anew=frozenset(d.dst.name for d in dots), partial=True)
        step = (Await(ring), issue, Settle(dots), Release(ring), Promote(dots), Advance(STEP))
        return [Partial(dots), Steps(self.loop, step), *self._hand_over]

    @property
    def _hand_over(self) -> list[RoleStatement]:
        """Pass the main loop to the other group.

        Every slot of this tile has been waited for, so none is mistaken for one of an earlier phase of the ring, and
        the dots of both groups do not compete.
        """
        return [Give()] if self.alternating else []

    @property
    def _finish(self) -> Iterator[RoleStatement]:
        """The epilogue; tiles from the producer are awaited before their first load, and released after the last."""
        numbers = [n for n, s in enumerate(self.epilogue) if s in self.extras]
        for number, s in enumerate(self.epilogue):
            if numbers and number == numbers[0]:
                yield from (Await(self.extra), Advance(TILE))
            yield s
            if numbers and number == numbers[-1]:
                yield Release(self.extra, -1)

    # The shares of blocks and groups

    @property
    def groups(self) -> int:
        return self.kernel.launch.num_warps // self.units.waves

    @property
    def alternating(self) -> bool:
        """True if two groups compute alternate tiles."""
        return self.kernel.launch.alternating

    @property
    def loads(self) -> tuple[Load, ...]:
        """The operands, each loaded once an iteration."""
        return (*self.rows_read, *self.columns_read)

    @property
    def a(self) -> Load:
        """The rows of the first dot."""
        return self.rows_read[0]

    @property
    def b(self) -> Load:
        """The columns of the first dot."""
        return self.columns_read[0]

    @property
    def dot(self) -> Dot:
        """The first dot; all have tiles of the same shape."""
        return self.dots[0]

    def sides(self, dot: Dot) -> tuple[str, str]:
        """The tiles of rows and columns of a dot, in this order."""
        rows = {load.dst.name for load in self.rows_read}
        return (dot.a, dot.b) if dot.a in rows else (dot.b, dot.a)

    @property
    def shares_tile(self) -> bool:
        """True if a tile's rows are divided among the warp groups."""
        return self.groups > 1 and not self.alternating

    @property
    def parts(self) -> tuple[Part, ...]:
        """The part of a tile that one group computes."""
        block = Part(self.cut_axis, self.cut_size, BLOCK)
        group = Part(self.dot.dst.axes[0], self.rows, HALF)
        return (block,) * (self.blocks > 1) + (group,) * self.shares_tile

    @property
    def blocks(self) -> int:
        """Blocks of a cluster, which divide a tile."""
        return self.kernel.launch.num_ctas

    @cached_property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of a tile in one block."""
        rows, columns = self.dot.dst.shape
        return block_shape(rows, columns, self.blocks)

    @property
    def cut_axis(self) -> str:
        """The axis along which the blocks of a cluster divide a tile."""
        return self.dot.dst.axes[self.block_shape[0] == self.dot.dst.shape[0]]

    @property
    def cut_size(self) -> int:
        """Positions of the cut axis in one block."""
        return self.dot.dst.extent(self.cut_axis) // self.blocks

    @property
    def rows(self) -> int:
        """Rows of a tile that one warp group computes."""
        return self.block_shape[0] // (self.groups if self.shares_tile else 1)

    @property
    def columns(self) -> int:
        return self.block_shape[1]

    @cached_property
    def accumulators(self) -> tuple[Tile, ...]:
        """The accumulators of one warp group."""
        return tuple(replace(d.dst, shape=(self.rows, self.columns)) for d in self.dots)

    @property
    def stages(self) -> int:
        """Slots of the ring."""
        return self.loop.pipeline_stages or self.kernel.launch.num_stages

    @property
    def a_through_registers(self) -> bool:
        """True if `a` goes through registers.

        Dots of operands that are not 16 bits wide read only k-major tiles from shared memory, but rows in registers
        stay as the threads loaded them.
        """
        return not k_major(self.a, self.dot) and dtype(self.a.dst.dtype).bytes != 2

    @property
    def promotes(self) -> bool:
        """True if the accumulators of a step are apart and added up in float32, since tensor cores keep fewer bits."""
        return is_promoted(self.a.dst.dtype, self.dot.precision)

    @property
    def finishing(self) -> Kernel:
        """The epilogue as a kernel of its own, with its arguments and the extents of its variables."""
        parts = (GridAxis(HALF, max(2, self.groups)), GridAxis(BLOCK, self.blocks))
        bound = (GridAxis(s.variable, s.extent) for s in self.placing if isinstance(s, Let))
        grid = replace(self.kernel.grid, axes=(*self.kernel.grid.axes, *parts, *bound))
        return replace(self.kernel, grid=grid, body=self.epilogue)

    @property
    def moving(self) -> Kernel:
        """The kernel with the stores of one warp group, from which its arguments follow."""
        return replace(self.kernel, body=(*self.placing, self.loop, *self.epilogue))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores by descriptor."""
        return tuple(s for s in self.epilogue if isinstance(s, Store) and s.via == "descriptor")


def _filled(ring: Ring) -> tuple[RoleStatement, ...]:
    return (Acquire(ring), *(Copy(ring, load) for load in ring.loads))


def _parts(kernel: Kernel) -> tuple[tuple[Statement, ...], For, tuple[Statement, ...]]:
    """The statements that place a tile, the main loop, and the epilogue."""
    first = max((n for n, s in enumerate(kernel.body, 1) if isinstance(s, Let)), default=0)
    placing, body = kernel.body[:first], kernel.body[first:]
    if tile := next((t for s in placing for t in produced(s) if t.axes), None):
        refuse(kernel, f"{tile} comes before a variable bound to data; expected single numbers")
    fills = tuple(s for s in itertools.takewhile(lambda s: isinstance(s, Fill), body) if isinstance(s, Fill))
    match body[len(fills) :]:
        case (For() as loop, *epilogue) if fills:
            if loop.marks:
                refuse(kernel, f"{loop.variable} makes the iterations that {loop.marks} marks; expected all of them")
            for s in epilogue:
                if not isinstance(s, Load | Gather | Position | Map | Fill | Split | Store):
                    refuse(kernel, f"its epilogue has a {type(s).__name__}; expected Load, Map, Split or Store")
                if isinstance(s, Load) and s.via == "descriptor":
                    check_load(kernel, s)
                if isinstance(s, Store) and s.atomic:
                    refuse(kernel, f"it adds to {s.buffer} atomically; expected plain stores")
            summed = [s.dst.name for s in loop.body if isinstance(s, Dot)]
            if summed and ([f.dst.name for f in fills] != summed or any(f.value != 0.0 for f in fills)):
                refuse(kernel, f"the accumulator {summed[0]} starts as something else than 0")
            return placing, loop, tuple(epilogue)
        case _:
            refuse(kernel, "expected an accumulator filled with 0, one loop, and an epilogue")


def _operands(kernel: Kernel, loop: For) -> tuple[tuple[Load, ...], tuple[Dot, ...]]:
    loads = tuple(s for s in loop.body if isinstance(s, Load))
    dots = tuple(s for s in loop.body if isinstance(s, Dot))
    multiplied = {x for d in dots for x in (d.a, d.b)}
    if not dots or loop.body != (*loads, *dots) or {s.dst.name for s in loads} != multiplied:
        refuse(kernel, "expected a loop that loads two operands and adds their dot, or several")
    for load in loads:
        if load.via == "pointer":
            refuse(kernel, f"{load.buffer} is loaded by pointers; expected descriptors")
        if load.slices[-1].flat:
            refuse(kernel, f"rows of {load.buffer} in {load.slices[-1]}; expected rows of a tile")
        check_load(kernel, load)
    return loads, dots
