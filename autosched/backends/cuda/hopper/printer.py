"""Contractions of warp groups as CUDA C++ for compute capability 9.0 (Hopper): TMA, mbarriers, wgmma, clusters.

One thread brings operands into a ring of slots in shared memory; one to three warp groups take them out and compute.
For every slot a barrier says that it is full, and one that it is empty. As programs walk their tiles, that thread is a
ring ahead: operands of the next tile arrive while an epilogue runs. Blocks of a cluster have a part of every tile each;
what they share each brings a part of, for all. (CUTLASS's kernels for Hopper are built so; its "cooperative" are groups
that share a tile, its "pingpong" two that alternate.)

What follows the loop of dots is printed as in any other kernel, but for stores by descriptor.
"""

from __future__ import annotations

from autosched.backends.cuda.hopper import instructions
from autosched.backends.cuda.hopper.extras import Extras
from autosched.backends.cuda.hopper.group_loop import GroupLoop
from autosched.backends.cuda.hopper.group_tiles import group_layout
from autosched.backends.cuda.hopper.plan import BARRIER_BYTES, BARRIERS_ALIGNMENT, BlockPlan
from autosched.backends.cuda.hopper.shared_tiles import ALIGNMENT
from autosched.backends.cuda.hopper.stores import GroupStores
from autosched.backends.cuda.language.grid import position
from autosched.backends.cuda.language.index import sum_of
from autosched.backends.cuda.language.loops import first_and_end
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.printer import KernelPrinter, NoProducts, function_name
from autosched.backends.cuda.registers.layouts import Layout
from autosched.backends.gpu.kernel import CudaKernel, TensorMap
from autosched.backends.gpu.specialized.halves import BLOCK, HALF
from search_spaces.devices.target import HOPPER
from search_spaces.devices.warps import PRODUCER_REGISTERS, WARP, WARP_GROUP, group_registers
from search_spaces.programs.tile_program import Kernel, TileProgram

# Names that the text uses beside those of every kernel.
_OWN = (
    *("ring", "full", "empty", "order", "group", "thread", "slot", "parity", "step", "here", "last", "turn"),
    *("extras_full", "extras_empty", "extra_tile", "extra_parity", "to", "x", "piece", "row", "column"),
)


class _Sums(NoProducts):
    """Dots that were printed before: their accumulators have these layouts."""

    def __init__(self, anchored: dict[str, Layout]) -> None:
        self.anchored = anchored


