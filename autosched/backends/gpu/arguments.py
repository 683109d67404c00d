"""Arguments of a printed kernel: pointers to buffers first, then tensor descriptors of them.

Descriptors are arguments, made by the launcher of the kernel: one that the kernel makes itself costs it 1.5 to 2 µs
(an H200, Triton 3.6), since it has to be written to memory and fetched through the descriptor cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autosched.backends.backend import CompileError
from search_spaces.devices.architectures import TMA
from search_spaces.devices.descriptors import why_not_describable
from search_spaces.programs.addressing import address
from search_spaces.programs.boxes import box, why_no_box
from search_spaces.programs.statements import Gather, Load, Store, statements
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice
from search_spaces.workloads.dtypes import dtype

_Each = TypeVar("_Each")


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor: tiles of `block` elements of a buffer, along the dimensions that are `described`."""

    buffer: Buffer
    block: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return described(self.buffer, self.buffer.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements; the last is 1. Strides of dimensions of extent 1 are rounded up to allowed ones."""
        aligned = max(1, TMA.alignment_bytes // dtype(self.buffer.dtype).bytes)
        *outer, inner = zip(self.buffer.shape, self.buffer.strides, strict=True)
        strides = [stride if extent > 1 else -(-stride // aligned) * aligned for extent, stride in outer]
        return described(self.buffer, (*strides, inner[1]))


@dataclass(frozen=True)
class Arguments:
    """The arguments of a kernel in the order of its parameters."""

    pointers: tuple[Buffer, ...]
    descriptors: tuple[Descriptor, ...]


def arguments(program: TileProgram, kernel: Kernel) -> Arguments:
    """The arguments of a kernel; pointers in the program's order, descriptors in the order of their first use.

    Raises:
        CompileError: the hardware cannot describe a tile.
    """
    body = list(statements(kernel.body))
    moves = [s for s in body if isinstance(s, Load | Store)]
    pointed = {s.buffer for s in moves if s.via == "pointer"} | {s.buffer for s in body if isinstance(s, Gather)}
    tiles = [descriptor(program.buffer(s.buffer), s.slices) for s in moves if s.via == "descriptor"]
    return Arguments(tuple(b for b in program.buffers if b.name in pointed), tuple(dict.fromkeys(tiles)))


def descriptor(buffer: Buffer, slices: tuple[Slice, ...]) -> Descriptor:
    """The descriptor for tiles of these slices.

    Raises:
        CompileError: the hardware cannot describe them.
    """
    block = described(buffer, box(slices))
    what = f"tensor descriptor of {buffer.name}{list(buffer.shape)} {buffer.dtype}"
    if reason := why_no_box(slices, buffer.strides) or why_not_describable(buffer):
        raise CompileError(f"{what}: {reason}; use pointers")
    if block[-1] * dtype(buffer.dtype).bytes < TMA.alignment_bytes:
        raise CompileError(
            f"{what}: {block[-1]} elements in the innermost dimension; expected at least {TMA.alignment_bytes} bytes"
        )
    if max(block) > TMA.longest:
        raise CompileError(f"{what}: a tile of {list(block)}; expected at most {TMA.longest} along a dimension")
    return Descriptor(buffer, block)


def loading_descriptor(buffer: Buffer, load: Load, extents: Mapping[str, int]) -> Descriptor:
    """The descriptor for a load; the variables of its kernel have these extents.

    Raises:
        CompileError: the hardware cannot describe it, or would give other values than the load's fill.
    """
    refused = f"load of {buffer.name} by descriptor"
    if load.eviction:
        raise CompileError(f"{refused} cannot have eviction={load.eviction!r}; use pointers")
    if not load.fill and not load.guarded:
        return descriptor(buffer, load.slices)
    outside = [d.stride for d in address(buffer, load.slices, extents).dimensions if d.may_leave]
    if load.fill and outside:
        raise CompileError(f"{refused} pads with 0, expected {load.fill:g}; use pointers")
    if load.guarded and 0 in outside:
        raise CompileError(f"{refused} has no end along a dimension of stride 0; use pointers")
    return descriptor(buffer, load.slices)


def described(buffer: Buffer, values: Sequence[_Each]) -> tuple[_Each, ...]:
    """Values, one a dimension of the buffer, of the dimensions that a descriptor has: none of stride 0."""
    return tuple(value for value, stride in zip(values, buffer.strides, strict=True) if stride)
