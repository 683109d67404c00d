"""Warp specialisation of contractions: the main loop's loads become a producer's, its dots those of groups of warps.

Before:  acc, acc2 = 0, 0
         for k.0: load a, b and b2 by descriptor; acc += dot(a, b); acc2 += dot(a, b2)
         epilogue: maps, loads and cuts of tiles, stores
After:   ring operands: slots of a, b and b2
         producer: for each tile: for k.0: acquire operands; copy a, b, b2; advance
         consumers: for each tile: acc, acc2 = 0, 0
           for k.0: await operands; issue the dots; settle those of the last iteration; release its slot; advance
           settle; release; epilogue, which reads what the producer copied into a ring of its own
         with dots that are scaled: for k.0: load scales; await operands; issue; settle; release; acc += scaled; advance
         with computed rows: for k.0: await operands; fetch a; a = f(a); keep a; issue; settle; release; advance

    cooperative    groups have equal parts of the rows of every tile
    ping-pong      two groups compute alternate tiles, and issue their main loops alternately
    clusters       the blocks of a cluster have equal parts of a tile, and each copies a part of the shared operand

(CUTLASS: `KernelTmaWarpSpecializedCooperative`, `KernelTmaWarpSpecializedPingpong`; Bauer et al., "CudaDMA", SC 2011.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.devices.group_dots import block_shape
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.roles.halves import BLOCK, HALF, tile_part
from search_spaces.programs.roles.product_parts import ProductParts
from search_spaces.programs.roles.requests import k_major, refuse
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
    Keep,
    Next,
    Part,
    Place,
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
from search_spaces.programs.statements import Dot, Fill, For, Let, Load, Split, Statement, Store, produced
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import dtype

# Names of the positions of the two rings: iterations of the main loop, and tiles of the outputs.
STEP, TILE = "step", "tile"


@dataclass(frozen=True)
class ProductRoles:
    """A kernel with its parts and roles.

    Tiles of `rows_read` have the rows of the accumulators and those of `columns_read` their columns, in either order of
    the operands. `whole`: the parts of the kernel; `share`: those of one group of a block, for its part of a tile;
    `extras`: the loads of its epilogue that the producer issues.
    """

    kernel: Kernel
    units: WaveGroups
    rows_read: tuple[Load, ...]
    columns_read: tuple[Load, ...]
    whole: ProductParts
    share: ProductParts
    extras: tuple[Load, ...] = ()
    kept_registers: int = 0

    @staticmethod
    def of(kernel: Kernel, units: WaveGroups, kept_registers: int = 0) -> ProductRoles:
        """The roles in a kernel of this form; `kept_registers`: of a thread of the producer (0: the least).

        Raises:
            UnmatchedError: the kernel has another form.
        """
        whole = share = ProductParts.of(kernel)
        row = whole.sums[0].axes[0]
        rows_read = tuple(s for s in whole.operands if row in s.dst.axes)
        columns_read = tuple(s for s in whole.operands if row not in s.dst.axes)
        roles = ProductRoles(kernel, units, rows_read, columns_read, whole, share, kept_registers=kept_registers)
        if roles.blocks > 1:
            if any(isinstance(s, Split) and s.axis == roles.cut_axis for s in whole.epilogue):
                refuse(kernel, f"its epilogue cuts tiles along {roles.cut_axis}, as the blocks of a cluster do")
            share = share.halved(roles.cut_axis, roles.cut_size, BLOCK)
        if roles.shares_tile:
            share = share.halved(row, roles.rows, HALF)
        extras = tuple(s for s in share.epilogue if isinstance(s, Load) and s.via == "descriptor")
        return replace(roles, share=share, extras=extras)

    @property
    def loop(self) -> For:
        """The main loop."""
        return self.whole.loop

    @property
    def placing(self) -> tuple[Statement, ...]:
        """The statements that place a tile."""
        return self.whole.placing

    @property
    def counting(self) -> tuple[Statement, ...]:
        """The statements that count the live tiles."""
        return self.whole.counting

    @property
    def dots(self) -> tuple[Dot, ...]:
        """The dots of a group in an iteration."""
        return self.share.dots

    @property
    def epilogue(self) -> tuple[Statement, ...]:
        """The epilogue of a group."""
        return self.share.epilogue

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
        starts = (Start(x.position) for x in self.rings)
        return Role(1, registers, (*starts, *self._count, Tiles(body), Drain(ring)))

    @cached_property
    def consumer(self) -> Role:
        """The role of each consumer group."""
        extent, turns = self.loop.extent, self.alternating
        starts: list[RoleStatement] = [Start(STEP, extent if turns else 0)]
        starts += [Start(TURNS)] if turns else []
        starts += [Start(TILE)] if self.extras else []
        body: list[RoleStatement] = [*self._place, *(Fill(t, 0.0) for t in self.accumulators)]
        body += [Fill(t, 0.0) for t in self.partial]
        body += self.share.before
        body += [Take()] if turns else []
        body += self._main_loop
        # Past the steps of the other group's tile.
        body += [Skip(STEP, extent)] if turns else []
        body.append(Finish(tuple(self._finish)))
        registers = self.units.group_registers(self.groups, kept=self.kept_registers) if self.groups > 1 else 0
        return Role(self.units.waves, registers, (*starts, *self._count, Tiles(tuple(body), 2 if turns else 1)))

    @property
    def _place(self) -> tuple[Place, ...]:
        return (Place(self.placing),) if self.placing else ()

    @property
    def _count(self) -> tuple[Place, ...]:
        return (Place(self.counting),) if self.counting else ()

    @property
    def _main_loop(self) -> list[RoleStatement]:
        if self.share.promotion:
            return self._promoted
        if self.share.making:
            return self._computed
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
    def _computed(self) -> list[RoleStatement]:
        """Rows are computed in registers, from what the slot has of them, and multiplied at once.

        Other groups' dots run meanwhile: those of the same group read its registers until they are settled, and ptxas
        would reuse these. What else rows are computed from is loaded while the slot is awaited.
        """
        ring, dots, making = self.operands, self.dots, self.share.making
        loaded = [s for s in making if isinstance(s, Load)]
        step: list[RoleStatement] = [*loaded, Await(ring)]
        step += (Fetch(ring, load) for load in self.rows_read)
        step += (s for s in making if s not in loaded)
        step += (Keep(dots), Issue(dots), Settle(dots), Release(ring), Advance(STEP))
        return [Steps(self.loop, tuple(step)), *self._hand_over]

    @property
    def _promoted(self) -> list[RoleStatement]:
        """The accumulators of a step are scaled and added up in float32 before the next dot begins.

        Other groups' dots run meanwhile. Two dots in flight would be serialised by ptxas, which refuses to read the
        accumulators of one while the other runs (its note C7514). Scales are loaded while the dots run.
        """
        ring, dots = self.operands, self.dots
        issue = Issue(dots, anew=frozenset(d.dst.name for d in dots))
        rest = (issue, Settle(dots), Release(ring), *self.share.promotion, Advance(STEP))
        return [Steps(self.loop, (*self.share.scaling, Await(ring), *rest)), *self._hand_over]

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
        columns = {load.dst.name for load in self.columns_read}
        return (dot.a, dot.b) if dot.b in columns else (dot.b, dot.a)

    @property
    def shares_tile(self) -> bool:
        """True if a tile's rows are divided among the warp groups."""
        return self.groups > 1 and not self.alternating

    @property
    def parts(self) -> tuple[Part, ...]:
        """The part of a tile that one group computes."""
        block = Part(self.cut_axis, self.cut_size, BLOCK)
        group = Part(self._tile.axes[0], self.rows, HALF)
        return (block,) * (self.blocks > 1) + (group,) * self.shares_tile

    @property
    def blocks(self) -> int:
        """Blocks of a cluster, which divide a tile."""
        return self.kernel.launch.num_ctas

    @cached_property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of a tile in one block."""
        rows, columns = self._tile.shape
        return block_shape(rows, columns, self.blocks)

    @property
    def cut_axis(self) -> str:
        """The axis along which the blocks of a cluster divide a tile."""
        return self._tile.axes[self.block_shape[0] == self._tile.shape[0]]

    @property
    def cut_size(self) -> int:
        """Positions of the cut axis in one block."""
        return self._tile.extent(self.cut_axis) // self.blocks

    @property
    def _tile(self) -> Tile:
        """A whole tile of sums."""
        return self.whole.sums[0]

    @property
    def rows(self) -> int:
        """Rows of a tile that one warp group computes."""
        return self.block_shape[0] // (self.groups if self.shares_tile else 1)

    @property
    def columns(self) -> int:
        return self.block_shape[1]

    @property
    def accumulators(self) -> tuple[Tile, ...]:
        """The accumulators of one warp group."""
        return self.share.sums

    @property
    def partial(self) -> tuple[Tile, ...]:
        """The accumulators of one warp group for an iteration, if it promotes these."""
        return tuple(d.dst for d in self.dots) if self.share.promotion else ()

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
        return not self.computed and not k_major(self.a, self.dot) and dtype(self.a.dst.dtype).bytes != 2

    @property
    def computed(self) -> tuple[Tile, ...]:
        """The rows of one warp group that are computed from those that are loaded."""
        made = {t.name: t for s in self.share.making for t in produced(s)}
        return tuple(dict.fromkeys(made[x] for d in self.dots for x in self.sides(d) if x in made))

    @property
    def finishing(self) -> Kernel:
        """The epilogue as a kernel of its own, with its arguments and the extents of its variables."""
        parts = (GridAxis(HALF, max(2, self.groups)), GridAxis(BLOCK, self.blocks))
        bound = (GridAxis(s.variable, s.extent) for s in self.placing if isinstance(s, Let))
        grid = replace(self.kernel.grid, axes=(*self.kernel.grid.axes, *parts, *bound))
        return replace(self.kernel, grid=grid, body=self.epilogue)

    @property
    def stepping(self) -> For:
        """The main loop with what a group computes in it besides its dots."""
        fills = [Fill(t, 0.0) for t in self.partial]
        if self.computed:
            fills += (Fill(self.fetched(load), 0) for load in self.rows_read)
        return replace(self.loop, body=(*self.share.scaling, *fills, *self.share.making, *self.share.promotion))

    def fetched(self, load: Load) -> Tile:
        """The rows of a load that one warp group has in registers."""
        return tile_part(load.dst, self._tile.axes[0], self.rows)

    @property
    def moving(self) -> Kernel:
        """The kernel with the stores of one warp group, from which its arguments follow."""
        return replace(self.kernel, body=(*self.counting, *self.placing, self.loop, *self.epilogue))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores by descriptor."""
        return tuple(s for s in self.epilogue if isinstance(s, Store) and s.via == "descriptor")


def _filled(ring: Ring) -> tuple[RoleStatement, ...]:
    return (Acquire(ring), *(Copy(ring, load) for load in ring.loads))