class HopperPrinter:
    """Prints one kernel that asks for producer warps."""

    def __init__(self, program: TileProgram, kernel: Kernel) -> None:
        """Raises CompileError: it is no contraction of the form that is printed (see `gpu.specialized.form`)."""
        plan = BlockPlan.of(program, kernel)
        self._program, self._plan, self._form, self._ring, self.kernel = program, plan, plan.form, plan.ring, kernel
        anchored = {t.name: group_layout(t, t.axes) for t in plan.form.accumulators}
        self._printer = KernelPrinter(program, plan.finishing, HOPPER, _Sums(anchored))
        for name in _OWN:
            self._printer.identifiers.of(("own", name), name)
        for name in (HALF, BLOCK):
            self._printer.indexing.variable(name)
        moved = (*plan.loads.values(), *plan.stores.values())
        maps = [o.map for o in self._ring.operands.values()] + [t.map for t in moved]
        self._maps: dict[TensorMap, str] = {}
        for m in maps:
            if m not in self._maps:
                self._maps[m] = self._printer.identifiers.of(m, f"{m.buffer}_map")
        self._text = self._written()

    def text(self) -> str:
        return self._text

    def functions(self) -> list[str]:
        """The device functions that the text uses, but for those of element types, operators and memory."""
        form, plan = self._form, self._plan
        loads = {(len(o.map.box), o.shares > 1) for o in self._ring.operands.values()}
        loads |= {(len(t.map.box), False) for t in plan.loads.values()}
        stored = {len(t.map.box) for t in plan.stores.values()}
        packed = sorted({t.buffer.dtype for t in plan.stores.values() if t.packed})
        moves = [function for name, function in instructions.MOVES.items() if f"{name}<" in self._text]
        ways = {tuple(self._ring.operands[x].operand.along_k for x in form.sides(d)) for d in form.dots}
        return [
            instructions.BASE,
            *(instructions.tile_load(rank, shared) for rank, shared in sorted(loads)),
            *(instructions.tile_store(rank) for rank in sorted(stored)),
            *(instructions.write_pairs(name) for name in packed),
            *moves,
            *(instructions.dot(form.a.dst.dtype, form.columns, a, b) for a, b in sorted(ways)),
        ]

    @property
    def launched(self) -> CudaKernel:
        """How the kernel is launched; a producer's warp group comes beside those that compute."""
        launch, printer = self.kernel.launch, self._printer
        return CudaKernel(
            name=function_name(self.kernel),
            arguments=tuple(b.name for b in printer.buffers),
            programs=self.kernel.grid.programs,
            num_warps=launch.num_warps + WARP_GROUP,
            num_ctas=launch.num_ctas,
            shared_bytes=printer.shared.bytes,
            scratch_bytes=0,
            hidden_parameters=0,
            maps=tuple(self._maps),
        )

    # The text

    def _written(self) -> str:
        form, printer, block = self._form, self._printer, self._printer.block
        threads = (form.groups + 1) * WARP_GROUP * WARP
        shared, plan = printer.shared, self._plan
        ring = shared.reserve(self._ring.bytes, ALIGNMENT)
        staging = shared.reserve(form.groups * plan.slots * plan.slot_bytes, ALIGNMENT)
        extras = plan.extras(0)
        extras = plan.extras(shared.reserve(form.groups * extras.group_bytes, ALIGNMENT))
        places = {x: shared.reserve(BARRIER_BYTES * n, BARRIERS_ALIGNMENT) for x, n in plan.barriers.items()}
        shared.share(form.groups, HALF, f"group_meets({HALF});")
        printer.root.variables = frozenset()
        at = {"ring": ring, **places}
        block.write("const uint32 " + ", ".join(f"{x} = {sum_of('shared_at', str(n))}" for x, n in at.items()) + ";")
        block.write("const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), thread = threadIdx.x % 128;")
        if form.blocks > 1:
            block.write(f"const int {printer.indexing.variable(BLOCK)} = blockIdx.x % {form.blocks};")
        self._begin()
        open_braces(block, f"if (group == {form.groups})")
        self._producer(extras)
        block.close()
        open_braces(block, "else")
        self._consumer(GroupStores(staging, plan.slots, plan.slot_bytes), extras)
        block.close()
        maps = [f"const __grid_constant__ TensorMap {name}" for name in self._maps.values()]
        lane = "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;"
        return printer.function([lane], threads, maps)

    def _begin(self) -> None:
        """The thread that brings operands makes the barriers, before any other waits for one."""
        form, block = self._form, self._printer.block
        consumers = 1 if form.alternating else form.groups
        counts = {"full": 1, "empty": consumers * form.blocks, "order": 1, "extras_full": 1}
        counts["extras_empty"] = WARP_GROUP * WARP
        open_braces(block, f"if (threadIdx.x == {form.groups * WARP_GROUP * WARP})")
        for name, n in self._plan.barriers.items():
            block.write(f"for (int i = 0; i < {n}; ++i) barrier_init({name} + 8 * i, {counts[name]});")
        block.write("barriers_made();")
        block.close()
        block.write("cluster_meets();" if form.blocks > 1 else "__syncthreads();")

    def _first(self) -> str:
        blocks = self._form.blocks
        return "(int)blockIdx.x" if blocks == 1 else f"(int)blockIdx.x / {blocks}"

    def _open_tiles(self, first: str, every: int) -> None:
        """Begin the loop over the tiles of a program, `every` so many of them, and say which they are."""
        grid, printer = self._form.kernel.grid, self._printer
        header = f"for (int tile = {first}; tile < {grid.tiles}; tile += {every * grid.programs})"
        scope = open_braces(printer.block, header, *(a.variable for a in grid.axes))
        scope.definitions += position(grid, printer.indexing, "tile") if grid.tiles > 1 else []

    def _steps(self) -> str:
        """How many iterations the loop of dots has."""
        _, end = first_and_end(self._form.loop, self._printer.indexing)
        return end

    def _producer(self, extras: Extras) -> None:
        form, printer, block = self._form, self._printer, self._printer.block
        variable, stages = printer.indexing.variable(form.loop.variable), form.stages
        if form.groups > 1:
            block.write(f"fewer_registers<{PRODUCER_REGISTERS}>();")
        open_braces(block, "if (thread == 0)")
        block.write("int slot = 0, parity = 1;")
        if extras.tiles:
            block.write("int extra_tile = 0;")
        self._open_tiles(self._first(), 1)
        end = self._steps()
        open_braces(block, f"#pragma unroll 1\nfor (int {variable} = 0; {variable} < {end}; ++{variable})")
        block.write("barrier_wait(empty + 8 * slot, parity);")
        block.write(f"barrier_expect(full + 8 * slot, {self._ring.expected});")
        block.write(f"const uint32 here = ring + slot * {self._ring.slot_bytes};")
        for operand in self._ring.operands.values():
            name = self._maps[operand.map]
            everyone = [str(2**form.blocks - 1)] if operand.shares > 1 else []
            for place, starts in operand.loads(self._program, printer.indexing):
                to = "here" if place == "0" else f"here + {place}"
                function = "load_tile_to" if operand.shares > 1 else "load_tile"
                block.write(call(function, to, name, "full + 8 * slot", *everyone, *starts) + ";")
        self._advance()
        block.close()
        if extras.tiles:
            extras.bring(printer, self._maps)
        block.close()
        # The block stays as long as others arrive at its barriers.
        open_braces(block, f"for (int i = 0; i < {stages}; ++i)")
        block.write("barrier_wait(empty + 8 * slot, parity);")
        self._advance()
        block.close()
        block.close()

    def _advance(self) -> None:
        self._printer.block.write(f"if (++slot == {self._form.stages}) slot = 0, parity ^= 1;")

    def _consumer(self, stores: GroupStores, extras: Extras) -> None:
        form, printer, block = self._form, self._printer, self._printer.block
        grid = form.kernel.grid
        if form.groups > 1:
            block.write(f"more_registers<{group_registers(form.groups)}>();")
        block.write(f"const int {HALF} = group;" if form.groups > 1 else f"constexpr int {HALF} = 0;")
        first, every = self._first(), 1
        loop = GroupLoop(form, self._ring, printer)
        if form.alternating:
            first, every = f"{first} + {HALF} * {grid.programs}", 2
        loop.begin()
        if extras.tiles:
            block.write("int extra_parity = 0;")
        self._open_tiles(first, every)
        for tile in form.accumulators:
            printer.tiles.declare(tile)
        loop.write(self._steps())
        printer.shared.forget()
        self._finish(stores, extras)
        if self._plan.stores:
            # Anything behind the loop over tiles would make ptxas forget who has how many registers.
            last = f"tile + {every * grid.programs} >= {grid.tiles}"
            block.write(f"if (thread == 0 && {last}) stores_read<0>();")
        block.close()

    def _finish(self, stores: GroupStores, extras: Extras) -> None:
        others = iter(self._printer.kernel.body[1 + len(self._form.accumulators) :])
        for number in range(len(self._form.epilogue)):
            stored = self._plan.stores.get(number)
            if stored:
                stores.write(stored, self._printer, self._maps[stored.map])
                continue
            other = next(others)
            if number in extras.tiles:
                extras.read(number, self._printer)
            else:
                self._printer.print(other)
