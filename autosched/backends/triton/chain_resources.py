"""Resources of chained dots with a producer, estimated before anything compiles."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.gpu.warps import WARP, WARP_GROUP, WGMMA
from search_spaces.programs.roles.chains import copied, follows_dots
from search_spaces.programs.roles.iteration import starts_anew
from search_spaces.programs.statements import Dot, For, Load, Store, produced, statements
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.limits import Resources
from search_spaces.workloads.dtypes import dtype

# The full and the empty barrier of a slot of a ring; the barriers of resident tiles and of
# the groups' order, and the compiler's own memory.
_SLOT_BYTES = 16
_OTHER_BYTES = 256
# Registers of addresses, barriers and row statistics besides tiles. Points and sums of 64 and 64 registers, with
# operands of 32, compile to no more than 240 (Triton 3.6 and 3.9).
_OVERHEAD = 24


def has_chain_roles(kernel: Kernel) -> bool:
    """True if a producer loads tiles for chained dots."""
    return kernel.launch.producer_warps > 0 and follows_dots(kernel)


def chain_resources(program: TileProgram, kernel: Kernel) -> Resources:
    """Resident tiles, rings and stored tiles in shared memory; points, accumulators and operands in registers."""
    launch, loops = kernel.launch, [s for s in kernel.body if isinstance(s, For)]
    kept = sum(s.dst.bytes for s in copied(kernel.body))
    stages = max((s.pipeline_stages for s in loops), default=0) or launch.num_stages
    ring = max(sum(s.dst.bytes + _SLOT_BYTES for s in copied(x.body)) for x in loops) * stages
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    out = sum(
        tiles[s.src].elements * dtype(program.buffer(s.buffer).dtype).bytes
        for s in kernel.body
        if isinstance(s, Store) and s.via == "descriptor"
    )
    threads = launch.num_warps * WARP
    live = max(_live_bytes(kernel, loop, loops) for loop in loops) // (4 * threads)
    return Resources(kept + ring + out + _OTHER_BYTES, _OVERHEAD + live, threads)


def registers_allowed(kernel: Kernel) -> int:
    """Registers of a consumer thread."""
    return WGMMA.group_registers(max(1, kernel.launch.num_warps // WARP_GROUP), kernel.launch.max_registers)


def _live_bytes(kernel: Kernel, loop: For, loops: Sequence[For]) -> int:
    """Bytes of carried accumulators, those of an iteration, and computed operands if they overlap with other dots."""
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    summed = {s.dst.name: s.dst for x in loops for s in x.body if isinstance(s, Dot) and not starts_anew(s, x)}
    own = {s.dst.name: s.dst for s in loop.body if isinstance(s, Dot)}
    loaded = {s.dst.name for s in (*kernel.body, *loop.body) if isinstance(s, Load)}
    made = {x for s in loop.body if isinstance(s, Dot) for x in (s.a, s.b)} - loaded
    operands = sum(tiles[x].bytes for x in made) if kernel.launch.overlapped else 0
    return sum(t.bytes for t in (summed | own).values()) + operands
