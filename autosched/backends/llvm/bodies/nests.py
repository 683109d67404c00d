"""Dots within loops that do nothing else: loops around a micro-kernel, which sums a register tile over them.

for r in 3: for s in 3:                                       two pointers, and constant distances from them;
  a = load x[p + r, q + s : +14, 0 : +64]                     loops whose strides follow from each other are one,
  b = load panels[f, r, s, 0 : +64, 0 : +32]                  as s and the channels here; the innermost steps are
  c += dot(a, b)                                              written out
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.backend import CompileError
from autosched.backends.llvm.bodies.microkernel import Cell, MicroKernel
from autosched.backends.llvm.bodies.nested_loops import Level, merged, perfect_nest
from autosched.backends.llvm.bodies.operands import Panel
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import F32, I64, PTR, IRValue
from autosched.backends.llvm.ir.values import index, minus, plus, vector
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import Dot, For, Load
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first, around the loads of two operands and their dot."""

    loops: tuple[For, ...]
    a: Load
    b: Load
    dot: Dot

    @staticmethod
    def of(s: For) -> Nest | None:
        """The nest that a loop is; None if it is more."""
        loops, body = perfect_nest(s)
        match body:
            case (Load(guarded=False) as a, Load(guarded=False) as b, Dot() as dot):
                operands = (dot.a, dot.b) == (a.dst.name, b.dst.name)
                return Nest(loops, a, b, dot) if loops and operands else None
            case _:
                return None


@dataclass(frozen=True)
class NestPrinter:
    """Prints a nest; `stored`: where along an axis the outputs of a register tile begin, and how far they go."""

    code: Code
    nest: Nest
    rows: int
    columns: int
    stored: Mapping[str, tuple[Affine, int]]

    def product(self, before: dict[Cell, IRValue]) -> dict[Cell, IRValue]:
        """The register tile after all iterations.

        Raises:
            CompileError: columns of an operand are no neighbours.
        """
        nest, dot = self.nest, self.nest.dot
        row, column = dot.dst.axes
        a, b = self._operand(nest.a, row), self._operand(nest.b, column)
        if b.own_stride != 1:
            raise CompileError("columns of the right operand must be neighbours: pack it in panels")
        levels = self._levels()
        steps = math.prod(x.extent for x in levels)
        self.code.b.comment(f"{dot.dst.name} += {dot.a} . {dot.b}: {self.rows} x {self.columns}, {steps} steps")
        kernel = MicroKernel(self.code, a, b, self.rows, self.columns, dot.prefetch_b)
        return _Loops(self.code, kernel, dot.unroll).run(levels, a.base, b.base, before)

    def _levels(self) -> list[Level]:
        """All loops, the dot's own last, with those merged that continue each other in both operands."""
        extents = [(s.variable, s.extent) for s in self.nest.loops]
        found = [Level(n, self._moved(self.nest.a, v), self._moved(self.nest.b, v)) for v, n in extents]
        k = self.nest.dot.axis
        found.append(Level(self.nest.a.dst.extent(k), self._between(self.nest.a, k), self._between(self.nest.b, k)))
        return merged(found)

    def _operand(self, load: Load, own: str) -> Panel:
        """The operand at the first iteration of all loops; rows are moved back with the outputs at the edge."""
        code, place = self.code, self.code.place(load.buffer, load.slices)
        for s in self.nest.loops:
            code.variables[s.variable] = index(0)

        def start(d: Dimension) -> IRValue:
            begin = code.affine(d.slice.start)
            if d.axis != own or not d.slice.start.terms:
                # A panel of its own begins at 0, wherever its outputs are.
                return begin
            return plus(code.b, begin, code.scaled(self._moved_back(own), d.slice.step))

        base = code.address(code.base[load.buffer], code.offset(place, start), place.buffer.dtype)
        for s in self.nest.loops:
            del code.variables[s.variable]
        width, packed = load.dst.extent(own), place.buffer.role != "input"
        valid = width if packed or own not in self.stored else min(width, self.stored[own][1])
        return Panel(base, place.between(own), place.between(self.nest.dot.axis), place.buffer.dtype, valid, packed)

    def _moved_back(self, own: str) -> IRValue:
        """Distance by which the register tile is moved back, so that its outputs do not exceed the buffer."""
        if own not in self.stored:
            return index(0)
        begin, size = self.stored[own]
        extent = self.nest.dot.dst.extent(own)
        if begin.maximum(self.code.extents) + extent <= size:
            return index(0)
        return minus(self.code.b, self.code.start(begin, extent, size), self.code.affine(begin))

    def _moved(self, load: Load, variable: str) -> int:
        dimensions = self.code.place(load.buffer, load.slices).dimensions
        return sum(d.slice.start.step(variable) * d.stride for d in dimensions)

    def _between(self, load: Load, axis: str) -> int:
        return self.code.place(load.buffer, load.slices).between(axis)


