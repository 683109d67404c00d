"""Loads of a row kernel that may be outside of their buffer, where they read a fill: padding, windows, concatenation.

    x[r, c - 3] else 0        lanes before the first column, and beyond the last, are masked off
    x[r - 1, c] else 0        a row that does not exist masks all lanes off
    x[r, 40 - c] else -inf    neighbours in the opposite order

No address outside the buffer is ever read: masked lanes read nothing, or the first element, which is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.integers import constant
from autosched.backends.llvm.ir.text import I32, I64, Builder, IRValue
from autosched.backends.llvm.ir.values import (
    both,
    broadcast,
    constant_mask,
    in_order,
    index,
    int_constant,
    plus,
    shuffle,
    times,
)
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import Load
from search_spaces.programs.tiles import Slice

# Positions up to here are compared in 32 bits: twice as many in a vector as in 64, and lanes may be a little beyond.
_NARROW = 2**30


@dataclass(frozen=True)
class Positions:
    """The indices of a row's columns in one dimension of a buffer: `first + column * step`, of `size`."""

    first: IRValue
    step: int
    size: int
    narrow: bool

    @staticmethod
    def of(d: Dimension, first: IRValue) -> Positions:
        return Positions(first, d.slice.step, d.size, max(map(abs, (d.least, d.most, d.size))) < _NARROW)

    def vector(self, b: Builder, at: IRValue, lanes: int, element: str = I64) -> IRValue:
        """The indices of the columns from `at` on."""
        start = plus(b, self.first, times(b, at, self.step))
        if element != I64:
            start = b.trunc(start, element) if start.number is None else int_constant(start.number, 1, element)
        steps = in_order(lanes, element)
        if self.step != 1:
            steps = b.mul(steps, int_constant(self.step, lanes, element))
        return b.add(broadcast(b, start, lanes), steps)

    def inside(self, b: Builder, at: IRValue, lanes: int) -> IRValue:
        """A mask of the columns from `at` on that exist; negative indices compare as large numbers."""
        element = I32 if self.narrow else I64
        return b.icmp_unsigned("<", self.vector(b, at, lanes, element), int_constant(self.size, lanes, element))

    @property
    def existing(self) -> tuple[int, int] | None:
        """The columns that exist, from the first to behind the last; None if not known or if columns go backwards."""
        first = self.first.number
        if first is None or self.step < 1:
            return None
        return max(0, -(first // self.step)), max(0, -((first - self.size) // self.step))


@dataclass(frozen=True)
class GuardedLoad:
    """A guarded load as far as it is the same for all columns of a row.

    The element of column c is `offset + c * stride` elements after the buffer's first. It exists if `inside` (None:
    always), and if its `columns` do (None: always).
    """

    load: Load
    integral: bool
    offset: IRValue
    stride: int
    inside: IRValue | None
    columns: Positions | None

    @staticmethod
    def of(
        code: Code,
        s: Load,
        column: str,
        start_of: Callable[[Slice], IRValue],
        integral: bool,
        exists: bool = False,
    ) -> GuardedLoad:
        """Find its place in the row that is printed; `start_of`: where a slice is in this row.

        `exists`: the row does.
        """
        b, place = code.b, code.place(s.buffer, s.slices)
        inside: IRValue | None = None
        columns: Positions | None = None

        def start(d: Dimension) -> IRValue:
            nonlocal inside, columns
            at = start_of(d.slice)
            if not d.may_leave:
                return at
            if d.axis == column:
                columns = Positions.of(d, at)
                return at
            if exists:
                return at
            here = b.icmp_unsigned("<", at, index(d.size))
            inside = both(b, inside, here)
            return b.select(here, at, index(0))

        offset = code.offset(place, start)
        return GuardedLoad(s, integral, offset, place.between(column), inside, columns)

    def row_value(self, code: Code) -> IRValue:
        """The one element of a load without columns."""
        return self._filled(code.b, self._once(code, self.offset), self.inside, 1)

    def vector(self, code: Code, at: IRValue, mask: IRValue | None, exist: bool = False) -> IRValue:
        """The elements of the columns from `at` on, which `exist`; masked-off lanes are arbitrary."""
        b, lanes = code.b, code.lanes
        inside = None if self.inside is None else broadcast(b, self.inside, lanes)
        if self.columns is not None and not exist:
            inside = both(b, inside, self.columns.inside(b, at, lanes))
        if self.stride == 0:
            return self._filled(b, broadcast(b, self._once(code, self.offset), lanes), inside, lanes)
        readable = both(b, mask, inside)
        value = self._apart(code, at, readable) if abs(self.stride) > 1 else self._neighbours(code, at, readable)
        return self._filled(b, value, inside, lanes, is_zero=abs(self.stride) == 1)

    def _once(self, code: Code, offset: IRValue) -> IRValue:
        buffer = self.load.buffer
        dtype = code.buffers[buffer].dtype
        # If the row does not exist, this reads another one's element; without columns, the first one's.
        return code.load(code.address(code.base[buffer], offset, dtype), dtype, 1, integral=self.integral)

    def _neighbours(self, code: Code, at: IRValue, readable: IRValue | None) -> IRValue:
        b, lanes, buffer = code.b, code.lanes, self.load.buffer
        dtype, turned = code.buffers[buffer].dtype, range(lanes - 1, -1, -1)
        offset = plus(b, self.offset, times(b, at, self.stride))
        if self.stride == 1:
            return code.load(code.anywhere(buffer, offset), dtype, lanes, readable, self.integral)
        readable = None if readable is None else shuffle(b, readable, readable, turned)
        address = code.anywhere(buffer, plus(b, offset, index(1 - lanes)))
        value = code.load(address, dtype, lanes, readable, self.integral)
        return shuffle(b, value, value, turned)

    def _apart(self, code: Code, at: IRValue, readable: IRValue | None) -> IRValue:
        b, lanes, buffer = code.b, code.lanes, self.load.buffer
        if self.stride == 2 and code.buffers[buffer].dtype == "float32":
            return every_other(code, code.anywhere(buffer, plus(b, self.offset, times(b, at, 2))), readable)
        columns = b.add(broadcast(b, at, lanes), in_order(lanes, I64))
        offsets = b.mul(columns, int_constant(self.stride, lanes, I64))
        offsets = b.add(offsets, broadcast(b, self.offset, lanes))
        if readable is not None:
            offsets = b.select(readable, offsets, int_constant(0, lanes, I64))
        each = [b.extract_element(offsets, i, I64) for i in range(lanes)]
        return code.load_each(code.base[buffer], each, code.buffers[buffer].dtype, integral=self.integral)

    def _filled(self, b: Builder, value: IRValue, inside: IRValue | None, lanes: int, is_zero: bool = False) -> IRValue:
        """`is_zero`: masked lanes are 0 already."""
        if inside is None or (is_zero and self.load.fill == 0):
            return value
        return b.select(inside, value, constant(self.load.fill, self.integral, lanes))


def every_other(code: Code, address: IRValue, readable: IRValue | None) -> IRValue:
    """Every other float32 from an address on, as two loads of vectors and a shuffle; only these are read."""
    b, lanes = code.b, code.lanes
    mask = constant_mask(lanes, lanes) if readable is None else readable
    nothing, halves = IRValue(mask.type, "zeroinitializer"), list[IRValue]()
    for half in range(2):
        turn = [lane // 2 + half * (lanes // 2) if lane % 2 == 0 else lanes for lane in range(lanes)]
        part = shuffle(b, mask, nothing, turn)
        halves.append(code.load(code.address(address, half * lanes), "float32", lanes, part))
    low, high = halves
    return shuffle(b, low, high, range(0, 2 * lanes, 2))
