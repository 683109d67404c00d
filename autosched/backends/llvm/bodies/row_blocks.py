"""Register tiles in buffers whose rows are neighbours: square blocks of vectors, transposed in registers.

out[f, p, q] of a tile of 14 positions q and 32 filters f: 32 stores of 14 neighbours, not 448 of an element
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.llvm.bodies.microkernel import Cell
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import I1, IRValue
from autosched.backends.llvm.ir.values import both, broadcast, poison, transpose_4x4

# A cell of a tile in a buffer: its address, how many columns of it exist at most, and a mask of those that do.
Place = tuple[Cell, IRValue, int, IRValue | None]
# Vectors are transposed in blocks of so many lanes; fewer rows are moved element by element.
LEAST = 4


@dataclass(frozen=True)
class RowBlocks:
    """Places of a tile of so many `rows`, columns `between` elements apart; `masked`: some columns may not exist."""

    code: Code
    places: Sequence[Place]
    rows: int
    between: int
    dtype: str
    masked: bool

    def store(self, values: Mapping[Cell, IRValue]) -> None:
        lanes = self.code.lanes
        for (row, v), present, columns in self._blocks():
            block = [values[row + r, v] for r in range(present)] + [poison(lanes)] * (lanes - present)
            made = transpose_4x4(self.code.b, block, lanes)
            for column, (address, mask) in zip(made, columns, strict=False):
                self.code.store(column, address, self.dtype, lanes, mask)

    def load(self, integral: bool) -> dict[Cell, IRValue]:
        """The tile; 0 in columns that do not exist."""
        lanes, found = self.code.lanes, dict[Cell, IRValue]()
        for (row, v), present, columns in self._blocks():
            read = [self.code.load(address, self.dtype, lanes, mask, integral) for address, mask in columns]
            read += [self.code.zeros(lanes)] * (lanes - len(read))
            made = transpose_4x4(self.code.b, read, lanes)
            found |= {(row + r, v): made[r] for r in range(present)}
        return found

    def _blocks(self) -> Iterator[tuple[Cell, int, list[tuple[IRValue, IRValue | None]]]]:
        """The first cell of every block, its rows, and for each of its columns the address and a mask of the rows."""
        code = self.code
        for (row, v), address, left, mask in self.places:
            if left <= 0 or row % code.lanes:
                continue
            present = min(code.lanes, self.rows - row)
            columns = range(min(code.lanes, left))
            addresses = (code.address(address, n * self.between, self.dtype) for n in columns)
            yield (row, v), present, [(a, self._mask(present, mask, n)) for n, a in enumerate(addresses)]

    def _mask(self, present: int, columns: IRValue | None, lane: int) -> IRValue | None:
        code, rows = self.code, self.code.mask(present)
        if not self.masked or columns is None:
            return rows
        exists = broadcast(code.b, code.b.extract_element(columns, lane, I1), code.lanes)
        return both(code.b, exists, rows)
