"""Prints the body of a pointwise or row-reduction kernel: one row after the other, each in vectorised passes.

Tiles with columns exist one vector at a time, or in scratch memory if a later pass needs them and recomputation is
dear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from autosched.backends.backend import CompileError
from autosched.backends.llvm.bodies.gathers import looked_up_once
from autosched.backends.llvm.bodies.passes import Pass, carried_tiles, pieces, used
from autosched.backends.llvm.bodies.row import Row
from autosched.backends.llvm.bodies.row_axes import row_axes
from autosched.backends.llvm.bodies.row_passes import PassEmission
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.integers import constant, tiles_of_integers
from autosched.backends.llvm.ir.operators import mapped
from autosched.backends.llvm.ir.text import IRValue
from autosched.backends.llvm.ir.values import first_lanes, index, minus, plus, smaller
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import (
    Fill,
    For,
    Gather,
    If,
    Let,
    Load,
    Map,
    Position,
    Reduce,
    Statement,
    Store,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel


@dataclass(frozen=True)
class _Part:
    """Columns of a pass, in steps of some vectors; `masked`: the last one is cut. `exist`: also of guarded loads."""

    first: IRValue
    end: IRValue
    step: int
    masked: bool
    exist: bool = False


@dataclass
class RowPrinter:
    """Prints the statements of one program."""

    row: Row
    carried: frozenset[str]
    brought: set[str] = field(default_factory=set)

    @property
    def code(self) -> Code:
        return self.row.code

    def body(self, body: Sequence[Statement]) -> None:
        """The whole body for every row of the program that exists."""
        if not self.row.row_axis:
            self._each_row(body)
            return
        body = self._bound_to_data(body)
        rows, unit = self._rows(), self.row.unit
        present = self.code.remaining(rows.slice.start, (rows.slice.extent or 1) * unit, rows.size)
        with self.code.loop(present, f"{self.row.row_axis}.row", unit) as number:
            self.row.number = self._moved_back(rows, number) if unit > 1 else number
            self._each_row(body)

    def _bound_to_data(self, body: Sequence[Statement]) -> Sequence[Statement]:
        """Bind variables to data before all rows, whose places may depend on them; the statements after that."""
        after = max((n for n, s in enumerate(body, 1) if isinstance(s, Let)), default=0)
        for s in body[:after]:
            if tile := next((t for t in produced(s) if t.axes), None):
                raise CompileError(f"{tile} comes before a variable bound to data; a CPU's kernels take single numbers")
            self._single(s)
        return body[after:]

    def _moved_back(self, rows: Dimension, number: IRValue) -> IRValue:
        """The first of the next unrolled rows; where too few are left, some are computed again."""
        start, unit = rows.slice.start, self.row.unit
        if not any(n % unit for n in (rows.size, start.offset, *(c for _, c in start.terms))):
            return number
        last = minus(self.code.b, index(rows.size - unit), self.code.affine(start))
        return smaller(self.code.b, number, last)

    def _each_row(self, body: Sequence[Statement]) -> None:
        """The body in two versions, if many of its loads need a guard at the edges of a buffer only.

        The other one has none of these guards.
        """
        inside = self.row.all_inside(body)
        if inside is None:
            self.row_body(body)
            return
        slots, brought = dict(self.row.slots), set(self.brought)
        with self.code.choice(inside, "inside") as otherwise:
            self.row.inside = True
            self.row_body(body)
            self.row.inside = False
            otherwise()
            self.row.slots, self.brought = slots, brought
            self.row_body(body)

    def row_body(self, body: Sequence[Statement]) -> None:
        for piece in pieces(body, self.row.column_axis, self.row.tiles, self.carried):
            if isinstance(piece, Pass):
                self._pass(piece)
            else:
                self._single(piece)

    def _rows(self) -> Dimension:
        """A dimension of a buffer that runs along the rows of this program's tile, and shows how many there are."""
        for s in _stores_first(statements(self.row.kernel.body)):
            for d in self.code.place(s.buffer, s.slices).dimensions:
                if d.slice.extent is not None and d.axis == self.row.row_axis:
                    return d
        raise CompileError(f"kernel {self.row.kernel.name}: nothing says how much there is along {self.row.row_axis}")

    # -- values per row

    def _single(self, s: Statement) -> None:
        code = self.code
        match s:
            case For():
                with code.turns(s):
                    self.row_body(s.body)
            case Let():
                code.bind(s, self.row.value(s.src))
            case If():
                raise CompileError("a row kernel on a CPU cannot branch")
            case Fill():
                self.row.set(s.dst.name, constant(s.value, s.dst.name in self.row.integral, 1))
            case Load(guarded=True):
                self.row.set(s.dst.name, self.row.guarded(s).row_value(code))
            case Load():
                address, _ = self.row.address(s.buffer, s.slices)
                whole = s.dst.name in self.row.integral
                self.row.set(s.dst.name, code.load(address, code.buffers[s.buffer].dtype, 1, integral=whole))
            case Gather():
                self.row.set(s.dst.name, looked_up_once(code, self.row.lookup(s, 1)))
            case Position():
                self.row.set(s.dst.name, code.position(self.row.start(s.piece), 1, s.dst.name in self.row.integral))
            case Map():
                self.row.set(s.dst.name, mapped(code.b, s, self.row.value, 1))
            case Store():
                address, _ = self.row.address(s.buffer, s.slices)
                code.store(self.row.value(s.src), address, code.buffers[s.buffer].dtype, 1)
            case _:
                raise CompileError(f"a row kernel on a CPU cannot say {type(s).__name__}")

    # -- passes over the columns

    def _pass(self, walk: Pass) -> None:
        """A main loop over whole groups of vectors, then a masked loop over the rest."""
        code, lanes = self.code, self.code.lanes
        count, vectors = self._count(walk), self.row.kernel.launch.vectors
        group = lanes * vectors
        names = ", ".join(t.name for s in walk.statements for t in produced(s))
        code.b.comment(f"pass over {self.row.column_axis}: {names}")
        reductions = [s for s in walk.statements if isinstance(s, Reduce)]
        emission = PassEmission(self.row, walk, reductions, vectors, self._prefetched(walk))
        emission.prepare()
        if count.number is not None:
            left = count.number % group
            whole = index(count.number - left)
            parts = [_Part(a, b, group, False, e) for a, b, e in emission.peeled(count.number - left, group)]
            parts += [_Part(whole, count, lanes, left % lanes != 0)] if left else []
            for part in reversed(parts) if emission.backwards else parts:
                self._walk(emission, part)
        else:
            rest = code.b.srem(count, index(group))
            whole = minus(code.b, count, rest)
            parts = [_Part(index(0), whole, group, False), _Part(whole, count, lanes, True)]
            named = [("whole", whole, parts[0]), ("rest", rest, parts[1])]
            for name, some, part in reversed(named) if emission.backwards else named:
                with code.when(code.b.icmp_signed(">", some, index(0)), name):
                    self._walk(emission, part)
        emission.finish()

    def _prefetched(self, walk: Pass) -> frozenset[str]:
        """The buffers that the pass prefetches: those that no earlier pass has loaded into the caches."""
        if not self.row.kernel.launch.prefetch_bytes:
            return frozenset()
        loaded = frozenset(s.buffer for s in walk.statements if isinstance(s, Load))
        new = loaded - self.brought
        self.brought |= loaded
        return new

    def _walk(self, emission: PassEmission, part: _Part) -> None:
        code, b = self.code, self.code.b
        columns, vectors = minus(b, part.end, part.first), range(part.step // code.lanes)
        with code.loop(columns, "c", part.step) as position:
            if emission.backwards:
                position = minus(b, _last(code, columns, part.step), position)
            at = plus(b, position, part.first)
            for number in reversed(vectors) if emission.backwards else vectors:
                here = plus(b, at, index(number * code.lanes))
                mask = first_lanes(b, minus(b, part.end, here), code.lanes) if part.masked else None
                emission.vector(number, here, mask, part.exist)

    def _count(self, walk: Pass) -> IRValue:
        """Number of columns of the tile that exist."""
        column = self.row.column_axis
        extent = max(self.row.tiles[t].extent(column) for s in walk.statements for t in self._column_tiles(s))
        for s in walk.statements:
            if isinstance(s, Reduce) and s.bound is not None:
                return self.code.remaining(s.bound.start, extent, s.bound.size)
        for s in _stores_first(walk.statements):
            for d in self.code.place(s.buffer, s.slices).dimensions:
                if d.axis == column:
                    return self.code.remaining(d.slice.start, extent, d.size)
        return index(extent)

    def _column_tiles(self, s: Statement) -> list[str]:
        names = [t.name for t in produced(s)] + list(used(s))
        return [n for n in names if self.row.column_axis in self.row.tiles[n].axes]


def _last(code: Code, columns: IRValue, step: int) -> IRValue:
    """The first column of the last step over these columns."""
    if columns.number is not None:
        # A constant count makes the masks constant, too.
        return index((columns.number - 1) // step * step)
    return code.scaled(code.b.sdiv(plus(code.b, columns, index(-1)), index(step)), step)


def row_printer(code: Code, kernel: Kernel) -> RowPrinter:
    """The printer for a kernel without a dot.

    Raises:
        CompileError: its tiles have more than two axes.
    """
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    axes = row_axes(kernel)
    carried = carried_tiles(kernel.body, axes.column)
    stored = (p.step for s in statements(kernel.body) if isinstance(s, Store) for p in s.slices if p.axis == axes.row)
    unit = next(stored, 1) if axes.row else 1
    return RowPrinter(Row(code, kernel, axes, tiles, tiles_of_integers(kernel), unit), carried)


def _stores_first(body: Iterable[Statement]) -> list[Load | Store]:
    """Loads and stores that show the extent of an axis, stores first: a buffer that is loaded may be longer.

    Loads that start in the middle, go backwards or leave the buffer do not show it.
    """
    telling = (s for s in body if isinstance(s, Load | Store) and not (isinstance(s, Load) and not _tells(s)))
    return sorted(telling, key=lambda s: isinstance(s, Load))


def _tells(s: Load) -> bool:
    return not s.guarded and all(piece.step == 1 and piece.start.offset >= 0 for piece in s.slices)
