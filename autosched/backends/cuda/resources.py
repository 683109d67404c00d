"""What printed CUDA kernels need of a GPU, told from their tiles: shared memory of operands, registers of tiles."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.cuda.dots.operands import Operands
from autosched.backends.cuda.language.types import VECTOR_BYTES
from search_spaces.devices.target import Target
from search_spaces.devices.warps import MAX_REGISTERS, MAX_THREADS, WARP
from search_spaces.programs.statements import Dot, For, Load, Statement, Store, children, produced, statements
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.limits import Resources

# The first compute capability with asynchronous copies; before it, operands come by way of registers, and no more than
# two iterations of them are in shared memory.
_ASYNC_FROM = 80
_BY_REGISTERS = 2
# Registers that addresses, masks and loops take beside the tiles themselves.
_REGISTER_OVERHEAD = 24


def resources(program: TileProgram, kernel: Kernel, target: Target) -> Resources:
    """The needs of a kernel without warps of a producer: of operands on their way to dots, and of the largest tiles.

    Shared memory in which threads exchange what they store takes the place of operands, and is mostly less.
    """
    body = list(statements(kernel.body))
    threads = kernel.launch.num_warps * WARP
    dots = [s for s in body if isinstance(s, Dot)]
    if not dots:
        live = max([t.elements for s in body for t in produced(s)], default=0)
        return Resources(0, _REGISTER_OVERHEAD + live // threads, threads)
    operands = Operands.of(program, kernel, target.capability)
    summed = {d.dst.name: d.dst.elements for d in dots}
    shared = max(_staged(kernel.body, operands, target.capability), _leaving(body))
    return Resources(shared, _REGISTER_OVERHEAD + sum(summed.values()) // threads, threads)


def _staged(body: Sequence[Statement], operands: Operands, capability: int, slots: int = 1) -> int:
    """Bytes of the operands of dots that a body has in shared memory, those that a loop brings ahead `slots` times;
    loops within it take the same memory one after the other."""
    loaded = {s.dst.name: slots for s in body if isinstance(s, Load) and s.dst.name in operands.staged}
    made = {x: 1 for s in body if isinstance(s, Dot) for x in (s.a, s.b) if x not in operands.staged}
    own = sum(count * operands.stages[name].bytes for name, count in (loaded | made).items())
    return own + max(
        (_staged(b, operands, capability, _slots(s, capability)) for s in body for b in children(s)), default=0
    )


def _slots(s: Statement, capability: int) -> int:
    if not isinstance(s, For):
        return 1
    depth = min(max(1, s.pipeline_stages), s.extent)
    return depth if capability >= _ASYNC_FROM else min(depth, _BY_REGISTERS)


def _leaving(body: Sequence[Statement]) -> int:
    """Bytes of the largest tile that threads exchange to store it by rows, each a little longer than it is."""
    tiles = {t.name: t for s in body for t in produced(s)}
    stored = [tiles[s.src] for s in body if isinstance(s, Store) and s.src in tiles]
    return max((t.bytes + VECTOR_BYTES * (t.elements // t.shape[-1]) for t in stored if len(t.axes) > 1), default=0)


def why_too_large(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    """The limit of the target that the kernel breaks, or None."""
    need = resources(program, kernel, target)
    if need.threads > MAX_THREADS:
        return f"{need.threads} threads per block; {target.name} allows {MAX_THREADS}"
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    allowed = min(kernel.launch.max_registers or MAX_REGISTERS, target.registers_per_sm // need.threads)
    if need.registers_per_thread > allowed:
        return f"about {need.registers_per_thread} registers a thread; {target.name} allows {allowed}"
    return None
