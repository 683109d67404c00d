"""Halos in shared memory, and operands of dots that are windows of them: rows at an offset that the loop's taps decide.

halo: (h 10, w 18, k 64) float16     180 rows of 128 bytes, each padded to an odd number of chunks
a = halo[r + m // 16, s + m % 16]    row m is row (r * 18 + s) + (m / 16 * 18 + m % 16) of these

Each row of a matrix instruction's operand has an address of its own (ldmatrix), so that any window is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.stages import CHUNK, Stage
from autosched.backends.cuda.language.index import Indexing, grouped, scaled, sum_of
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.memory.places import vectors
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.gpu.warps import WARP
from autosched.backends.printing.scope import Identifiers
from search_spaces.devices.features import Features
from search_spaces.programs.addressing import Dimension, address
from search_spaces.programs.grid import Grid
from search_spaces.programs.statements import For, Load, Statement, View
from search_spaces.programs.tile_program import Buffer, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class Window:
    """The layout of an operand that is a view of a halo, as `Stage` is that of one by itself."""

    halo: Stage
    axes: tuple[str, str]
    shape: tuple[int, int]
    rows: tuple[tuple[Slice, int], ...]

    @property
    def element_bytes(self) -> int:
        return self.halo.element_bytes

    @property
    def pitch(self) -> int:
        return self.halo.pitch

    @property
    def bytes(self) -> int:
        """It takes no memory but its halo's."""
        return 0

    @property
    def start(self) -> Affine:
        """Bytes from the halo's first row to the window's."""
        return sum((piece.start * (apart * self.pitch) for piece, apart in self.rows), Affine())

    def chunk(self, row: str, chunk: str) -> str:
        return sum_of(scaled(self._row(row), self.pitch), scaled(chunk, CHUNK))

    def element(self, row: str, column: str) -> str:
        return sum_of(scaled(self._row(row), self.pitch), scaled(column, self.element_bytes))

    def _row(self, row: str) -> str:
        """Row of the halo, relative to the window's first one."""
        moving = [(piece, apart * piece.step) for piece, apart in self.rows if piece.axis]
        return sum_of(*(scaled(_digit(piece, row), apart) for piece, apart in moving))


def _digit(piece: Slice, row: str) -> str:
    flat = piece.flat
    if flat is None:
        return row
    divided = f"{row} / {flat.divisor}" if flat.divisor > 1 else row
    return divided if flat.divisor * flat.size == piece.extent else f"{divided} % {flat.size}"


def halo_stage(tile: Tile) -> Stage:
    """The layout of a halo: all positions before its last axis are rows."""
    *slower, width = tile.shape
    return Stage(("", tile.axes[-1]), (math.prod(slower), width), dtype(tile.dtype).bytes, swizzled=False)


def window_of(view: View, halo: Tile) -> Window:
    """The layout of a view of a halo. Raises CompileError for one that has other columns."""
    *pieces, columns = view.slices
    if len(view.dst.axes) != 2 or columns.start != Affine() or columns.axis != view.dst.axes[1]:
        raise CompileError(f"{view.dst} is no window of {halo}")
    apart = [math.prod(halo.shape[at + 1 : -1]) for at in range(len(pieces))]
    rows, width = view.dst.axes
    return Window(
        halo_stage(halo), (rows, width), (view.dst.shape[0], view.dst.shape[1]), tuple(zip(pieces, apart, strict=True))
    )


