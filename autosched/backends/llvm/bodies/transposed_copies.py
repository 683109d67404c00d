"""Copies whose neighbours are along one axis in the source and along another one in the target.

    for r, s: panels[f.0, r, s, 0 : +64, 0 : +32] = w[f.0*32 : +32, r, s, 0 : +64]

Square blocks of vectors are transposed in registers. Row by row, every element would be loaded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends.llvm.bodies.nested_loops import Level, merged, perfect_nest
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import IRValue
from autosched.backends.llvm.ir.values import index, plus, smaller, transpose_4x4
from search_spaces.programs.addressing import Address
from search_spaces.programs.statements import For, Load, Statement, Store
from search_spaces.programs.tile_program import Kernel


@dataclass(frozen=True)
class TransposedCopy:
    """Prints such a copy: `rows` are neighbours in the source, `columns` in the target."""

    code: Code
    loops: tuple[For, ...]
    load: Load
    store: Store
    source: Address
    target: Address
    columns: str
    levels: list[Level]

    def body(self, body: Sequence[Statement]) -> None:
        code = self.code
        for s in self.loops:
            code.variables[s.variable] = index(0)
        source, target = (
            code.address(code.base[p.buffer.name], code.offset(p, lambda d: code.affine(d.slice.start)), p.buffer.dtype)
            for p in (self.source, self.target)
        )
        along = next(d for d in self.source.dimensions if d.axis == self.columns)
        present = code.remaining(along.slice.start, self.width, along.size)
        for s in self.loops:
            del code.variables[s.variable]
        self._loop(self.levels, source, target, present)

    @property
    def width(self) -> int:
        return self.load.dst.extent(self.columns)

    def _loop(self, levels: Sequence[Level], source: IRValue, target: IRValue, present: IRValue) -> None:
        code, (level, *inner) = self.code, levels
        if not inner:
            with code.loop(index(level.extent), "block", code.lanes) as at:
                # The last block is moved back to end with the rows.
                at = smaller(code.b, at, index(level.extent - code.lanes)) if level.extent % code.lanes else at
                self._blocks(self._moved(source, at, level.a, True), self._moved(target, at, level.b, False), present)
            return
        with code.loop(index(level.extent), "copied") as at:
            self._loop(inner, self._moved(source, at, level.a, True), self._moved(target, at, level.b, False), present)

    def _moved(self, address: IRValue, at: IRValue, stride: int, is_source: bool) -> IRValue:
        place = self.source if is_source else self.target
        return self.code.address(address, self.code.scaled(at, stride), place.buffer.dtype)

    def _blocks(self, source: IRValue, target: IRValue, present: IRValue) -> None:
        """All blocks of columns at so many rows as a vector has lanes."""
        code, b, lanes = self.code, self.code.b, self.code.lanes
        apart, below = self.source.between(self.columns), self.levels[-1].b
        for group in range(0, self.width, lanes):
            vectors = [self._vector(source, index(group + lane), apart, present) for lane in range(lanes)]
            for row, values in enumerate(transpose_4x4(b, vectors, lanes)):
                address = code.address(target, row * below + group, self.target.buffer.dtype)
                code.store(values, address, self.target.buffer.dtype, lanes)

    def _vector(self, source: IRValue, column: IRValue, apart: int, present: IRValue) -> IRValue:
        """A column's elements along the rows; the fill beyond the last column."""
        code, b, dtype = self.code, self.code.b, self.source.buffer.dtype
        if present.number is not None and present.number >= self.width:
            return code.load(code.address(source, code.scaled(column, apart), dtype), dtype, code.lanes)
        exists = b.icmp_signed("<", column, present)
        near = smaller(b, column, plus(b, present, index(-1)))
        value = code.load(code.address(source, code.scaled(near, apart), dtype), dtype, code.lanes)
        return b.select(exists, value, code.zeros(code.lanes))


def transposed_copy(code: Code, kernel: Kernel) -> TransposedCopy | None:
    """The printer for a kernel that is such a copy, of whole vectors, with nothing outside but its last columns."""
    loops, within = perfect_nest(kernel.body[0]) if len(kernel.body) == 1 else ((), kernel.body)
    match within:
        case (Load() as load, Store() as store) if kernel.auxiliary and len(load.dst.axes) == 2 == len(store.axes):
            pass
        case _:
            return None
    source, target = code.place(load.buffer, load.slices), code.place(store.buffer, store.slices)
    columns = store.axes[-1]
    rows = next(x for x in load.dst.axes if x != columns)
    strides = source.between(rows), target.between(columns)
    moved = [
        Level(
            s.extent, *(sum(d.slice.start.step(s.variable) * d.stride for d in p.dimensions) for p in (source, target))
        )
        for s in loops
    ]
    levels = merged([*moved, Level(load.dst.extent(rows), source.between(rows), target.between(rows))])
    # Columns count up from the tensor's first, and may go on beyond its last.
    along = next(d for d in source.dimensions if d.axis == columns)
    clipped = along.slice.step == 1 and not along.slice.flat and not along.precedes
    outside = [d for d in source.dimensions if load.guarded and d.may_leave and d.axis != columns]
    fits = levels[-1].extent >= code.lanes and load.dst.extent(columns) % code.lanes == 0 and code.lanes >= 4
    if strides != (1, 1) or source.between(columns) == 1 or not (fits and clipped) or outside or load.fill:
        return None
    return TransposedCopy(code, loops, load, store, source, target, columns, levels)
