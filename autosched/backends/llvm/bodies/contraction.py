"""Prints the body of a contraction kernel: operands, loops, and register tiles that live in vector registers.

A register tile (m rows, n columns) is one SSA value per row and vector of columns. Everything else that such a kernel
computes (bias, activation, residual …) is done on these values, so an epilogue costs no traffic of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from autosched.backends.backend import CompileError
from autosched.backends.llvm.bodies.gathers import looked_up, looked_up_once, lookup, strided_offsets
from autosched.backends.llvm.bodies.microkernel import Cell, MicroKernel, vectors_of
from autosched.backends.llvm.bodies.nests import Nest, NestPrinter
from autosched.backends.llvm.bodies.operands import OperandTile, Panel, operand, panel
from autosched.backends.llvm.bodies.row_blocks import LEAST, Place, RowBlocks
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.integers import constant, first_element, tiles_of_integers
from autosched.backends.llvm.ir.operators import mapped
from autosched.backends.llvm.ir.text import IRValue
from autosched.backends.llvm.ir.values import broadcast, condition, first_lanes, index, larger, minus, plus
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Gather,
    If,
    Let,
    Load,
    Map,
    Position,
    Prefetch,
    Statement,
    Store,
    View,
    statements,
)
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class RegisterTile:
    """A tile whose elements are SSA values, one vector of the column axis each."""

    tile: Tile
    values: dict[Cell, IRValue]


@dataclass
class ContractionPrinter:
    """Prints the statements of one program of a contraction kernel; `stored`: where along an axis the outputs of a
    register tile begin, and how far they go; `in_panels`: its columns are a panel that goes beyond the last column, and
    is not moved back to end with it; `is_nest`: its dots are within loops of their own."""

    code: Code
    dot: Dot
    rows: int
    columns: int
    stored: Mapping[str, tuple[Affine, int]]
    integral: frozenset[str]
    in_panels: bool = False
    is_nest: bool = False
    operands: dict[str, OperandTile] = field(default_factory=dict)
    panels: dict[str, Panel] = field(default_factory=dict)
    tiles: dict[str, RegisterTile] = field(default_factory=dict)

    def body(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, s: Statement) -> None:
        match s:
            case For() if nest := Nest.of(s):
                printer = NestPrinter(self.code, nest, self.rows, self.columns, self.stored)
                tile = nest.dot.dst
                self.tiles[tile.name] = RegisterTile(tile, printer.product(self.tiles[tile.name].values))
            case For():
                with self.code.turns(s):
                    self.body(s.body)
            case If():
                self._if(s)
            case Let():
                self.code.bind(s, first_element(self.code.b, self._operand(0, 0, s.src)))
            case Load(dst=Tile(axes=()), guarded=True):
                self._gather(Gather(s.dst, s.buffer, s.slices, s.fill))
            case Load() if s.guarded or any(p.step != 1 for p in s.slices):
                raise CompileError(f"load of {s.buffer}: a product on a CPU reads no fill, and skips no element")
            case Load() if self.dot.axis in s.dst.axes:
                self.operands[s.dst.name] = operand(self.code, s, self.dot.axis)
            case Load():
                self._load(s)
            case View():
                self._view(s)
            case Fill():
                zero = constant(s.value, s.dst.name in self.integral, self.code.lanes)
                self.tiles[s.dst.name] = RegisterTile(s.dst, dict.fromkeys(self._cells(s.dst), zero))
            case Dot():
                self._dot(s)
            case Map():
                self._map(s)
            case Position():
                self._position(s)
            case Gather():
                self._gather(s)
            case Store():
                self._store(s)
            case Prefetch():
                cells, _ = self._at(s.buffer, s.slices, s.tile)
                for _, address, left, _ in cells:
                    if left > 0:
                        self.code.prefetch(address, write=True)
            case _:
                raise CompileError(f"a contraction on a CPU cannot say {type(s).__name__}")

    def _if(self, s: If) -> None:
        """Both branches, and a phi for every element of a tile that either of them assigns."""
        b, variable = self.code.b, self.code.variables[s.variable]
        if variable.number is not None:
            self.body(s.then if variable.number == s.value else s.otherwise)
            return
        condition = b.icmp_signed("==", variable, index(s.value))
        then, otherwise, after = (b.append_basic_block(f"{s.variable}.{n}") for n in ("is", "is_not", "either"))
        b.cbranch(condition, then, otherwise)
        before, ends = dict(self.tiles), []
        for block, body in ((then, s.then), (otherwise, s.otherwise)):
            b.position_at_end(block)
            self.tiles = dict(before)
            self.body(body)
            ends.append((b.block, self.tiles))
            b.branch(after)
        b.position_at_end(after)
        self.tiles = dict(before)
        (then_end, in_then), (else_end, in_else) = ends
        for name in sorted(in_then.keys() & in_else.keys()):
            if in_then[name] is not in_else[name]:
                pairs = {
                    c: {then_end: in_then[name].values[c], else_end: in_else[name].values[c]}
                    for c in in_then[name].values
                }
                self.tiles[name] = RegisterTile(in_then[name].tile, {c: self.code.phi(p) for c, p in pairs.items()})

    def _cells(self, tile: Tile) -> list[Cell]:
        rows = self.rows if self._row_axis in tile.axes else 1
        vectors = vectors_of(self.columns, self.code.lanes) if self._column_axis in tile.axes else 1
        return [(r, v) for r in range(rows) for v in range(vectors)]

    @cached_property
    def _row_axis(self) -> str:
        return self.dot.dst.axes[0]

    @cached_property
    def _column_axis(self) -> str:
        return self.dot.dst.axes[1]

    def _at(self, buffer: str, slices: Sequence[Slice], tile: Tile) -> tuple[Iterator[Place], int]:
        """Every cell of a tile at its place in a buffer; and how far apart the columns are."""
        code, place = self.code, self.code.place(buffer, slices)
        dtype, between, below = place.buffer.dtype, place.between(self._column_axis), place.between(self._row_axis)
        valid = min([self.columns, *(d.size for d in place.dimensions if d.axis == self._column_axis)])
        first = code.address(code.base[buffer], code.offset(place, self._moved_back), dtype)
        places = (
            ((r, v), code.address(first, r * below + v * code.lanes * between, dtype)) for r, v in self._cells(tile)
        )
        left = [valid - v * code.lanes for v in range(vectors_of(self.columns, code.lanes))]
        has_columns = self._column_axis in tile.axes
        masks = [self._mask(v, left[v]) if has_columns and left[v] > 0 else None for v in range(len(left))]
        return (((r, v), address, left[v], masks[v]) for (r, v), address in places), between

    def _mask(self, v: int, left: int) -> IRValue | None:
        """The columns of a vector that exist."""
        if not self.in_panels:
            return self.code.mask(left)
        begin, size = self.stored[self._column_axis]
        first = plus(self.code.b, self.code.affine(begin), index(v * self.code.lanes))
        return first_lanes(self.code.b, minus(self.code.b, index(size), first), self.code.lanes)

    def _moved_back(self, d: Dimension) -> IRValue:
        """The start of a slice, moved back if the slice would exceed the buffer."""
        if d.slice.extent is None or (self.in_panels and d.axis == self._column_axis):
            return self.code.affine(d.slice.start)
        return self.code.start(d.slice.start, d.slice.extent, d.size)

    def _load(self, s: Load) -> None:
        code, values = self.code, dict[Cell, IRValue]()
        dtype, has_columns = code.buffers[s.buffer].dtype, self._column_axis in s.dst.axes
        whole = s.dst.name in self.integral
        cells, between = self._at(s.buffer, s.slices, s.dst)
        if self._has_rows_together(s.buffer, s.slices) and not whole:
            blocks = RowBlocks(code, [*cells], self.rows, between, dtype, self.in_panels)
            values = dict.fromkeys(self._cells(s.dst), code.zeros(code.lanes)) | blocks.load(whole)
            self.tiles[s.dst.name] = RegisterTile(s.dst, values)
            return
        for cell, address, left, mask in cells:
            if has_columns and left <= 0:
                values[cell] = constant(0.0, whole, code.lanes)
            elif has_columns and between == 1:
                values[cell] = code.load(address, dtype, code.lanes, mask, whole)
            elif has_columns and between and self.in_panels:
                apart = strided_offsets(code.b, between, index(0), code.lanes)
                values[cell] = code.load_where(address, apart, dtype, mask, whole)
            else:
                values[cell] = code.load_apart(address, between, dtype, left, whole)
        self.tiles[s.dst.name] = RegisterTile(s.dst, values)

    def _has_rows_together(self, buffer: str, slices: Sequence[Slice]) -> bool:
        """True if rows of a tile are neighbours in a buffer, and columns are not."""
        place = self.code.place(buffer, slices)
        below, between = place.between(self._row_axis), place.between(self._column_axis)
        return self.is_nest and below == 1 < between and min(self.code.lanes, self.rows) >= LEAST

    def _store(self, s: Store) -> None:
        code, source = self.code, self.tiles[s.src]
        cells, between = self._at(s.buffer, s.slices, source.tile)
        if s.where:
            self._store_rows(s, cells, between)
            return
        if self._has_rows_together(s.buffer, s.slices):
            dtype = code.buffers[s.buffer].dtype
            RowBlocks(code, [*cells], self.rows, between, dtype, self.in_panels).store(source.values)
            return
        self._store_cells(s, cells, between)

    def _store_cells(self, s: Store, cells: Iterable[Place], between: int) -> None:
        code, values, dtype = self.code, self.tiles[s.src].values, self.code.buffers[s.buffer].dtype
        for cell, address, left, mask in cells:
            if left > 0 and between == 1:
                code.store(values[cell], address, dtype, code.lanes, mask)
            elif left > 0:
                apart = strided_offsets(code.b, between, index(0), code.lanes)
                code.store_each(values[cell], address, apart, dtype, mask)

    def _store_rows(self, s: Store, cells: Iterable[Place], between: int) -> None:
        """The rows of a tile that are to be stored.

        Raises:
            CompileError: some elements of a row are, and others are not.
        """
        b, chosen = self.code.b, self.tiles[s.where]
        if self._column_axis in chosen.tile.axes:
            raise CompileError(f"store to {s.buffer}: a product on a CPU stores whole rows, or none of their elements")
        for row, own in itertools.groupby([*cells], lambda place: place[0][0]):
            lane = first_element(b, chosen.values[row if self._row_axis in chosen.tile.axes else 0, 0])
            with self.code.when(condition(b, lane, 1), "stored"):
                self._store_cells(s, own, between)

    def _start(self, piece: Slice) -> IRValue:
        """The start of a slice, moved back with the register tile if its outputs would exceed the buffer."""
        fixed = self.in_panels and piece.axis == self._column_axis
        if piece.extent is None or piece.axis not in self.stored or fixed:
            return self.code.affine(piece.start)
        begin, size = self.stored[piece.axis]
        first = self.code.start(begin, piece.extent, size)
        return plus(self.code.b, first, self.code.affine(piece.start - begin))

    def _gather(self, s: Gather) -> None:
        """Each row of the register tile is looked up like the row of a row kernel."""
        code, column = self.code, self._column_axis
        chosen = [i for i in s.index if isinstance(i, str)]
        in_lanes = [t for t in chosen if column in self.tiles[t].tile.axes]
        has_columns, values = column in s.dst.axes, dict[Cell, IRValue]()
        for r, v in self._cells(s.dst):

            def start(piece: Slice, row: int = r) -> IRValue:
                begin = self._start(piece)
                return plus(code.b, begin, index(row)) if piece.axis == self._row_axis else begin

            whole = {t: first_element(code.b, self._operand(r, 0, t)) for t in chosen if t not in in_lanes}
            lanes, integral = code.lanes if has_columns else 1, s.dst.name in self.integral
            found = lookup(code, s, lanes, column, start, whole, integral)
            if has_columns:
                by_lane = {t: self._operand(r, v, t) for t in in_lanes}
                values[r, v] = looked_up(code, found, index(v * code.lanes), by_lane, None)
            else:
                values[r, v] = broadcast(code.b, looked_up_once(code, found), code.lanes)
        self.tiles[s.dst.name] = RegisterTile(s.dst, values)

    def _position(self, s: Position) -> None:
        code, start, values = self.code, self._start(s.piece), dict[Cell, IRValue]()
        whole = s.dst.name in self.integral
        for r, v in self._cells(s.dst):
            if self._column_axis in s.dst.axes:
                values[r, v] = code.position(plus(code.b, start, index(v * code.lanes)), code.lanes, whole)
            else:
                values[r, v] = broadcast(code.b, code.position(plus(code.b, start, index(r)), 1, whole), code.lanes)
        self.tiles[s.dst.name] = RegisterTile(s.dst, values)

    def _map(self, s: Map) -> None:
        b, lanes = self.code.b, self.code.lanes
        values: dict[Cell, IRValue] = {}
        for row, vec in self._cells(s.dst):
            values[row, vec] = mapped(b, s, partial(self._operand, row, vec), lanes)
        self.tiles[s.dst.name] = RegisterTile(s.dst, values)

    def _operand(self, row: int, vec: int, tile: str) -> IRValue:
        source = self.tiles[tile]
        cell = (row if self._row_axis in source.tile.axes else 0, vec if self._column_axis in source.tile.axes else 0)
        return source.values[cell]

    def _view(self, s: View) -> None:
        source = self.operands[s.src]
        self.panels[s.dst.name] = panel(self.code, source, s, s.dst.extent(source.own))
        self.operands[s.dst.name] = source

    def _panel(self, name: str) -> Panel:
        source = self.operands[name]
        return self.panels.get(name) or panel(self.code, source, None, source.load.dst.extent(source.own))

    def _dot(self, s: Dot) -> None:
        """c += a · b over the reduction tile: whole iterations of `unroll` steps, then the rest one by one."""
        code = self.code
        a, c = self._panel(s.a), self._panel(s.b)
        if c.own_stride != 1:
            raise CompileError("columns of the right operand must be neighbours: pack it in panels")
        ends = min((self.operands[s.a], self.operands[s.b]), key=lambda x: x.along(x.reduction).size)
        steps, shortest = ends.remaining_steps(code), ends.shortest_steps(code)
        steps = steps if shortest else larger(code.b, steps, index(0))
        unroll = min(s.unroll, shortest or s.unroll)
        code.b.comment(
            f"{s.dst.name} += {s.a} . {s.b}: {self.rows} x {self.columns} in registers, {unroll} steps a turn"
        )
        kernel = MicroKernel(code, a, c, self.rows, self.columns, self.dot.prefetch_b)
        result = kernel.product(self.tiles[s.dst.name].values, steps, unroll, few=not shortest)
        self.tiles[s.dst.name] = RegisterTile(s.dst, result)


def contraction_printer(code: Code, kernel: Kernel) -> ContractionPrinter | None:
    """The printer for a kernel whose work is dots, or None when the kernel has none.

    Raises:
        CompileError: its dots do not fill register tiles alike.
    """
    dots = [s for s in statements(kernel.body) if isinstance(s, Dot)]
    if not dots:
        return None
    if len({(d.dst.axes, d.dst.shape, d.axis, d.prefetch_b) for d in dots}) > 1:
        tiles = ", ".join(f"{d.dst} over {d.axis}" for d in dots)
        raise CompileError(
            f"kernel {kernel.name}: dots into {tiles}; a product on a CPU has register tiles of one shape"
        )
    rows, columns = dots[0].dst.shape
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    outputs = [(s, code.buffers[s.buffer]) for s in stores if code.buffers[s.buffer].role == "output"]
    stored = {p.axis: (p.start, n) for s, b in outputs for p, n in zip(s.slices, b.shape, strict=True) if p.axis}
    nests = [n for s in statements(kernel.body) if isinstance(s, For) and (n := Nest.of(s))]
    of_columns = [p for n in nests for p in n.b.slices if p.axis == dots[0].dst.axes[1]]
    in_panels = any(not p.start.terms and stored[p.axis][1] % columns for p in of_columns)
    return ContractionPrinter(code, dots[0], rows, columns, stored, tiles_of_integers(kernel), in_panels, bool(nests))
