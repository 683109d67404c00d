"""Resources of a tile program on a GPU when compiled by Triton, and their limits, known before anything compiles."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from autosched.backends.gpu.warps import WARP, WARP_GROUP
from autosched.backends.triton.chain_resources import chain_resources, has_chain_roles, registers_allowed
from autosched.backends.triton.chained_loops import held_bytes, is_chained, live_sums, staged_bytes
from search_spaces.devices.features import multiplied
from search_spaces.devices.target import Target
from search_spaces.programs.addressing import why_uncounted
from search_spaces.programs.statements import (
    Dot,
    For,
    Gather,
    Interleave,
    Load,
    Split,
    Statement,
    Store,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Tile
from search_spaces.schedules.limits import Resources
from search_spaces.workloads.dtypes import dtype, is_promoted

# Triton's limit on the elements of one tensor (triton.language.core.TRITON_MAX_TENSOR_NUMEL).
MAX_TILE_ELEMENTS = 2**20
# Rows of an accumulator that a warp has before others lie next to it along the columns (PTX ISA, shapes of mma, wgmma).
WARP_ROWS = 16
# Barriers of the pipeline, and the two of a slot of a ring, for full and for empty.
BARRIER_BYTES = 64
SLOT_BARRIER_BYTES = 16
# Registers of partial sums besides their accumulator: a tile of 256 x 128 with eight warps compiles to 254 registers
# without spilling (Triton 3.6 and 3.7).
PROMOTED = 0.75
# Registers of addresses, masks and the pipeline besides the tiles themselves.
REGISTER_OVERHEAD = 24


def resources(program: TileProgram, kernel: Kernel, target: Target) -> Resources:
    """The needs of a kernel of the program: operands and stored tiles in shared memory, accumulators in registers.

    Shared memory follows Triton 3.7's reports for an H200: within 64 bytes for all but one of the starting points of
    six matrix products. For one in eight random schedules it is too low, mostly for float32 as ieee, by a tile at the
    most; a kernel that then does not fit fails when it is loaded. It is too high, by half and more, where Triton does
    not stage loads by pointers: rows that are not aligned, and bytes across k.
    """
    if has_chain_roles(kernel):
        return chain_resources(program, kernel)
    body = list(statements(kernel.body))
    tiles = {t.name: t for s in body for t in produced(s)}
    dots = [s for s in body if isinstance(s, Dot)]
    threads = kernel.launch.num_warps * WARP
    # A peeled step adds to the loop's accumulator.
    summed = {d.dst.name: d.dst.elements * (1 + PROMOTED * is_promoted(tiles[d.a].dtype, d.precision)) for d in dots}
    # Operands computed for a dot are in float32 besides all accumulators, one operand after the other; those that are
    # joined are as they were loaded.
    put = {s.dst.name for s in body if isinstance(s, Interleave)}
    made = [tiles[x] for x in _operands(dots) if not _is_loaded(x, body)]
    prologues = [t.bytes // 4 if t.name in put else t.elements for t in made]
    live = int(sum(summed.values())) if dots else max([t.elements for t in tiles.values()], default=0)
    live += max(prologues, default=0)
    if is_chained(kernel.body):
        # Results of a product are multiplied from the registers that they are in.
        live = live_sums(kernel.body)
    shared = _dot_bytes(program, kernel, tiles, dots, target) if dots else _row_bytes(body)
    return Resources(shared, REGISTER_OVERHEAD + live // threads, threads)


def _dot_bytes(
    program: TileProgram, kernel: Kernel, tiles: dict[str, Tile], dots: Sequence[Dot], target: Target
) -> int:
    """Operands of the iterations in flight, and accumulators on their way to memory, which may take their place."""
    body = list(statements(kernel.body))
    if kernel.launch.producer_warps:
        return _ring_bytes(program, kernel, tiles, dots)
    stages = max((max(1, s.pipeline_stages) for s in body if isinstance(s, For)), default=1)
    read = _operands([d for d in dots if _reads_shared(d, tiles, kernel.launch.num_warps, target)])
    if is_chained(kernel.body):
        staged = staged_bytes(kernel.body, lambda loop: _staged_bytes(loop, tiles, stages, read))
        staged += held_bytes(kernel.body, tiles, read)
    else:
        # Of loops one after the other, each has the memory of those before it.
        staged = max((_staged_bytes(s, tiles, stages, read) for s in body if isinstance(s, For)), default=0)
    # A flattened loop loads the operands of the next tile while this one is stored; others wait, except for copies.
    flat = kernel.grid.walked and any(s.flatten for s in body if isinstance(s, For))
    copied = kernel.grid.walked and any(isinstance(s, Store) and s.via == "descriptor" for s in body)
    leaving = _leaving_bytes(program, kernel, tiles, dots, flat)
    return BARRIER_BYTES + (staged + leaving if flat or copied else max(staged, leaving))


def _reads_shared(dot: Dot, tiles: dict[str, Tile], warps: int, target: Target) -> bool:
    """True if it reads its operands from shared memory, as dots of warp groups do.

    Other dots copy them to registers an iteration early.
    """
    elements = [multiplied(tiles[x].dtype, dot.precision) for x in (dot.a, dot.b)]
    found = (i for x in elements for i in target.features.multiplying(x, "shared"))
    alone = len(dot.dst.axes) == 2
    return alone and any(dot.dst.shape[0] >= i.m and warps % i.waves == 0 for i in found)


def _staged_bytes(loop: For, tiles: dict[str, Tile], stages: int, read: Collection[str]) -> int:
    """Shared memory of a loop with dots: the loads of the iterations in flight, and columns that it computes.

    `read`: the tiles that dots read from there. Computed rows go from registers to the dot. Their operands are copied
    to registers an iteration early, as are operands of older dots.
    """
    dots = [s for s in loop.body if isinstance(s, Dot)]
    early = max(1, stages - 1)
    loaded = {s.dst.name: s.dst for s in loop.body if isinstance(s, Load | Gather)} if dots else {}
    brought = sum((stages if x in read else early) * t.bytes for x, t in loaded.items())
    columns = {x for d in dots for x in (d.a, d.b) if x not in loaded and d.dst.axes[-1] in tiles[x].axes}
    return brought + sum(tiles[x].bytes for x in columns if x in read)


def _operands(dots: Sequence[Dot]) -> tuple[str, ...]:
    """The operands of dots, each once."""
    return tuple(dict.fromkeys(x for d in dots for x in (d.a, d.b)))


def _is_loaded(tile: str, body: Sequence[Statement]) -> bool:
    return any(isinstance(s, Load) and s.dst.name == tile for s in body)


def _leaving_bytes(
    program: TileProgram, kernel: Kernel, tiles: dict[str, Tile], dots: Sequence[Dot], flat: bool
) -> int:
    """An accumulator, if it is divided between warps, and its pieces if threads exchange stored elements."""
    stores = [s for s in kernel.body if isinstance(s, Store)]
    pieces = [tiles[s.src].elements * dtype(program.buffer(s.buffer).dtype).bytes for s in stores]
    # All tiles that a flattened loop's epilogue loads are present before the first piece is stored.
    kept = flat and any(isinstance(s, Load) and len(s.dst.axes) > 1 for s in kernel.body)
    stored = sum(pieces) if kept else max(pieces, default=0)
    split = any(isinstance(s, Split) for s in kernel.body)
    beside = [d.dst.bytes for d in dots if kernel.launch.num_warps * WARP_ROWS > math.prod(d.dst.shape[:-1])]
    cut = max(beside, default=0) if split else 0
    return cut + stored if any(s.via == "descriptor" for s in stores) else max(cut, stored)


def _ring_bytes(program: TileProgram, kernel: Kernel, tiles: dict[str, Tile], dots: Sequence[Dot]) -> int:
    """The ring that a producer fills, its loads for the epilogue, and pieces of the outputs on their way to memory."""
    body = list(statements(kernel.body))
    stages = max((s.pipeline_stages for s in body if isinstance(s, For)), default=1)
    stores = [s for s in body if isinstance(s, Store) and s.via == "descriptor"]
    # Every output has a ring of its own.
    sizes = {(s.buffer, tiles[s.src].shape): tiles[s.src].elements for s in stores}
    piece = sum(elements * dtype(program.buffer(name).dtype).bytes for (name, _), elements in sizes.items())
    # One piece is written while another is on its way, unless the other group computes meanwhile; groups that share a
    # tile have equal parts of a piece.
    alternating = kernel.launch.alternating
    pieces = kernel.launch.num_warps // WARP_GROUP if alternating else min(2, len(stores))
    extras = [s.dst.bytes for s in kernel.body if isinstance(s, Load) and s.via == "descriptor"]
    ring = stages * (sum(tiles[x].bytes for x in _operands(dots)) + SLOT_BARRIER_BYTES)
    return 3 * BARRIER_BYTES + ring + pieces * piece + (1 + alternating) * sum(extras)


def _row_bytes(body: list[Statement]) -> int:
    """Bytes in flight of the pipelined loads of the loop with most of them."""
    loops = [s for s in body if isinstance(s, For)]
    return max((max(0, s.pipeline_stages - 1) * _loaded_bytes(s) for s in loops), default=0)


def _loaded_bytes(loop: For) -> int:
    return sum(s.dst.bytes for s in loop.body if isinstance(s, Load | Gather))


def why_too_large(program: TileProgram, target: Target) -> str | None:
    """The first limit of `target` that a kernel of the program breaks, or None."""
    for kernel in program.kernels:
        reason = _why_too_large_gpu(program, kernel, target) if target.kind == "gpu" else None
        if reason:
            return f"kernel {kernel.name}: {reason}"
    return None


def _why_too_large_gpu(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    if reason := why_uncounted(kernel.grid):
        return reason
    need = resources(program, kernel, target)
    if need.threads > target.threads:
        return f"{need.threads} threads per program; {target.name} allows {target.threads}"
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    most = kernel.launch.max_registers or target.features.registers_per_thread
    allowed = min(most, target.registers_per_sm // need.threads)
    if has_chain_roles(kernel):
        allowed = registers_allowed(kernel)
    if need.registers_per_thread > allowed:
        return (
            f"about {need.registers_per_thread} registers per thread; {target.name} allows {allowed} for {need.threads}"
        )
    for statement in statements(kernel.body):
        for tile in produced(statement):
            if tile.elements > MAX_TILE_ELEMENTS:
                return f"tile {tile.name} has {tile.elements} elements; Triton allows {MAX_TILE_ELEMENTS}"
    return None
