"""Contractions of warp groups: kernels whose operands a producer loads into a ring in shared memory.

    acc, acc2 = 0, 0
    for k.0: load a, b and b2 by descriptor; acc += dot(a, b); acc2 += dot(a, b2)
    epilogue: maps, loads and splits of tiles, stores

Everything else is refused, with what is allowed: `DotForm.of` is the list of rules.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from autosched.backends.backend import CompileError
from autosched.backends.gpu.specialized.halves import BLOCK, HALF, halved
from autosched.backends.gpu.warps import WARP_GROUP, WGMMA
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Gather,
    Load,
    Map,
    Position,
    Split,
    Statement,
    Store,
)
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.programs.tiles import Tile
from search_spaces.schedules.limits import USUAL, Offers
from search_spaces.sketches.dots.group_dots import GroupDots, LoadedTile, block_shape
from search_spaces.workloads.dtypes import dtype, is_promoted
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class DotForm:
    """A decomposed kernel.

    Tiles of `rows_read` have the rows of the accumulators, those of `columns_read` their columns. `groups` warp groups
    of four warps compute. Several share the rows of every tile equally, or two of them, `alternating`, compute every
    other tile. Before that, the blocks of a cluster divide every tile. `epilogue` is that of one warp group of a block,
    for its part.
    """

    kernel: Kernel
    loop: For
    rows_read: tuple[Load, ...]
    columns_read: tuple[Load, ...]
    dots: tuple[Dot, ...]
    groups: int
    alternating: bool
    epilogue: tuple[Statement, ...]
    offers: Offers = USUAL

    @staticmethod
    def of(kernel: Kernel, offers: Offers = USUAL) -> DotForm:
        """Decompose a kernel for a printer with these offers.

        Raises:
            CompileError: it is not of this form.
        """
        fills, loop, epilogue = _parts(kernel)
        loads, dots = _operands(kernel, loop)
        row = dots[0].dst.axes[0]
        rows_read = tuple(s for s in loads if row in s.dst.axes)
        columns_read = tuple(s for s in loads if row not in s.dst.axes)
        if [f.dst.name for f in fills] != [d.dst.name for d in dots] or any(f.value != 0.0 for f in fills):
            refuse(kernel, f"the accumulator {dots[0].dst.name} starts as something else than 0")
        launch = kernel.launch
        groups = launch.num_warps // WARP_GROUP
        form = DotForm(kernel, loop, rows_read, columns_read, dots, groups, launch.alternating, epilogue, offers)
        _check_launch(form)
        _check_operands(form)
        if form.blocks > 1:
            if any(isinstance(s, Split) and s.axis == form.cut_axis for s in epilogue):
                refuse(kernel, f"its epilogue cuts tiles along {form.cut_axis}, as the blocks of a cluster do")
            epilogue = halved(epilogue, form.cut_axis, form.cut_size, BLOCK)
        if form.shares_tile:
            epilogue = halved(epilogue, row, form.rows)
        return dataclasses.replace(form, epilogue=epilogue)

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
        """The first one; all have tiles of the same shape."""
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
        """Positions of it in one block."""
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
        return tuple(dataclasses.replace(d.dst, shape=(self.rows, self.columns)) for d in self.dots)

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
        """True if the sums of a step are kept apart and added up in float32, since tensor cores keep fewer bits."""
        return is_promoted(self.a.dst.dtype, self.dot.precision)

    @property
    def finishing(self) -> Kernel:
        """The epilogue as a kernel of its own, with its arguments and the extents of its variables."""
        parts = (GridAxis(HALF, max(2, self.groups)), GridAxis(BLOCK, self.blocks))
        grid = dataclasses.replace(self.kernel.grid, axes=(*self.kernel.grid.axes, *parts))
        return dataclasses.replace(self.kernel, grid=grid, body=self.epilogue)

    @property
    def moving(self) -> Kernel:
        """The kernel with the stores of one warp group, from which its arguments follow."""
        return dataclasses.replace(self.kernel, body=(self.loop, *self.epilogue))

    @property
    def extras(self) -> tuple[Load, ...]:
        """The tiles of the epilogue that are loaded like operands, once for every tile of the outputs."""
        return tuple(s for s in self.epilogue if isinstance(s, Load) and s.via == "descriptor")

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores by descriptor."""
        return tuple(s for s in self.epilogue if isinstance(s, Store) and s.via == "descriptor")


def refuse(kernel: Kernel, reason: str) -> NoReturn:
    raise CompileError(f"kernel {kernel.name} with producer warps: {reason}")


def k_major(load: Load, dot: Dot) -> bool:
    """True if neighbours in memory are neighbours along the summed axis."""
    return load.dst.axes[-1] == dot.axis


def check_program(program: TileProgram, form: DotForm) -> None:
    """Checks that need the buffers.

    Raises:
        CompileError: an operand would have to be cast on its way.
    """
    for load in (*form.loads, *form.extras):
        held = program.buffer(load.buffer).dtype
        if held != load.dst.dtype:
            refuse(form.kernel, f"{load.buffer} is {held} and loaded as {load.dst.dtype}; expected equal types")