@dataclass(frozen=True)
class _Loops:
    """Loops around a micro-kernel, of which the innermost `unroll` steps are written out."""

    code: Code
    kernel: MicroKernel
    unroll: int

    def run(
        self, levels: Sequence[Level], a_at: IRValue, b_at: IRValue, before: dict[Cell, IRValue]
    ) -> dict[Cell, IRValue]:
        """The tile after all iterations of these levels."""
        level, inner = levels[0], levels[1:]
        steps = math.prod(x.extent for x in inner)
        copies = min(level.extent, max(1, self.unroll // steps))
        trips, rest = divmod(level.extent, copies)
        part, left = Level(copies, level.a, level.b), Level(rest, level.a, level.b)
        straight = steps <= self.unroll
        if trips == 1:
            result = self._part((part, *inner), straight, a_at, b_at, before)
        else:
            a_at, b_at, result = self._loop((part, *inner), trips, straight, a_at, b_at, before)
            return self._part((left, *inner), True, a_at, b_at, result) if rest else result
        if rest:
            a_at, b_at = self._next(part, a_at, b_at)
            result = self._part((left, *inner), True, a_at, b_at, result)
        return result

    def _part(
        self, levels: Sequence[Level], straight: bool, a_at: IRValue, b_at: IRValue, before: dict[Cell, IRValue]
    ) -> dict[Cell, IRValue]:
        """The steps written out, or a single iteration of the outermost level with the loops in it."""
        if not straight:
            return self.run(levels[1:], a_at, b_at, before)
        current = dict(before)
        for at in itertools.product(*(range(x.extent) for x in levels)):
            a_offset = sum(n * x.a for n, x in zip(at, levels, strict=True))
            b_offset = sum(n * x.b for n, x in zip(at, levels, strict=True))
            self.kernel.step(current, a_at, b_at, a_offset, b_offset)
        return current

    def _loop(
        self,
        levels: Sequence[Level],
        trips: int,
        straight: bool,
        a_start: IRValue,
        b_start: IRValue,
        before: dict[Cell, IRValue],
    ) -> tuple[IRValue, IRValue, dict[Cell, IRValue]]:
        code, b = self.code, self.code.b
        head, body, after = b.block, b.append_basic_block("k"), b.append_basic_block("k.end")
        b.branch(body)
        b.position_at_end(body)
        left, a_at, b_at = b.phi(I64, "left"), b.phi(PTR, "a.at"), b.phi(PTR, "b.at")
        sums = {cell: b.phi(vector(F32, code.lanes)) for cell in before}
        starts = (left, index(trips)), (a_at, a_start), (b_at, b_start), *((sums[x], before[x]) for x in before)
        for node, value in starts:
            node.add_incoming(value, head)
        current = self._part(levels, straight, a_at, b_at, dict(sums))
        a_next, b_next = self._next(levels[0], a_at, b_at)
        left_next = minus(b, left, index(1))
        ends = (left, left_next), (a_at, a_next), (b_at, b_next), *((sums[x], current[x]) for x in sums)
        for node, value in ends:
            node.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed(">", left_next, index(0)), body, after)
        b.position_at_end(after)
        return a_next, b_next, current

    def _next(self, level: Level, a_at: IRValue, b_at: IRValue) -> tuple[IRValue, IRValue]:
        """The pointers after all iterations of a level."""
        a, b = self.kernel.a, self.kernel.b
        return (
            self.code.address(a_at, level.extent * level.a, a.dtype),
            self.code.address(b_at, level.extent * level.b, b.dtype),
        )
