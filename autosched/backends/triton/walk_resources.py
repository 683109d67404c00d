"""Resources of warp-specialised loops of chained dots on a GPU, known before anything compiles."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.gpu.warps import WARP, WARP_GROUP, WGMMA
from search_spaces.programs.statements import Dot, Fill, For, Load, Statement, Store, produced, statements
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.limits import Resources
from search_spaces.workloads.dtypes import dtype

# The barriers of a slot of a ring, for full and for empty; those of resident tiles and of alternating dots, and the
# compiler's own memory.
_SLOT_BYTES = 16
_OTHER_BYTES = 256
# Registers of addresses, barriers and row statistics besides tiles. Points and sums of 64 and 64 registers, with
# operands of 32, compile to no more than 240 (Triton 3.6 and 3.9).
_OVERHEAD = 24


def is_specialized_walk(kernel: Kernel) -> bool:
    """True if a producer loads tiles for dots that depend on other dots of their loop."""
    return kernel.launch.producer_warps > 0 and any(_follows(kernel, s) for s in _loops(kernel))


def walk_resources(program: TileProgram, kernel: Kernel) -> Resources:
    """Resident tiles, rings, and stored tiles, in shared memory; points, sums and operands in registers."""
    launch, loops = kernel.launch, _loops(kernel)
    held = sum(s.dst.bytes for s in loads_by_descriptor(kernel.body))
    stages = max((s.pipeline_stages for s in loops), default=0) or launch.num_stages
    ring = max(sum(s.dst.bytes + _SLOT_BYTES for s in loads_by_descriptor(x.body)) for x in loops) * stages
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    out = sum(
        tiles[s.src].elements * dtype(program.buffer(s.buffer).dtype).bytes
        for s in kernel.body
        if isinstance(s, Store) and s.via == "descriptor"
    )
    threads = launch.num_warps * WARP
    live = max(_live_bytes(kernel, loop) for loop in loops) // (4 * threads)
    return Resources(held + ring + out + _OTHER_BYTES, _OVERHEAD + live, threads)


def registers_allowed(kernel: Kernel) -> int:
    """Registers of a consumer thread."""
    return WGMMA.group_registers(max(1, kernel.launch.num_warps // WARP_GROUP), kernel.launch.max_registers)


def loads_by_descriptor(body: Sequence[Statement]) -> tuple[Load, ...]:
    """The loads of these statements that a producer issues."""
    return tuple(s for s in body if isinstance(s, Load) and s.via == "descriptor")


def starts_anew(dot: Dot, loop: For) -> bool:
    """True if its sums start from the 0 that stands before it in the loop."""
    before = loop.body[: loop.body.index(dot)]
    return any(isinstance(s, Fill) and s.dst.name == dot.dst.name and s.value == 0.0 for s in before)


def _live_bytes(kernel: Kernel, loop: For) -> int:
    """Carried sums, those of an iteration, and computed operands while dots run with others of them."""
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    kept = {s.dst.name: s.dst for x in _loops(kernel) for s in x.body if isinstance(s, Dot) and not starts_anew(s, x)}
    own = {s.dst.name: s.dst for s in loop.body if isinstance(s, Dot)}
    made = {x for s in loop.body if isinstance(s, Dot) for x in (s.a, s.b)} - _loaded(kernel, loop)
    operands = sum(tiles[x].bytes for x in made) if kernel.launch.overlapped else 0
    return sum(t.bytes for t in (kept | own).values()) + operands


def _follows(kernel: Kernel, loop: For) -> bool:
    loaded = _loaded(kernel, loop)
    return len({{s.a, s.b} <= loaded for s in loop.body if isinstance(s, Dot)}) == 2


def _loaded(kernel: Kernel, loop: For) -> set[str]:
    return {s.dst.name for s in (*kernel.body, *loop.body) if isinstance(s, Load)}


def _loops(kernel: Kernel) -> list[For]:
    return [s for s in kernel.body if isinstance(s, For)]
