"""The innermost loop of a contraction: the products of two panels are added to a register tile.

BLIS calls it the micro-kernel (Van Zee and van de Geijn, "BLIS", ACM TOMS 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.llvm.bodies.operands import Panel
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import F32, I64, PTR, IRValue
from autosched.backends.llvm.ir.values import broadcast, fma, index, minus, vector

# A place in a register tile: row and vector; 0 for an axis that the tile does not have.
Cell = tuple[int, int]


def vectors_of(columns: int, lanes: int) -> int:
    """Vectors of `lanes` lanes for these columns."""
    return -(-columns // lanes)


@dataclass(frozen=True)
class MicroKernel:
    """Prints `tile += a · b` for a tile of `rows` and `columns`; `prefetch_b`: see `statements.Dot`."""

    code: Code
    a: Panel
    b: Panel
    rows: int
    columns: int
    prefetch_b: int

    @property
    def vectors(self) -> int:
        return vectors_of(self.columns, self.code.lanes)

    def product(
        self, before: dict[Cell, IRValue], steps: IRValue, unroll: int, few: bool = False
    ) -> dict[Cell, IRValue]:
        """The tile after `steps` steps: whole iterations of `unroll` of them, then the rest one by one.

        `few`: there may be fewer than `unroll`, or none.
        """
        b = self.code.b
        if steps.number is not None and steps.number % unroll == 0:
            _, _, result = self._steps(self.a.base, self.b.base, before, steps, unroll)
            return result
        rest = b.srem(steps, index(unroll))
        if few:
            whole = minus(b, steps, rest)
            result = self._some(self.a.base, self.b.base, before, whole, unroll)
            return self._some(self._after(self.a, whole), self._after(self.b, whole), result, rest)
        at, bt, result = self._steps(self.a.base, self.b.base, before, minus(b, steps, rest), unroll)
        return self._some(at, bt, result, rest)

    def _after(self, panel: Panel, steps: IRValue) -> IRValue:
        """The address of a panel's elements after so many steps."""
        return self.code.address(panel.base, self.code.scaled(steps, panel.reduction_stride), panel.dtype)

    def _some(
        self, at: IRValue, bt: IRValue, before: dict[Cell, IRValue], rest: IRValue, unroll: int = 1
    ) -> dict[Cell, IRValue]:
        """So many steps from two pointers on, if there are any."""
        b = self.code.b
        start = b.block
        more, after = b.append_basic_block("rest"), b.append_basic_block("rest.end")
        b.cbranch(b.icmp_signed(">", rest, index(0)), more, after)
        b.position_at_end(more)
        _, _, result = self._steps(at, bt, before, rest, unroll)
        end = b.block
        b.branch(after)
        b.position_at_end(after)
        return {cell: self.code.phi({start: before[cell], end: result[cell]}) for cell in before}

    def _steps(
        self, a_start: IRValue, b_start: IRValue, before: dict[Cell, IRValue], steps: IRValue, unroll: int
    ) -> tuple[IRValue, IRValue, dict[Cell, IRValue]]:
        """The innermost loop. All addresses are constant distances from two pointers that it moves along."""
        code, b, lanes = self.code, self.code.b, self.code.lanes
        head, body, after = b.block, b.append_basic_block("k"), b.append_basic_block("k.end")
        b.branch(body)
        b.position_at_end(body)
        left, a_at, b_at = b.phi(I64, "left"), b.phi(PTR, "a.at"), b.phi(PTR, "b.at")
        sums = {cell: b.phi(vector(F32, lanes)) for cell in before}
        for node, value in ((left, steps), (a_at, a_start), (b_at, b_start), *((sums[x], before[x]) for x in before)):
            node.add_incoming(value, head)
        current: dict[Cell, IRValue] = dict(sums)
        for step in range(unroll):
            self.step(current, a_at, b_at, step * self.a.reduction_stride, step * self.b.reduction_stride)
        a_next = code.address(a_at, unroll * self.a.reduction_stride, self.a.dtype)
        b_next = code.address(b_at, unroll * self.b.reduction_stride, self.b.dtype)
        left_next = minus(b, left, index(unroll))
        for node, value in ((left, left_next), (a_at, a_next), (b_at, b_next), *((sums[x], current[x]) for x in sums)):
            node.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed(">", left_next, index(0)), body, after)
        b.position_at_end(after)
        return a_next, b_next, current

    def step(self, current: dict[Cell, IRValue], a_at: IRValue, b_at: IRValue, a_offset: int, b_offset: int) -> None:
        """One step, at constant distances from two pointers, added to the tile."""
        code, b, lanes = self.code, self.code.b, self.code.lanes
        if self.prefetch_b:
            self._prefetch(b_at, b_offset)
        row_of_b = [self._vector_of_b(b_at, b_offset, v) for v in range(self.vectors)]
        for r in range(self.rows):
            at = code.address(a_at, r * self.a.own_stride + a_offset, self.a.dtype)
            element = broadcast(b, code.load(at, self.a.dtype, 1), lanes)
            for v in range(self.vectors):
                current[r, v] = fma(b, element, row_of_b[v], current[r, v], lanes)

    def _prefetch(self, b_at: IRValue, offset: int) -> None:
        """The row of b that many rows ahead, one line of cache per vector; beyond the end a prefetch does nothing."""
        ahead = self.prefetch_b * self.columns
        for v in range(self.vectors):
            at = offset + ahead + v * self.code.lanes
            self.code.prefetch(self.code.address(b_at, at, self.b.dtype))

    def _vector_of_b(self, b_at: IRValue, offset: int, v: int) -> IRValue:
        code = self.code
        left = self.b.valid - v * code.lanes
        if left <= 0:
            return code.zeros(code.lanes)
        address = code.address(b_at, offset + v * code.lanes, self.b.dtype)
        return code.load(address, self.b.dtype, code.lanes, None if self.b.packed else code.mask(left))