@dataclass(frozen=True)
class HaloCopy:
    """The asynchronous copy of a halo in chunks, each by one thread, which `every` iterations read; there are `blocks`.

    It has any number of rows: threads count chunks, and rows are digits of these. `resident`: it is the same for all
    tiles of a persistent program, and copied for the first one only. `programs`: the distance of a persistent program's
    tiles, if the next one's halo is copied during the dots of this one; else 0.
    """

    load: Load
    stage: Stage
    buffer: Buffer
    every: int
    blocks: int
    threads: int
    resident: bool = False
    programs: int = 0

    @property
    def asynchronous(self) -> bool:
        return True

    def slots(self, depth: int) -> int:
        """Halos in shared memory at a time, in a loop of this pipeline depth."""
        return min(self.blocks, -(-(depth - 1) // self.every) + 1)

    def place(self, depth: int, shared: SharedMemory) -> str:
        """Take a place for these."""
        if self.resident:
            return str(shared.reserve(self.stage.bytes))
        if self.programs:
            first, size = shared.reserve(2 * self.stage.bytes), self.stage.bytes
            return f"{first} + tile / {self.programs} % 2 * {size}"
        return shared.place(self.slots(depth) * self.stage.bytes)

    def condition(self, counter: str) -> str:
        """The condition under which an iteration copies it; "" if all do."""
        first = [f"{counter} % {self.every} == 0"] if self.every > 1 and counter else []
        return " && ".join([*(["tile == block"] if self.resident else []), *first])

    def text(self, indexing: Indexing, copy: str, source: str, to: str) -> Iterator[str]:
        """The lines of the copy from a buffer to a place in shared memory by the function `copy`."""
        chunks, step = self.stage.chunks, CHUNK // self.stage.element_bytes
        count = self.stage.shape[0] * chunks
        at = address(self.buffer, self.load.slices, indexing.extents)
        places = self._places(at.dimensions, f"chunk * {step}")
        starts = [scaled(indexing.affine(d.slice.start, at.wide), d.stride, at.wide) for d in at.dimensions]
        offsets = [scaled(place, d.stride, at.wide) for d, place in zip(at.dimensions, places, strict=True)]
        within = (sum_of(indexing.affine(d.slice.start), x) for d, x in zip(at.dimensions, places, strict=True))
        tests = [f"{x} {test}" for d, x in zip(at.dimensions, within, strict=True) for test in d.tests]
        size = f"{grouped(' && '.join(tests))} ? {CHUNK} : 0" if tests else str(CHUNK)
        yield "#pragma unroll 4"
        yield f"for (int number = threadIdx.x; number < {count}; number += {self.threads}) {{"
        yield f"    const int row = number / {chunks}, chunk = number % {chunks};"
        there = sum_of(to, f"row * {self.stage.pitch}", f"chunk * {CHUNK}")
        yield f"    {copy}({there}, {sum_of(source, *starts, *offsets)}, {size});"
        yield "}"

    def _places(self, dimensions: Sequence[Dimension], column: str) -> list[str]:
        """The place of a chunk along every dimension, counted from the halo's first element."""
        found, apart = list[str](), self.stage.shape[0]
        for d in dimensions:
            if d is dimensions[-1]:
                found.append(column)
            elif d.axis:
                extent = d.slice.extent or 1
                outermost, apart = apart == self.stage.shape[0], apart // extent
                divided = f"row / {apart}" if apart > 1 else "row"
                found.append(divided if outermost else f"{divided} % {extent}")
            else:
                found.append("0")
        return found


def why_not_copied(buffer: Buffer, load: Load, indexing: Indexing, features: Features) -> str | None:
    """Reason that a halo is not copied in chunks, asynchronously, or None."""
    if not features.copy_bytes:
        return f"{load.dst} is a halo, which a device without asynchronous copies does not load"
    width = load.dst.shape[-1] * dtype(load.dst.dtype).bytes
    most = vectors(address(buffer, load.slices, indexing.extents), indexing).get(load.dst.axes[-1], 1)
    if width % CHUNK or most * dtype(load.dst.dtype).bytes < CHUNK:
        return f"{load.dst} has rows of {width} bytes, of which {most} elements are together; expected {CHUNK} bytes"
    return None


def views_of_halos(program: TileProgram, body: Sequence[Statement], multiplied: Mapping[str, Tile]) -> dict[str, View]:
    """The operands of dots that are views of loaded tiles, by name."""
    loads = {s.dst.name: s for s in body if isinstance(s, Load)}
    views = (s for s in body if isinstance(s, View) and s.dst.name in multiplied)
    found = {s.dst.name: s for s in views}
    for view in found.values():
        load = loads.get(view.src)
        if load is None or load.fill != 0 or program.buffer(load.buffer).dtype != load.dst.dtype:
            raise CompileError(f"{view.dst} is a view of a tile that is computed; expected one that is loaded")
    return found


@dataclass(frozen=True)
class Nest:
    """A loop that loads halos, and the loop over their windows that is the rest of its body.

    `apart`: the inner one loads nothing, so that only the outer one is pipelined.
    """

    outer: For
    loads: tuple[Load, ...]
    inner: For
    apart: bool

    @property
    def loop(self) -> For:
        """The loop that is pipelined, without the loads of halos: one over the iterations of both, or the outer one."""
        outer, inner = self.outer, self.inner
        if self.apart:
            return replace(outer, body=(inner,), pipeline_stages=inner.pipeline_stages)
        return replace(inner, variable=outer.variable, extent=outer.extent * inner.extent, digits=None)

    def copy(self, load: Load, printer: KernelPrinter, stages: Mapping[str, Stage | Window]) -> HaloCopy:
        """The copy of one of its halos."""
        buffer, stage, grid = printer.program.buffer(load.buffer), stages[load.dst.name], printer.kernel.grid
        if why := why_not_copied(buffer, load, printer.indexing, printer.features):
            raise CompileError(why)
        assert isinstance(stage, Stage)
        every = 1 if self.apart else self.inner.extent
        several = grid.walked and grid.stream is None
        resident = several and not any(printer.indexing.varying(piece.start) for piece in load.slices)
        programs = grid.programs if self.ahead(grid) else 0
        return HaloCopy(load, stage, buffer, every, self.outer.extent, printer.warps * WARP, resident, programs)

    def ahead(self, grid: Grid) -> bool:
        """True if a persistent program copies the halos of its next tile during the dots of this one.

        It does where all channels are one block, and the pipeline is deeper than that.
        """
        one = self.apart and self.outer.extent == 1 and self.inner.pipeline_stages > 1
        return one and grid.walked and grid.stream is None

    def turns(self, turns: Iterations, indexing: Indexing, identifiers: Identifiers) -> Iterations:
        """The iterations of both, counted as one, or those of the outer one, `turns`."""
        if self.apart:
            return turns
        outer, inner = (indexing.variable(s.variable) for s in (self.outer, self.inner))
        each, variables = self.inner.extent, (self.outer.variable, self.inner.variable)
        if self.outer.extent == 1:
            return Iterations(inner, "0", str(each), variables)
        turn = identifiers.of(("turn", self.outer.variable), f"{outer}_turn")
        lines = (f"const int {outer} = {turn} / {each};", f"const int {inner} = {turn} % {each};")
        return Iterations(turn, "0", str(self.outer.extent * each), variables, lines)


def around_halos(loop: For, halos: frozenset[str], staged: frozenset[str]) -> Nest | None:
    """The loop with the one in it, if it loads some of these tiles and does nothing else."""
    loads, inner = loop.body[:-1], loop.body[-1]
    if not loads or not isinstance(inner, For) or loop.bound is not None:
        return None
    found = tuple(s for s in loads if isinstance(s, Load) and s.dst.name in halos)
    apart = not any(isinstance(s, Load) and s.dst.name in staged for s in inner.body)
    return Nest(loop, found, inner, apart) if len(found) == len(loads) else None