def _parts(kernel: Kernel) -> tuple[tuple[Fill, ...], For, tuple[Statement, ...]]:
    fills = tuple(s for s in itertools.takewhile(lambda s: isinstance(s, Fill), kernel.body) if isinstance(s, Fill))
    match kernel.body[len(fills) :]:
        case (For() as loop, *epilogue) if fills:
            for s in epilogue:
                if not isinstance(s, Load | Gather | Position | Map | Fill | Split | Store):
                    refuse(kernel, f"its epilogue has a {type(s).__name__}; expected Load, Map, Split or Store")
                if isinstance(s, Load) and s.via == "descriptor":
                    _check_brought(kernel, s)
                if isinstance(s, Store) and s.atomic:
                    refuse(kernel, f"it adds to {s.buffer} atomically; expected plain stores")
            return fills, loop, tuple(epilogue)
        case _:
            refuse(kernel, "expected an accumulator filled with 0, one loop, and an epilogue")


def _operands(kernel: Kernel, loop: For) -> tuple[tuple[Load, ...], tuple[Dot, ...]]:
    loads = tuple(s for s in loop.body if isinstance(s, Load))
    dots = tuple(s for s in loop.body if isinstance(s, Dot))
    multiplied = {x for d in dots for x in (d.a, d.b)}
    if not dots or loop.body != (*loads, *dots) or {s.dst.name for s in loads} != multiplied:
        refuse(kernel, "expected a loop that loads two operands and adds their dot, or several")
    for load in loads:
        if load.via != "descriptor":
            refuse(kernel, f"{load.buffer} is loaded by pointers; expected descriptors")
        _check_brought(kernel, load)
    return loads, dots


def _check_brought(kernel: Kernel, load: Load) -> None:
    if load.eviction or load.fill:
        refuse(kernel, f"the load of {load.buffer} has an eviction hint or a fill; expected neither")
    if len(load.dst.axes) != 2:
        refuse(kernel, f"the tile of {load.buffer} has axes {list(load.dst.axes)}; expected two")


def _check_launch(form: DotForm) -> None:
    kernel, launch = form.kernel, form.kernel.launch
    allowed = [WARP_GROUP * n for n in range(1, form.offers.groups + 1)]
    if launch.num_warps not in allowed:
        refuse(kernel, f"num_warps={launch.num_warps}; expected {' or '.join(map(str, allowed))}")
    if launch.producer_warps != 1:
        refuse(kernel, f"producer_warps={launch.producer_warps}; expected 1")
    if launch.num_ctas > form.offers.blocks:
        refuse(kernel, f"num_ctas={launch.num_ctas}; expected {form.offers.blocks}")
    if launch.max_registers and form.groups > 1:
        refuse(kernel, f"max_registers={launch.max_registers}; expected 0 with {launch.num_warps} warps")
    if form.stages < 2:
        refuse(kernel, f"{form.stages} stages; expected at least 2")
    if kernel.grid.stream:
        refuse(kernel, "its grid streams the reduction; expected whole tiles, or a split axis")
    if form.alternating:
        _check_turns(form)


def _check_turns(form: DotForm) -> None:
    kernel, grid = form.kernel, form.kernel.grid
    if form.groups != 2:
        refuse(kernel, f"alternating with num_warps={kernel.launch.num_warps}; expected {2 * WARP_GROUP}")
    if grid.programs == grid.tiles:
        refuse(kernel, f"alternating with a program for each of {grid.tiles} tiles; expected fewer programs")
    if form.loop.bound:
        refuse(
            kernel, f"alternating with tiles of different numbers of steps in {form.loop.variable}; expected equal ones"
        )


def _check_operands(form: DotForm) -> None:
    kernel, dot, operand = form.kernel, form.dot, form.a.dst.dtype
    for load in form.loads:
        if operand != load.dst.dtype:
            refuse(kernel, f"operands are {operand} and {load.dst.dtype}; expected equal types")
    for loads in itertools.product(form.rows_read, form.columns_read):
        a, b = (LoadedTile(load.buffer, load.dst.shape[-1], k_major(load, dot)) for load in loads)
        depth, count = loads[0].dst.extent(dot.axis), len(form.dots)
        each = (operand, dot.precision, form.rows, form.columns, depth, a, b, count, form.groups, form.offers)
        dots = GroupDots(WGMMA, *each)
        if reason := dots.why_impossible():
            refuse(kernel, reason)
    if form.a_through_registers and _fewest_iterations(form) < 1:
        refuse(kernel, f"a part of the reduction over {dot.axis} is empty; expected fewer parts")


def _fewest_iterations(form: DotForm) -> int:
    """Fewest iterations of the loop in any program."""
    loop = form.loop
    if loop.bound is None:
        return loop.extent
    start, size = loop.bound.start, loop.bound.size
    step = dict(start.terms)[loop.variable]
    latest = Affine(tuple(t for t in start.terms if t[0] != loop.variable), start.offset)
    return min(loop.extent, -(-(size - latest.maximum(loop_extents(form.kernel))) // step))
