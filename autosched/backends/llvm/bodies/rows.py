"""Prints the body of a pointwise or row-reduction kernel: one row after the other, each in vectorised passes.

Values per row (a maximum, a sum) live in stack slots, which LLVM's SROA pass turns into registers; tiles with columns
exist one vector at a time, or in scratch memory when a later pass needs what is dear to compute again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from autosched.backends.backend import CompileError
from autosched.backends.llvm.bodies.gathers import Lookup, looked_up, looked_up_once, lookup, strided, strided_offsets
from autosched.backends.llvm.bodies.guards import GuardedLoad
from autosched.backends.llvm.bodies.passes import Pass, carried_tiles, pieces, used
from autosched.backends.llvm.bodies.row_axes import RowAxes, row_axes
from autosched.backends.llvm.bodies.scans import RunningScan
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.integers import constant, identity, is_integral, tiles_of_integers, to_float
from autosched.backends.llvm.ir.operators import any_nan, folded, found_nan, mapped
from autosched.backends.llvm.ir.text import F32, I64, IRValue
from autosched.backends.llvm.ir.values import (
    broadcast,
    first_lanes,
    float_constant,
    index,
    minus,
    plus,
    shuffle,
    vector,
)
from search_spaces.programs.tile_program import (
    Fill,
    For,
    Gather,
    If,
    Kernel,
    Load,
    Map,
    Position,
    Reduce,
    Scan,
    Slice,
    Statement,
    Store,
    Tile,
    produced,
    statements,
)
from search_spaces.workloads.dtypes import DTYPES

_FORGET_NAN = ("max", "min")


@dataclass
class RowPrinter:
    """Prints the statements of one program."""

    code: Code
    kernel: Kernel
    axes: RowAxes
    tiles: dict[str, Tile]
    slots: dict[str, IRValue] = field(default_factory=dict)
    kept: dict[str, IRValue] = field(default_factory=dict)
    row_number: IRValue | None = None
    brought: set[str] = field(default_factory=set)
    carried: frozenset[str] = frozenset()
    integral: frozenset[str] = frozenset()

    @property
    def row(self) -> str:
        return self.axes.row

    @property
    def column(self) -> str:
        return self.axes.column

    def body(self, body: Sequence[Statement]) -> None:
        """The whole body for every row of the program that exists."""
        if not self.row:
            self.row_body(body)
            return
        code = self.code
        rows, name = self._present_rows(), f"{self.row}.row"
        with code.loop(rows, name) as number:
            self.row_number = number
            self.row_body(body)

    def row_body(self, body: Sequence[Statement]) -> None:
        for piece in pieces(body, self.column, self.tiles, self.carried):
            if isinstance(piece, Pass):
                self._pass(piece)
            else:
                self._single(piece)

    def _present_rows(self) -> IRValue:
        """How many rows of this program's tile are inside the buffers."""
        for s in _stores_first(statements(self.kernel.body)):
            for axis, piece, size in self._pieces(s.buffer, s.slices):
                if axis == self.row and piece.extent is not None:
                    return self.code.remaining(piece.start, piece.extent, size)
        raise CompileError(f"kernel {self.kernel.name}: nothing says how much there is along {self.row}")

    def _pieces(self, buffer: str, slices: Sequence[Slice]) -> list[tuple[str, Slice, int]]:
        """For every buffer dimension: the axis that it runs along ("" for none), its slice, the size."""
        shape = self.code.buffers[buffer].shape
        return [(self._axis(p), p, n) for p, n in zip(slices, shape, strict=True)]

    def _axis(self, piece: Slice) -> str:
        return "" if piece.extent is None else self.axes.of[piece]

    def start(self, piece: Slice) -> IRValue:
        """Where a slice begins in the row that is printed."""
        at = self.code.affine(piece.start)
        if self.row and self._axis(piece) == self.row:
            assert self.row_number is not None
            return plus(self.code.b, at, self.code.scaled(self.row_number, piece.step))
        return at

    def guarded(self, s: Load) -> GuardedLoad:
        """A guarded load in the row that is printed."""
        whole = s.dst.name in self.integral
        return GuardedLoad.of(self.code, s, lambda p: self._axis(p) == self.column, self.start, whole)

    def lookup(self, s: Gather, lanes: int) -> Lookup:
        columns = {t: self.row_value(t) for t in used(s) if self.column not in self.tiles[t].axes}
        whole = s.dst.name in self.integral
        return lookup(self.code, s, lanes, lambda p: self._axis(p) == self.column, self.start, columns, whole)

    def type_of(self, tile: str) -> str:
        """What one element of a tile is held as."""
        return I64 if tile in self.integral else F32

    # -- values per row

    def _single(self, s: Statement) -> None:
        code = self.code
        match s:
            case For():
                with code.turns(s) as value:
                    code.variables[s.variable] = value
                    self.row_body(s.body)
                del code.variables[s.variable]
            case If():
                raise CompileError("a row kernel on a CPU cannot branch")
            case Fill():
                self._set(s.dst.name, constant(s.value, s.dst.name in self.integral, 1))
            case Load(guarded=True):
                self._set(s.dst.name, self.guarded(s).row_value(code))
            case Load():
                address, _ = self.address(s.buffer, s.slices)
                whole = s.dst.name in self.integral
                self._set(s.dst.name, code.load(address, code.buffers[s.buffer].dtype, 1, integral=whole))
            case Gather():
                self._set(s.dst.name, looked_up_once(code, self.lookup(s, 1)))
            case Position():
                self._set(s.dst.name, code.position(self.start(s.piece), 1, s.dst.name in self.integral))
            case Map():
                self._set(s.dst.name, mapped(code.b, s, self.row_value, 1))
            case Store():
                address, _ = self.address(s.buffer, s.slices)
                code.store(self.row_value(s.src), address, code.buffers[s.buffer].dtype, 1)
            case _:
                raise CompileError(f"a row kernel on a CPU cannot say {type(s).__name__}")

    def _set(self, name: str, value: IRValue) -> None:
        if name not in self.slots:
            self.slots[name] = self.code.b.stack_slot(self.type_of(name), name)
        self.code.b.store(value, self.slots[name])

    def row_value(self, tile: str) -> IRValue:
        return self.code.b.load(self.slots[tile], self.type_of(tile))

    def address(self, buffer: str, slices: Sequence[Slice]) -> tuple[IRValue, int]:
        """The address of this row's first column, and how far apart its columns are."""
        code, offset, between = self.code, index(0), 0
        for piece, stride in zip(slices, code.buffers[buffer].strides, strict=True):
            if self._axis(piece) == self.column:
                between = stride * piece.step
            offset = plus(code.b, offset, code.scaled(self.start(piece), stride))
        return code.address(code.base[buffer], offset, code.buffers[buffer].dtype), between

    # -- passes over the columns

    def _pass(self, walk: Pass) -> None:
        """A main loop over whole groups of vectors, then a masked loop over what is left."""
        code, lanes = self.code, self.code.lanes
        count, vectors = self._count(walk), self.kernel.launch.vectors
        group = lanes * vectors
        names = ", ".join(t.name for s in walk.statements for t in produced(s))
        code.b.comment(f"pass over {self.column}: {names}")
        emission = _PassEmission(self, walk, [s for s in walk.statements if isinstance(s, Reduce)], vectors)
        emission.prepare()
        if count.number is not None:
            left = count.number % group
            whole = index(count.number - left)
            parts = [(index(0), whole, group, False)] if whole.number else []
            parts += [(whole, count, lanes, left % lanes != 0)] if left else []
            for part in reversed(parts) if emission.backwards else parts:
                self._walk(emission, *part)
        else:
            rest = code.b.srem(count, index(group))
            whole = minus(code.b, count, rest)
            named = [("whole", whole, (index(0), whole, group, False)), ("rest", rest, (whole, count, lanes, True))]
            for name, some, part in reversed(named) if emission.backwards else named:
                with code.when(code.b.icmp_signed(">", some, index(0)), name):
                    self._walk(emission, *part)
        emission.finish()

    def _walk(self, emission: _PassEmission, first: IRValue, end: IRValue, step: int, masked: bool) -> None:
        code, b = self.code, self.code.b
        columns, vectors = minus(b, end, first), range(step // code.lanes)
        with code.loop(columns, "c", step) as position:
            if emission.backwards:
                steps = b.sdiv(plus(b, columns, index(step - 1)), index(step))
                position = minus(b, code.scaled(plus(b, steps, index(-1)), step), position)
            at = plus(b, position, first)
            for number in reversed(vectors) if emission.backwards else vectors:
                here = plus(b, at, index(number * code.lanes))
                mask = first_lanes(b, minus(b, end, here), code.lanes) if masked else None
                emission.vector(number, here, mask)

    def _count(self, walk: Pass) -> IRValue:
        """How many columns of the tile exist."""
        extent = max(self.tiles[t].extent(self.column) for s in walk.statements for t in self._column_tiles(s))
        for s in walk.statements:
            if isinstance(s, Reduce) and s.bound is not None:
                return self.code.remaining(s.bound.start, extent, s.bound.size)
        for s in _stores_first(walk.statements):
            for axis, piece, size in self._pieces(s.buffer, s.slices):
                if axis == self.column:
                    return self.code.remaining(piece.start, extent, size)
        return index(extent)

    def _column_tiles(self, s: Statement) -> list[str]:
        names = [t.name for t in produced(s)] + list(used(s))
        return [n for n in names if self.column in self.tiles[n].axes]

    def aligned(self, s: Store) -> bool:
        """Whether every vector of this store starts at a multiple of its size: what a streaming store needs."""
        buffer, lanes = self.code.buffers[s.buffer], self.code.lanes
        if buffer.dtype != "float32":
            return False
        for (axis, piece, _), stride in zip(self._pieces(s.buffer, s.slices), buffer.strides, strict=True):
            if axis == self.column and stride != 1:
                return False
            moves = [c * stride for _, c in piece.start.terms] + [piece.start.offset * stride]
            if any(m % lanes for m in moves) or (axis == self.row and axis and stride % lanes):
                return False
        return True

    def scratch_row(self, name: str) -> IRValue:
        """Scratch memory for one row of a tile."""
        if name not in self.kept:
            elements = self.tiles[name].extent(self.column)
            # An integer takes the room of two float32.
            self.kept[name] = self.code.take_scratch(2 * elements if name in self.integral else elements)
        return self.kept[name]

    def kept_as(self, name: str) -> str:
        """The element type of a tile in scratch memory."""
        return "int64" if name in self.integral else "float32"


@dataclass
class _PassEmission:
    """One pass while it is printed: row values are read once before it, sums are joined once after it."""

    printer: RowPrinter
    walk: Pass
    reductions: list[Reduce]
    vectors: int
    partial: dict[tuple[str, int], IRValue] = field(default_factory=dict)
    nans: dict[str, IRValue] = field(default_factory=dict)
    row_values: dict[str, IRValue] = field(default_factory=dict)
    bases: dict[int, tuple[IRValue, int]] = field(default_factory=dict)
    lookups: dict[int, Lookup] = field(default_factory=dict)
    guards: dict[int, GuardedLoad] = field(default_factory=dict)
    prefetched: set[str] = field(default_factory=set)
    scans: dict[int, RunningScan] = field(default_factory=dict)

    @property
    def backwards(self) -> bool:
        """Whether the columns are walked from the last one on, as scans want it."""
        found = {s.reverse for s in self.walk.statements if isinstance(s, Scan)}
        if len(found) > 1:
            raise CompileError("scans go both ways along the columns of one pass")
        return found == {True}

    def prepare(self) -> None:
        p, code = self.printer, self.printer.code
        if p.kernel.launch.prefetch_bytes:
            # The first pass brings a row into the caches, the later ones find it there.
            loaded = {s.buffer for s in self.walk.statements if isinstance(s, Load)}
            self.prefetched = loaded - p.brought
            p.brought |= loaded
        for name in sorted(self.walk.kept | set(self.walk.recalled)):
            p.scratch_row(name)
        for number, s in enumerate(self.walk.statements):
            if isinstance(s, Load) and s.guarded:
                self.guards[number] = p.guarded(s)
            elif isinstance(s, Load | Store):
                self.bases[number] = p.address(s.buffer, s.slices)
            elif isinstance(s, Gather):
                self.lookups[number] = p.lookup(s, code.lanes)
            elif isinstance(s, Scan):
                self.scans[number] = RunningScan.of(code, s, p.integral)
            for name in used(s):
                if p.column not in p.tiles[name].axes and name not in self.row_values:
                    self.row_values[name] = broadcast(code.b, p.row_value(name), code.lanes)
        for r in self.reductions:
            for number in range(self.vectors):
                slot = code.b.stack_slot(vector(p.type_of(r.dst.name), code.lanes), f"{r.dst.name}.{number}")
                self.partial[r.dst.name, number] = slot
                code.b.store(identity(r.operator, r.dst.name in p.integral, code.lanes), slot)
            if r.operator in _FORGET_NAN and r.dst.name not in p.integral:
                self.nans[r.dst.name] = code.b.stack_slot(vector(F32, code.lanes), f"{r.dst.name}.nan")
                code.b.store(float_constant(0.0, code.lanes), self.nans[r.dst.name])

    def vector(self, number: int, at: IRValue, mask: IRValue | None) -> None:
        """All statements of the pass for the vector of columns that starts at `at`."""
        p, code, lanes = self.printer, self.printer.code, self.printer.code.lanes
        values: dict[str, IRValue] = {}
        for name in self.walk.recalled:
            dtype, whole = p.kept_as(name), name in p.integral
            values[name] = code.load(code.address(p.kept[name], at, dtype), dtype, lanes, integral=whole)
        for place, s in enumerate(self.walk.statements):
            match s:
                case Load(guarded=True):
                    values[s.dst.name] = self.guards[place].vector(code, at, mask)
                case Load():
                    values[s.dst.name] = self._load(s, *self.bases[place], at, mask)
                case Gather():
                    values[s.dst.name] = looked_up(code, self.lookups[place], at, values, mask)
                case Position():
                    first = plus(code.b, p.start(s.piece), at)
                    values[s.dst.name] = code.position(first, lanes, s.dst.name in p.integral)
                case Fill():
                    values[s.dst.name] = constant(s.value, s.dst.name in p.integral, lanes)
                case Map():
                    values[s.dst.name] = mapped(code.b, s, partial(self._value, values), lanes)
                case Reduce():
                    self._accumulate(s, number, values[s.src], mask)
                case Scan():
                    values |= self.scans[place].vector([self._value(values, x) for x in s.srcs], mask)
                case Store():
                    self._store(s, *self.bases[place], at, self._value(values, s.src), mask)
        for name in sorted(self.walk.kept):
            dtype = p.kept_as(name)
            code.store(values[name], code.address(p.kept[name], at, dtype), dtype, lanes)

    def _load(self, s: Load, base: IRValue, stride: int, at: IRValue, mask: IRValue | None) -> IRValue:
        code = self.printer.code
        dtype = code.buffers[s.buffer].dtype
        value = strided(code, base, stride, at, dtype, mask, s.dst.name in self.printer.integral)
        if stride == 1 and s.buffer in self.prefetched:
            ahead = self.printer.kernel.launch.prefetch_bytes // DTYPES[dtype].bytes
            code.prefetch(code.address(code.address(base, at, dtype), ahead, dtype))
        return value

    def _value(self, values: dict[str, IRValue], tile: str) -> IRValue:
        return values[tile] if tile in values else self.row_values[tile]

    def _accumulate(self, s: Reduce, number: int, value: IRValue, mask: IRValue | None) -> None:
        b, lanes = self.printer.code.b, self.printer.code.lanes
        if is_integral(value) and s.dst.name not in self.printer.integral:
            value = to_float(b, value, lanes)
        slot = self.partial[s.dst.name, number]
        before = b.load(slot, vector(self.printer.type_of(s.dst.name), lanes))
        if mask is not None:
            value = b.select(mask, value, identity(s.operator, s.dst.name in self.printer.integral, lanes))
        b.store(folded(b, s.operator, value, before, lanes), slot)
        if s.dst.name in self.nans:
            seen = self.nans[s.dst.name]
            b.store(found_nan(b, value, b.load(seen, vector(F32, lanes))), seen)

    def _store(self, s: Store, base: IRValue, stride: int, at: IRValue, value: IRValue, mask: IRValue | None) -> None:
        p, code = self.printer, self.printer.code
        buffer = code.buffers[s.buffer]
        if stride != 1:
            code.store_each(value, base, strided_offsets(code.b, stride, at, code.lanes), buffer.dtype, mask)
            return
        streaming = s.streaming and mask is None and p.aligned(s)
        code.store(value, code.address(base, at, buffer.dtype), buffer.dtype, code.lanes, mask, streaming)

    def finish(self) -> None:
        """Fold the partial vectors of every reduction to one value."""
        p, code, lanes = self.printer, self.printer.code, self.printer.code.lanes
        b = code.b
        for r in self.reductions:
            element = p.type_of(r.dst.name)
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
            p._set(r.dst.name, value)


def row_printer(code: Code, kernel: Kernel) -> RowPrinter:
    """The printer for a kernel without a dot.

    Raises:
        CompileError: its tiles have more than two axes.
    """
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    axes = row_axes(kernel)
    carried = carried_tiles(kernel.body, axes.column)
    return RowPrinter(code, kernel, axes, tiles, carried=carried, integral=tiles_of_integers(kernel))


def _stores_first(body: Iterable[Statement]) -> list[Load | Store]:
    """What says how much of an axis there is: an output has just its extent, an input may have more.

    One that is read from the middle on, backwards or outside does not say it.
    """
    telling = (s for s in body if isinstance(s, Load | Store) and not (isinstance(s, Load) and not _tells(s)))
    return sorted(telling, key=lambda s: isinstance(s, Load))


def _tells(s: Load) -> bool:
    return not s.guarded and all(piece.step == 1 and piece.start.offset >= 0 for piece in s.slices)
