"""One row of a kernel without a dot: addresses of its tiles, and its values per row.

Values per row (a maximum, a sum) live in stack slots, which LLVM's SROA pass replaces by registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autosched.backends.llvm.bodies.gathers import Lookup, lookup
from autosched.backends.llvm.bodies.guards import GuardedLoad
from autosched.backends.llvm.bodies.passes import used
from autosched.backends.llvm.bodies.row_axes import RowAxes
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import F32, I64, IRValue
from autosched.backends.llvm.ir.values import both, index, plus
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import Gather, Load, Statement, Store, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

# Guarded loads from which on a version of a body without guards pays for its size.
_MANY_GUARDS = 4


@dataclass
class Row:
    """The row of a kernel that is printed, with the state of its tiles.

    `unit`: rows that are computed at once, unrolled; `number` is that of the first. `inside`: no row of a guarded load
    is outside of its buffer.
    """

    code: Code
    kernel: Kernel
    axes: RowAxes
    tiles: dict[str, Tile]
    integral: frozenset[str] = frozenset()
    unit: int = 1
    inside: bool = False
    number: IRValue | None = None
    slots: dict[str, IRValue] = field(default_factory=dict)
    kept: dict[str, IRValue] = field(default_factory=dict)

    @property
    def row_axis(self) -> str:
        return self.axes.row

    @property
    def column_axis(self) -> str:
        return self.axes.column

    def start(self, piece: Slice) -> IRValue:
        """Start of a slice in the row that is printed."""
        at = self.code.affine(piece.start)
        if self.row_axis and piece.axis == self.row_axis:
            assert self.number is not None
            return plus(self.code.b, at, self.code.scaled(self.number, piece.step // self.unit))
        return at

    def guarded(self, s: Load) -> GuardedLoad:
        """A guarded load in the row that is printed."""
        whole = s.dst.name in self.integral
        return GuardedLoad.of(self.code, s, self.column_axis, self.start, whole, self.inside)

    def all_inside(self, body: Sequence[Statement]) -> IRValue | None:
        """The condition that guarded loads are inside of their buffers in this row; None if few have a guard."""
        pieces: dict[tuple[object, ...], list[Dimension]] = {}
        guarded = [s for s in statements(tuple(body)) if isinstance(s, Load) and s.guarded]
        if len(guarded) < _MANY_GUARDS:
            return None
        for s in guarded:
            for d in self.code.place(s.buffer, s.slices).dimensions:
                if d.may_leave and d.axis != self.column_axis:
                    pieces.setdefault((d.slice.start.terms, d.slice.step, d.axis, d.size), []).append(d)
        b, inside = self.code.b, None
        for found in pieces.values():
            first, last = (of(found, key=lambda d: d.slice.start.offset).slice for of in (min, max))
            least, most = self._over_loops(first.start)[0], self._over_loops(last.start)[1]
            inside = both(b, inside, b.icmp_signed(">=", self.start(replace(first, start=least)), index(0)))
            inside = both(b, inside, b.icmp_signed("<", self.start(replace(last, start=most)), index(found[0].size)))
        return inside

    def _over_loops(self, start: Affine) -> tuple[Affine, Affine]:
        """The least and the largest value of a form over the iterations of the loops that it depends on."""
        ends = {v: (c * (self.code.extents[v] - 1)) for v, c in start.terms if v not in self.code.variables}
        rest = Affine(tuple(t for t in start.terms if t[0] not in ends), start.offset)
        least, most = (sum(of(e, 0) for e in ends.values()) for of in (min, max))
        return rest + Affine(offset=least), rest + Affine(offset=most)

    def lookup(self, s: Gather, lanes: int) -> Lookup:
        columns = {t: self.value(t) for t in used(s) if self.column_axis not in self.tiles[t].axes}
        whole = s.dst.name in self.integral
        return lookup(self.code, s, lanes, self.column_axis, self.start, columns, whole)

    def type_of(self, tile: str) -> str:
        """Type of one element of a tile in registers."""
        return I64 if tile in self.integral else F32

    def set(self, name: str, value: IRValue) -> None:
        if name not in self.slots:
            self.slots[name] = self.code.b.stack_slot(self.type_of(name), name)
        self.code.b.store(value, self.slots[name])

    def value(self, tile: str) -> IRValue:
        return self.code.b.load(self.slots[tile], self.type_of(tile))

    def address(self, buffer: str, slices: Sequence[Slice]) -> tuple[IRValue, int]:
        """The address of this row's first column, and the stride of its columns."""
        code, place = self.code, self.code.place(buffer, slices)
        offset = code.offset(place, lambda d: self.start(d.slice))
        return code.address(code.base[buffer], offset, place.buffer.dtype), place.between(self.column_axis)

    def aligned(self, s: Store) -> bool:
        """True if every vector of this store is aligned to its size, as streaming stores require."""
        buffer, lanes = self.code.buffers[s.buffer], self.code.lanes
        if buffer.dtype != "float32":
            return False
        for d in self.code.place(s.buffer, s.slices).dimensions:
            if d.axis == self.column_axis and d.stride != 1:
                return False
            moves = [c * d.stride for _, c in d.slice.start.terms] + [d.slice.start.offset * d.stride]
            if any(m % lanes for m in moves) or (d.axis and d.axis == self.row_axis and d.stride % lanes):
                return False
        return True

    def scratch_row(self, name: str) -> IRValue:
        """Scratch memory for one row of a tile."""
        if name not in self.kept:
            elements = self.tiles[name].extent(self.column_axis)
            # An integer takes the room of two float32.
            self.kept[name] = self.code.take_scratch(2 * elements if name in self.integral else elements)
        return self.kept[name]

    def kept_as(self, name: str) -> str:
        """The element type of a tile in scratch memory."""
        return "int64" if name in self.integral else "float32"
