"""The tile program: the one form between schedules and printed kernels.

Sketches lower schedules to tile programs; backends print them (Triton, LLVM IR); the NumPy interpreter executes
them; cost models read features off them. A program is one or more kernels run in order. A kernel is a grid of
programs, each running the same short body of statements on tiles:

    kernel matmul: grid m.0 in 4, n.0 in 4
      acc: (m 128, n 128) float32 = 0
      for k.0 in 8:
        a_tile = load a[m.0*128 : +128, k.0*64 : +64]
        b_tile = load b[k.0*64 : +64, n.0*128 : +128]
        acc += dot(a_tile, b_tile) over k
      store out[m.0*128 : +128, n.0*128 : +128] = acc

A tile is a small dense array with *named* axes; statements broadcast by axis name, so no statement carries axis
numbers. A statement that produces an existing tile name assigns to it (a loop-carried tile). Grid and loop variables
are integers from 0; slices start at affine forms of them. Loads outside the buffer yield `fill`, stores outside are
dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from search_spaces.programs.grid import Grid
from search_spaces.programs.statements import For, Let, Load, Statement, Store, statements
from search_spaces.programs.tiles import Flat
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.strides import dense_strides, distinct_elements, span


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array in device memory: dense and row-major, or with `declared_strides` (see `workload.Tensor`).

    `workspace` buffers are allocated by the launcher, and carry data from one kernel of a program to the next;
    `own` ones from one part of a kernel's body to the next, and every program of a kernel has its own (CPU).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["input", "output", "workspace", "own"]
    declared_strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements themselves, shared ones counted once; without gaps between them."""
        return distinct_elements(self.shape, self.strides) * dtype(self.dtype).bytes

    @property
    def room_bytes(self) -> int:
        """Bytes from the first element to the last, with the gaps between them."""
        return self.span * dtype(self.dtype).bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours, per dimension."""
        return dense_strides(self.shape) if self.declared_strides is None else self.declared_strides

    @property
    def span(self) -> int:
        """Elements of memory from the first element to the last, both included."""
        return span(self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch parameters and compiler options of a kernel; a backend reads the fields of its device.

    GPU: `num_warps`, `num_stages` (default pipeline depth), `num_ctas` (cluster size), `max_registers` (0: no cap),
    `producer_warps` (warps in addition to `num_warps` that only load operands; 0: the compiler interleaves loads and
    dots); with them, `alternating` groups compute every other tile instead of half of every tile, or issue their
    chained dots alternately; `overlapped`: dots run while pointwise work of another iteration is computed.
    `programs.roles` makes the roles of warps from these; `dependent`: programmatic dependent launch.

    CPU: `lanes` (elements per vector), `vectors` (vectors per step of an element-wise loop), `prefetch_bytes` (prefetch
    distance of such a loop's operands).
    """

    num_warps: int = 4
    num_stages: int = 1
    num_ctas: int = 1
    max_registers: int = 0
    producer_warps: int = 0
    alternating: bool = False
    overlapped: bool = False
    dependent: bool = False
    lanes: int = 1
    vectors: int = 1
    prefetch_bytes: int = 0


@dataclass(frozen=True)
class Kernel:
    """A grid of programs with one body. A statement may use any tile produced before it in the same program.

    `auxiliary`: it copies operands or joins parts for another kernel, and decisions do not change its launch.
    """

    name: str
    grid: Grid
    body: tuple[Statement, ...]
    launch: Launch = Launch()
    auxiliary: bool = False


@dataclass(frozen=True)
class TileProgram:
    """Kernels run one after the other over the same buffers.

    Buffers are in calling order: inputs, then the outputs, then workspaces, then those of each program's own, which no
    call passes. Buffers in `zeroed` are set to zero first. Each of `prepared` is a workspace with the constant input
    that it is made of, and of nothing else: the kernels that store to it run once for a constant, and not at a call.
    """

    name: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    zeroed: tuple[str, ...] = ()
    prepared: tuple[tuple[str, str], ...] = ()

    @cached_property
    def preparing(self) -> tuple[str, ...]:
        """The prepared workspace that each kernel stores to, or "" for the kernels of every call."""
        stored = [{s.buffer for s in statements(k.body) if isinstance(s, Store)} for k in self.kernels]
        return tuple(next((name for name, _ in self.prepared if name in names), "") for names in stored)

    @property
    def called(self) -> TileProgram:
        """The part that runs at every call."""
        if not self.prepared:
            return self
        kernels = zip(self.kernels, self.preparing, strict=True)
        return replace(self, kernels=tuple([k for k, prepared in kernels if not prepared]), prepared=())

    @property
    def given(self) -> tuple[Buffer, ...]:
        """The buffers that kernels are called with."""
        return tuple([b for b in self.buffers if b.role != "own"])

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)


def loop_extents(kernel: Kernel) -> dict[str, int]:
    """Extent of every variable of a kernel: of the grid, of loops, and bound to data."""
    extents = {a.variable: a.extent for a in kernel.grid.axes}
    every = [*statements(kernel.body)]
    loops = [s for s in every if isinstance(s, For)]
    extents.update((s.variable, s.extent) for s in every if isinstance(s, For | Let))
    extents.update(digit for s in loops if s.digits for digit in s.digits.radix)
    return extents


def loop_digits(kernel: Kernel) -> dict[str, Flat]:
    """The variables of a kernel that are digits of others."""
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    return {name: flat for s in loops if s.digits for name, flat in s.digits.flats.items()}


def loads_at_data(loop: For) -> list[Load]:
    """The loads of a loop's body at places that the body binds to data: none is known before its iteration."""
    bound = {s.variable for s in loop.body if isinstance(s, Let)}
    return [s for s in loop.body if isinstance(s, Load) and any(bound & {*p.start.axes} for p in s.slices)]
