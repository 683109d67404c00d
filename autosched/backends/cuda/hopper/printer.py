"""Contractions of warp groups as CUDA C++ for compute capability 9.0 (Hopper): TMA, mbarriers, wgmma, clusters.

The roles of warps are those of `programs.roles.products`: a thread that is the producer, and one to three groups of
consumers. As programs go over their tiles, the producer is a ring ahead: operands of the next tile arrive while an
epilogue runs.

The epilogue is printed as in any other kernel, except for stores by descriptor.
"""

from __future__ import annotations

from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.hopper import instructions
from autosched.backends.cuda.hopper.computed_rows import ComputedRows, layouts
from autosched.backends.cuda.hopper.consumer import Consumer
from autosched.backends.cuda.hopper.group_tiles import group_layout
from autosched.backends.cuda.hopper.loops import Loops
from autosched.backends.cuda.hopper.plan import BARRIER_BYTES, BARRIERS_ALIGNMENT, BlockPlan
from autosched.backends.cuda.hopper.producer import Producer
from autosched.backends.cuda.hopper.shared_tiles import ALIGNMENT
from autosched.backends.cuda.hopper.stores import GroupStores
from autosched.backends.cuda.language.index import sum_of
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter, NoProducts, function_name
from autosched.backends.cuda.registers.layouts import Layout
from autosched.backends.gpu.kernel import CudaKernel, TensorMap
from autosched.backends.gpu.warps import WARP, WARP_GROUP
from search_spaces.devices.features import Features
from search_spaces.programs.roles.halves import BLOCK, HALF
from search_spaces.programs.tile_program import Kernel, TileProgram

# Names in the text besides those of every kernel.
_OWN = (
    *("ring", "full", "empty", "order", "group", "thread", "slot", "parity", "step", "here", "last", "turn"),
    *("extras_full", "extras_empty", "extra_tile", "extra_parity", "to", "x", "piece", "row", "column"),
)


class _Sums(NoProducts):
    """Dots that are printed elsewhere: their accumulators have these layouts."""

    def __init__(self, anchored: dict[str, Layout]) -> None:
        self.anchored = anchored


class HopperPrinter:
    """Prints one kernel that asks for producer warps."""

    def __init__(self, program: TileProgram, kernel: Kernel, features: Features) -> None:
        """Raises CompileError: it is no contraction that has such roles (see `programs.roles.products`)."""
        plan = BlockPlan.of(program, kernel)
        plan.ring.check_directions(plan.roles)
        self._plan, self._roles, self.kernel = plan, plan.roles, kernel
        anchored = {t.name: group_layout(t, t.axes) for t in (*plan.roles.accumulators, *plan.roles.partial)}
        anchored |= layouts(plan.roles)
        self._computing = Functions()
        self._printer = KernelPrinter(program, plan.finishing, features, _Sums(anchored))
        for name in _OWN:
            self._printer.identifiers.of(("own", name), name)
        for name in (HALF, BLOCK):
            self._printer.indexing.variable(name)
        moved = (*plan.loads.values(), *plan.stores.values())
        maps = [o.map for o in plan.ring.operands.values()] + [t.map for t in moved]
        self._maps: dict[TensorMap, str] = {}
        for m in maps:
            if m not in self._maps:
                self._maps[m] = self._printer.identifiers.of(m, f"{m.buffer}_map")
        self._loops = Loops(plan.roles, self._printer)
        self._text = self._written()

    def text(self) -> str:
        return self._text

    def functions(self) -> list[str]:
        """The device functions in the text, except those of element types, operators and memory."""
        roles, plan = self._roles, self._plan
        loads = {(len(o.map.shape), o.shares > 1, o.map.window is not None) for o in plan.ring.operands.values()}
        loads |= {(len(t.map.shape), False, False) for t in plan.loads.values()}
        stored = {len(t.map.box) for t in plan.stores.values()}
        packed = sorted({t.buffer.dtype for t in plan.stores.values() if t.packed})
        moves = [function for name, function in instructions.MOVES.items() if f"{name}<" in self._text]
        sides = {tuple(plan.ring.operands.get(x) for x in roles.sides(d)) for d in roles.dots}
        ways = {(a.operand.along_k, b.operand.along_k) for a, b in sides if a and b}
        ways_of_columns = {b.operand.along_k for a, b in sides if not a and b}
        return [
            instructions.BASE,
            *(instructions.tile_load(rank, shared, window) for rank, shared, window in sorted(loads)),
            *(instructions.tile_store(rank) for rank in sorted(stored)),
            *(instructions.write_pairs(name) for name in packed),
            *moves,
            *(instructions.dot(roles.a.dst.dtype, roles.columns, a, b) for a, b in sorted(ways)),
            *self._computing.texts.values(),
            *(instructions.rows_dot(roles.whole.multiplied, roles.columns, b) for b in sorted(ways_of_columns)),
        ]

    @property
    def launched(self) -> CudaKernel:
        """Launch parameters of the kernel; the producer's warp group is additional to the consumers."""
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
        roles, plan, printer, block = self._roles, self._plan, self._printer, self._printer.block
        shared = printer.shared
        places = {"ring": shared.reserve(plan.ring.bytes, ALIGNMENT)}
        staging = shared.reserve(roles.groups * plan.slots * plan.slot_bytes, ALIGNMENT)
        extras = plan.extras(shared.reserve(roles.groups * plan.extra_bytes, ALIGNMENT))
        places |= {x: shared.reserve(BARRIER_BYTES * n, BARRIERS_ALIGNMENT) for x, n in plan.barriers.items()}
        shared.share(roles.groups, HALF, f"group_meets({HALF});")
        for name, place in places.items():
            block.write(f"const uint32 {name} = {sum_of('shared_at', str(place))};")
        block.write("const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), thread = threadIdx.x % 128;")
        if roles.blocks > 1:
            block.write(f"const int {printer.indexing.variable(BLOCK)} = blockIdx.x % {roles.blocks};")
        self._begin()
        open_braces(block, f"if (group == {roles.groups})")
        Producer(self._loops, plan.ring, extras, self._maps).write()
        block.close()
        open_braces(block, "else")
        stores = GroupStores(staging, plan.slots, plan.slot_bytes)
        rows = ComputedRows(roles, plan.ring, printer, self._computing)
        Consumer(self._loops, plan.ring, rows, extras, stores, plan.finished, plan.stores, self._maps).write()
        block.close()
        maps = [f"const __grid_constant__ TensorMap {name}" for name in self._maps.values()]
        lane = f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP} % {WARP_GROUP};"
        return printer.function([lane], (roles.groups + 1) * WARP_GROUP * WARP, maps)

    def _begin(self) -> None:
        """The producer's thread initialises the barriers, before any other waits for one."""
        roles, block = self._roles, self._printer.block
        counts = {"full": 1, "empty": roles.operands.readers * roles.blocks, "order": 1, "extras_full": 1}
        counts["empty"] *= WARP_GROUP if roles.computed else 1
        counts["extras_empty"] = WARP_GROUP * WARP
        open_braces(block, f"if (threadIdx.x == {roles.groups * WARP_GROUP * WARP})")
        for name, n in self._plan.barriers.items():
            block.write(f"for (int i = 0; i < {n}; ++i) barrier_init({name} + 8 * i, {counts[name]});")
        block.write("barriers_made();")
        block.close()
        block.write("cluster_meets();" if roles.blocks > 1 else "__syncthreads();")
