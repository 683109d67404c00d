"""One pass over the columns of a row: all its statements, a vector of columns at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial

from autosched.backends.backend import CompileError
from autosched.backends.llvm.bodies.gathers import Lookup, looked_up, strided, strided_offsets
from autosched.backends.llvm.bodies.guards import GuardedLoad
from autosched.backends.llvm.bodies.passes import Pass, used
from autosched.backends.llvm.bodies.row import Row
from autosched.backends.llvm.bodies.scans import RunningScan
from autosched.backends.llvm.ir.integers import constant, identity, is_integral, to_float
from autosched.backends.llvm.ir.operators import any_nan, folded, found_nan, mapped
from autosched.backends.llvm.ir.text import F32, IRValue
from autosched.backends.llvm.ir.values import broadcast, float_constant, index, plus, shuffle, vector
from search_spaces.programs.statements import Fill, Gather, Load, Map, Position, Reduce, Scan, Store
from search_spaces.workloads.dtypes import DTYPES

_FORGET_NAN = ("max", "min")


@dataclass
class PassEmission:
    """One pass while it is printed: row values are read once before it, sums are joined once after it."""

    row: Row
    walk: Pass
    reductions: list[Reduce]
    vectors: int
    prefetched: frozenset[str]
    partial: dict[tuple[str, int], IRValue] = field(default_factory=dict)
    nans: dict[str, IRValue] = field(default_factory=dict)
    row_values: dict[str, IRValue] = field(default_factory=dict)
    bases: dict[int, tuple[IRValue, int]] = field(default_factory=dict)
    lookups: dict[int, Lookup] = field(default_factory=dict)
    guards: dict[int, GuardedLoad] = field(default_factory=dict)
    scans: dict[int, RunningScan] = field(default_factory=dict)

    @property
    def backwards(self) -> bool:
        """True if the columns are processed from the last one on, for reverse scans."""
        found = {s.reverse for s in self.walk.statements if isinstance(s, Scan)}
        if len(found) > 1:
            raise CompileError("scans go both ways along the columns of one pass")
        return found == {True}

    def prepare(self) -> None:
        row, code = self.row, self.row.code
        for name in sorted(self.walk.kept | set(self.walk.recalled)):
            row.scratch_row(name)
        for number, s in enumerate(self.walk.statements):
            if isinstance(s, Load) and s.guarded:
                self.guards[number] = row.guarded(s)
            elif isinstance(s, Load | Store):
                self.bases[number] = row.address(s.buffer, s.slices)
            elif isinstance(s, Gather):
                self.lookups[number] = row.lookup(s, code.lanes)
            elif isinstance(s, Scan):
                self.scans[number] = RunningScan.of(code, s, row.integral)
            for name in used(s):
                if row.column_axis not in row.tiles[name].axes and name not in self.row_values:
                    self.row_values[name] = broadcast(code.b, row.value(name), code.lanes)
        for r in self.reductions:
            for number in range(self.vectors):
                slot = code.b.stack_slot(vector(row.type_of(r.dst.name), code.lanes), f"{r.dst.name}.{number}")
                self.partial[r.dst.name, number] = slot
                code.b.store(identity(r.operator, r.dst.name in row.integral, code.lanes), slot)
            if r.operator in _FORGET_NAN and r.dst.name not in row.integral:
                self.nans[r.dst.name] = code.b.stack_slot(vector(F32, code.lanes), f"{r.dst.name}.nan")
                code.b.store(float_constant(0.0, code.lanes), self.nans[r.dst.name])

    def peeled(self, end: int, group: int) -> list[tuple[IRValue, IRValue, bool]]:
        """The columns before an end in at most three parts of whole groups; True for the middle one without guards."""
        known = [g.columns.existing for g in self.guards.values() if g.columns is not None]
        least = max((k[0] if k else end for k in known), default=0)
        most = min((k[1] if k else 0 for k in known), default=end)
        middle = -(-least // group) * group, min(most, end) // group * group
        ends = [0, *middle, end] if middle[0] < middle[1] else [0, end]
        return [(index(a), index(b), (a, b) == middle) for a, b in itertools.pairwise(ends) if a < b]

    def vector(self, number: int, at: IRValue, mask: IRValue | None, exist: bool) -> None:
        """All statements of the pass for the vector of columns that starts at `at`; `exist`: also of guarded loads."""
        row, code, lanes = self.row, self.row.code, self.row.code.lanes
        values: dict[str, IRValue] = {}
        for name in self.walk.recalled:
            dtype, whole = row.kept_as(name), name in row.integral
            values[name] = code.load(code.address(row.kept[name], at, dtype), dtype, lanes, integral=whole)
        for place, s in enumerate(self.walk.statements):
            match s:
                case Load(guarded=True):
                    values[s.dst.name] = self.guards[place].vector(code, at, mask, exist)
                case Load():
                    values[s.dst.name] = self._load(s, *self.bases[place], at, mask)
                case Gather():
                    values[s.dst.name] = looked_up(code, self.lookups[place], at, values, mask)
                case Position():
                    first = plus(code.b, row.start(s.piece), at)
                    values[s.dst.name] = code.position(first, lanes, s.dst.name in row.integral)
                case Fill():
                    values[s.dst.name] = constant(s.value, s.dst.name in row.integral, lanes)
                case Map():
                    values[s.dst.name] = mapped(code.b, s, partial(self._value, values), lanes)
                case Reduce():
                    self._accumulate(s, number, values[s.src], mask)
                case Scan():
                    values |= self.scans[place].vector([self._value(values, x) for x in s.srcs], mask)
                case Store():
                    self._store(s, *self.bases[place], at, self._value(values, s.src), mask)
        for name in sorted(self.walk.kept):
            dtype = row.kept_as(name)
            code.store(values[name], code.address(row.kept[name], at, dtype), dtype, lanes)

    def _load(self, s: Load, base: IRValue, stride: int, at: IRValue, mask: IRValue | None) -> IRValue:
        code = self.row.code
        dtype = code.buffers[s.buffer].dtype
        value = strided(code, base, stride, at, dtype, mask, s.dst.name in self.row.integral)
        if stride == 1 and s.buffer in self.prefetched:
            ahead = self.row.kernel.launch.prefetch_bytes // DTYPES[dtype].bytes
            code.prefetch(code.address(code.address(base, at, dtype), ahead, dtype))
        return value

    def _value(self, values: dict[str, IRValue], tile: str) -> IRValue:
        return values[tile] if tile in values else self.row_values[tile]

    def _accumulate(self, s: Reduce, number: int, value: IRValue, mask: IRValue | None) -> None:
        b, lanes = self.row.code.b, self.row.code.lanes
        if is_integral(value) and s.dst.name not in self.row.integral:
            value = to_float(b, value, lanes)
        slot = self.partial[s.dst.name, number]
        before = b.load(slot, vector(self.row.type_of(s.dst.name), lanes))
        if mask is not None:
            value = b.select(mask, value, identity(s.operator, s.dst.name in self.row.integral, lanes))
        b.store(folded(b, s.operator, value, before, lanes), slot)
        if s.dst.name in self.nans:
            seen = self.nans[s.dst.name]
            b.store(found_nan(b, value, b.load(seen, vector(F32, lanes))), seen)

    def _store(self, s: Store, base: IRValue, stride: int, at: IRValue, value: IRValue, mask: IRValue | None) -> None:
        row, code = self.row, self.row.code
        buffer = code.buffers[s.buffer]
        if stride != 1:
            code.store_each(value, base, strided_offsets(code.b, stride, at, code.lanes), buffer.dtype, mask)
            return
        streaming = s.streaming and mask is None and row.aligned(s)
        code.store(value, code.address(base, at, buffer.dtype), buffer.dtype, code.lanes, mask, streaming)

    def finish(self) -> None:
        """Fold the partial vectors of every reduction to one value."""
        row, code, lanes = self.row, self.row.code, self.row.code.lanes
        b = code.b
        for r in self.reductions:
            element = row.type_of(r.dst.name)
            parts = [b.load(self.partial[r.dst.name, n], vector(element, lanes)) for n in range(self.vectors)]
            while len(parts) > 1:
                half = len(parts) // 2
                joined = [folded(b, r.operator, x, y, lanes) for x, y in zip(parts, parts[half:], strict=False)]
                parts = joined + parts[2 * half :]
            value, width = parts[0], lanes
            while width > 1:
                width //= 2
                low, high = shuffle(b, value, value, range(width)), shuffle(b, value, value, range(width, 2 * width))
                value = folded(b, r.operator, low, high, width)
            value = value if value.type == element else b.extract_element(value, 0, element)
            if r.dst.name in self.nans:
                seen = any_nan(b, b.load(self.nans[r.dst.name], vector(F32, lanes)), lanes)
                value = b.select(seen, float_constant(float("nan"), 1), value)
            row.set(r.dst.name, value)
