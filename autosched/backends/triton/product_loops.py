"""Registers of loops that add up products of tiles and rows, without dots: skinny GEMMs.

    for k.0 in …:
      large  = a[…]              a tile of two axes, several of them in flight
      row    = b[…]              its neighbours along k
      sum   += large * row       or, first, the sum over k of the product

The register counts are those of Triton's compiler for such tiles; they were read from PTX for compute
capability 9.0 (Triton 3.7).
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.triton.resources import REGISTER_OVERHEAD
from search_spaces.devices.target import Target
from search_spaces.programs.statements import For, Load, Map, Reduce
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.workloads.dtypes import dtype


@dataclass(frozen=True)
class _ProductLoop:
    """Loads of such a loop: all tiles of the large operand, and all rows; `summed`: it sums over k within the loop."""

    large: tuple[Load, ...]
    rows: tuple[Load, ...]
    summed: bool

    @staticmethod
    def of(loop: For) -> _ProductLoop | None:
        """The loop, or None if it does anything else."""
        products = [s for s in loop.body if isinstance(s, Map) and s.operator == "mul"]
        if not products:
            return None
        large = tuple(s for s in loop.body if isinstance(s, Load) and len(s.dst.axes) == 2)
        rows = tuple(s for s in loop.body if isinstance(s, Load) and len(s.dst.axes) == 1)
        sums = [s for s in loop.body if isinstance(s, Map) and s.operator == "add"]
        reductions = [s for s in loop.body if isinstance(s, Reduce)]
        pairs = {(tile.dst.name, row.dst.name) for tile in large for row in rows}
        known = len(large) + len(rows) + len(products) + len(sums) + len(reductions)
        whole = known == len(loop.body) and len(products) == len(rows) == len(sums)
        if not (large and whole and all(p.arguments in pairs for p in products)):
            return None
        return _ProductLoop(large, rows, bool(reductions))


def why_spilling(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    """Reason that a loop of products needs more registers than a thread has, or None, also without such a loop."""
    most = target.features.registers_per_thread
    loops = (_ProductLoop.of(s) for s in kernel.body if isinstance(s, For))
    for need in (_registers(program, loop, kernel.launch.num_warps * target.wave, target) for loop in loops if loop):
        if need > most:
            return f"about {need} registers a thread for sums and tiles; at most {most}"
    return None


def _registers(program: TileProgram, loop: _ProductLoop, threads: int, target: Target) -> int:
    """Registers of sums, and of all tiles of an iteration, which are in flight together."""
    load = loop.large[0]
    along_k, vector = _layout(program.buffer(load.buffer), load, loop.rows[0].dst.axes[0], target.features.load_bytes)
    tile_k, tile_wide = loop.rows[0].dst.elements, load.dst.elements // loop.rows[0].dst.elements
    # In Triton's coalesced layout threads lie along the contiguous axis first, each with a vector, then across it.
    run, height = (tile_k, tile_wide) if along_k else (tile_wide, tile_k)
    along = min(threads, max(1, run // vector))
    across = min(threads // along, height)
    elements = run * height // (along * across)
    rows, size = len(loop.rows) // len(loop.large), dtype(load.dst.dtype).bytes
    sharing = along if along_k else across
    sums = rows * (elements // (tile_k // sharing) if loop.summed else elements)
    # A load of less than a register takes a whole one, and another for its address.
    loaded = len(loop.large) * elements // vector * (vector * size // 4 or 2)
    # For several rows a tile is converted to float32 once.
    converted = elements if rows > 1 and size < 4 else 0
    return REGISTER_OVERHEAD + sums + loaded + converted


def _layout(buffer: Buffer, load: Load, k: str, vector_bytes: int) -> tuple[bool, int]:
    """True if neighbours in memory are neighbours along k; and the number of them that a thread loads at once."""
    strided = [
        (stride, number)
        for number, (stride, size) in enumerate(zip(buffer.strides, buffer.shape, strict=True))
        if size > 1 and stride
    ]
    if not strided:
        return False, 1
    (step, contiguous), *others = sorted(strided)
    most = vector_bytes // dtype(buffer.dtype).bytes
    # A mask splits vectors that reach beyond the extent.
    sizes = (buffer.shape[contiguous], *(stride for stride, _ in others))
    fitting = [v for v in (16, 8, 4, 2) if v <= most and not any(s % v for s in sizes)]
    return load.slices[contiguous].axis == k, fitting[0] if fitting and step == 1 else 1
