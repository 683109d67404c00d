"""What a tile program needs of a device, and whether the device has it: known before anything compiles."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.target import Target
from search_spaces.tile_program import Dot, For, Kernel, Load, Store, TileProgram, produced, statements

# Triton's limit on the elements of one tensor (triton.language.core.TRITON_MAX_TENSOR_NUMEL).
MAX_TILE_ELEMENTS = 2**20
# Threads of one program, CUDA programming guide, table "technical specifications".
MAX_THREADS = 1024
# 32-bit registers one thread can have.
MAX_REGISTERS = 255
# Registers that addresses, masks and the pipeline take beside the tiles themselves.
REGISTER_OVERHEAD = 24


@dataclass(frozen=True)
class Resources:
    """What one program of a kernel needs on a GPU: estimates from its tiles, not what a compiler reported."""

    shared_memory_bytes: int
    registers_per_thread: int
    threads: int


def resources(kernel: Kernel, target: Target) -> Resources:
    """The needs of a kernel: staged operands in shared memory, accumulators in registers."""
    threads = kernel.launch.num_warps * 32
    dots = [s for s in statements(kernel.body) if isinstance(s, Dot)]
    staged = {name for d in dots for name in (d.a, d.b)}
    shared = 0
    for loop in (s for s in statements(kernel.body) if isinstance(s, For)):
        stages = max(1, loop.pipeline_stages)
        shared += stages * sum(
            s.dst.bytes for s in statements(loop.body) if isinstance(s, Load) and s.dst.name in staged
        )
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    # A store by descriptor goes through shared memory, while the operands of the next tile are still there.
    shared += max(
        (tiles[s.src].bytes for s in statements(kernel.body) if isinstance(s, Store) and s.via == "descriptor"),
        default=0,
    )
    live = sum(d.dst.elements for d in dots) if dots else max((t.elements for t in tiles.values()), default=0)
    return Resources(shared, REGISTER_OVERHEAD + live // threads, threads)


def why_too_large(program: TileProgram, target: Target) -> str | None:
    """The first limit of `target` that a kernel of the program breaks, or None."""
    for kernel in program.kernels:
        reason = _why_too_large_gpu(kernel, target) if target.kind == "gpu" else None
        if reason:
            return f"kernel {kernel.name}: {reason}"
    return None


def _why_too_large_gpu(kernel: Kernel, target: Target) -> str | None:
    need = resources(kernel, target)
    if need.threads > MAX_THREADS:
        return f"{need.threads} threads per program; {target.name} allows {MAX_THREADS}"
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    if need.registers_per_thread > MAX_REGISTERS:
        return f"about {need.registers_per_thread} registers per thread; {target.name} allows {MAX_REGISTERS}"
    for statement in statements(kernel.body):
        for tile in produced(statement):
            if tile.elements > MAX_TILE_ELEMENTS:
                return f"tile {tile.name} has {tile.elements} elements; Triton allows {MAX_TILE_ELEMENTS}"
    return None
