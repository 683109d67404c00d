"""Copies of halos to shared memory, and the loops around the dots of their windows (`windows`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.windows import Halo
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
from search_spaces.programs.statements import For, Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.workloads.dtypes import dtype


@dataclass(frozen=True)
class HaloCopy:
    """The asynchronous copy of a halo in chunks, each by one thread, which `every` iterations read; there are `blocks`.

    It has any number of rows: threads count chunks, and rows are digits of these. `resident`: it is the same for all
    tiles of a persistent program, and copied for the first one only. `programs`: the distance of a persistent program's
    tiles, if the next one's halo is copied during the dots of this one; else 0.
    """

    load: Load
    stage: Halo
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
        chunks, size = self.stage.pieces, self.stage.piece
        count = self.stage.rows * chunks
        at = address(self.buffer, self.load.slices, indexing.extents)
        places = self._places(at.dimensions)
        starts = [scaled(indexing.affine(d.slice.start, at.wide), d.stride, at.wide) for d in at.dimensions]
        offsets = [scaled(place, d.stride, at.wide) for d, place in zip(at.dimensions, places, strict=True)]
        within = (sum_of(indexing.affine(d.slice.start), x) for d, x in zip(at.dimensions, places, strict=True))
        tests = [f"{x} {test}" for d, x in zip(at.dimensions, within, strict=True) for test in d.tests]
        copied = f"{grouped(' && '.join(tests))} ? {size} : 0" if tests else str(size)
        yield "#pragma unroll 4"
        yield f"for (int number = threadIdx.x; number < {count}; number += {self.threads}) {{"
        yield f"    const int row = number / {chunks}, chunk = number % {chunks};"
        there = sum_of(to, f"row * {self.stage.pitch}", f"chunk * {size}")
        yield f"    {copy}({there}, {sum_of(source, *starts, *offsets)}, {copied});"
        yield "}"

    def _places(self, dimensions: Sequence[Dimension]) -> list[str]:
        """The place of a chunk along every dimension, counted from the halo's first element."""
        found, apart, each = list[str](), self.stage.rows, self.stage.pieces_of_run
        product, within = (f"chunk / {each}", f"chunk % {each}") if self.stage.products > 1 else ("0", "chunk")
        for d in dimensions:
            if d is dimensions[-1]:
                step = self.stage.piece // self.stage.element_bytes
                found.append(f"{grouped(within)} * {step}" if each > 1 or self.stage.products == 1 else "0")
            elif self.stage.products > 1 and d.axis == self.load.dst.axes[-2]:
                found.append(product if each > 1 else scaled("chunk", self.stage.together))
            elif d.axis:
                extent = d.slice.extent or 1
                outermost, apart = apart == self.stage.rows, apart // extent
                divided = f"row / {apart}" if apart > 1 else "row"
                found.append(divided if outermost else f"{divided} % {extent}")
            else:
                found.append("0")
        return found


def why_not_copied(buffer: Buffer, load: Load, size: int, indexing: Indexing, features: Features) -> str | None:
    """Reason that a halo is not copied in pieces of so many bytes, asynchronously, or None."""
    if not features.copy_bytes:
        return f"{load.dst} is a halo, which a device without asynchronous copies does not load"
    element_bytes = dtype(load.dst.dtype).bytes
    width = load.dst.shape[-1] * element_bytes
    most = vectors(address(buffer, load.slices, indexing.extents), indexing).get(load.dst.axes[-1], 1)
    if width % size or most * element_bytes < size or features.copy_bytes > size:
        return f"{load.dst} has rows of {width} bytes, of which {most} elements are together; expected {size} bytes"
    return None


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

    def copy(self, load: Load, printer: KernelPrinter, halos: Mapping[str, Halo]) -> HaloCopy:
        """The copy of one of its halos."""
        buffer, stage, grid = printer.program.buffer(load.buffer), halos[load.dst.name], printer.kernel.grid
        size = stage.piece // stage.together
        if why := why_not_copied(buffer, load, size, printer.indexing, printer.features):
            raise CompileError(why)
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


def around_halos(loop: For, halos: Collection[str], staged: frozenset[str]) -> Nest | None:
    """The loop with the one in it, if it loads some of these tiles and does nothing else."""
    loads, inner = loop.body[:-1], loop.body[-1]
    if not loads or not isinstance(inner, For) or loop.bound is not None:
        return None
    found = tuple(s for s in loads if isinstance(s, Load) and s.dst.name in halos)
    apart = not any(isinstance(s, Load) and s.dst.name in staged for s in inner.body)
    return Nest(loop, found, inner, apart) if len(found) == len(loads) else None
