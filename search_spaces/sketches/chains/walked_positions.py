"""Differences of positions in a walk, as integers.

    at_c: (c 64) float32 = c.0*64 : +64             at_c2: (c 64) int32 = c.0*64 : +64
    t: (m 64, c 64) float32 = sub(at_c, at_m)       at_m2: (m 64) int32 = m.0*64 : +64
                                                    difference: (m 64, c 64) int32 = sub(at_c2, at_m2)
                                                    t: (m 64, c 64) float32 = cast(difference)

They are the same along diagonals, of which a thread has several points: compilers see that of integers, and compute it
and what follows from it once; of floating-point numbers they do not. What is compared is left as it is: masks are at
few tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from search_spaces.programs.statements import For, Map, Position, Statement, produced, read, statements
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.workloads.expressions.operators import COMPARISONS
from search_spaces.workloads.names import Names

# Float32 holds all integers up to twice as many, and so what two of these add up to.
_LARGEST = 2**23


def integral_differences(program: TileProgram) -> TileProgram:
    """The program with these differences."""
    return replace(program, kernels=tuple(_Differences.of(k).in_kernel() for k in program.kernels))


@dataclass(frozen=True)
class _Differences:
    """Those of a kernel: its `positions` in float32 that integers can say, by name."""

    kernel: Kernel
    positions: Mapping[str, Position]
    names: Names

    @staticmethod
    def of(kernel: Kernel) -> _Differences:
        every, extents = [*statements(kernel.body)], loop_extents(kernel)
        positions = {
            s.dst.name: s
            for s in every
            if isinstance(s, Position) and s.dst.dtype == "float32" and s.dst.axes
            if s.piece.start.maximum(extents) + s.dst.elements * s.piece.step <= _LARGEST
        }
        return _Differences(kernel, positions, Names({t.name for s in every for t in produced(s)}))

    def in_kernel(self) -> Kernel:
        changed = tuple(self._in_loop(s) if isinstance(s, For) else s for s in self.kernel.body)
        if changed == self.kernel.body:
            return self.kernel
        left = {name for s in statements(changed) for name in read(s)}
        return replace(self.kernel, body=tuple(_without(changed, self.positions.keys() - left)))

    def _in_loop(self, loop: For) -> For:
        return replace(loop, body=tuple(new for s in loop.body for new in self._changed(s, loop)))

    def _changed(self, s: Statement, loop: For) -> Iterator[Statement]:
        match s:
            case Map(operator="add" | "sub", arguments=(str(a), str(b))) if self._is_difference(s, loop):
                integers = [self._integral(self.positions[x]) for x in (a, b)]
                yield from integers
                dst = replace(s.dst, name=self.names.fresh("difference"), dtype="int32")
                yield Map(dst, s.operator, tuple(x.dst.name for x in integers))
                yield replace(s, operator="cast", arguments=(dst.name,))
            case _:
                yield s

    def _is_difference(self, s: Map, loop: For) -> bool:
        """Whether it is one along two axes, and computed with."""
        known = [self.positions[x].dst.axes for x in s.arguments if isinstance(x, str) and x in self.positions]
        if len(known) < 2 or known[0] == known[1]:
            return False
        readers = (r for r in loop.body if s.dst.name in read(r))
        return not any(isinstance(r, Map) and r.operator in COMPARISONS for r in readers)

    def _integral(self, s: Position) -> Position:
        return replace(s, dst=replace(s.dst, name=self.names.fresh(s.dst.name), dtype="int32"))


def _without(body: tuple[Statement, ...], names: set[str]) -> Iterator[Statement]:
    """The statements without these positions, which nothing reads."""
    for s in body:
        if isinstance(s, For):
            yield replace(s, body=tuple(_without(s.body, names)))
        elif not isinstance(s, Position) or s.dst.name not in names:
            yield s
