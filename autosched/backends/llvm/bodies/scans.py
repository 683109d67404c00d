"""Scans of the columns of one row: prefixes within a vector, by shuffles, and the carry in every lane of another.

x   a b c d                    y = x after steps of 1, 2 …
+     a b c    a step of 1     y = before + y, but in the first vector
+       a ab   a step of 2     before = before + the last lane of y
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.integers import constant, from_float, is_integral, to_float
from autosched.backends.llvm.ir.operators import mapped
from autosched.backends.llvm.ir.text import I1, I32, Builder, IRValue
from autosched.backends.llvm.ir.values import both, int_constant, shuffle, vector
from search_spaces.programs.statements import Scan

# Names of stack slots: True after the first vector; the numbers of lanes.
_STARTED = "started"
_LANES = "lanes"


@dataclass
class RunningScan:
    """One scan within a pass; `integral`: the tiles with integers."""

    code: Code
    statement: Scan
    integral: frozenset[str]
    slots: dict[str, IRValue] = field(default_factory=dict)

    @staticmethod
    def of(code: Code, statement: Scan, integral: frozenset[str]) -> RunningScan:
        """A scan before its first vector."""
        made = RunningScan(code, statement, integral)
        for dst in statement.dsts:
            nothing = constant(0, dst.name in integral, code.lanes)
            made.slots[dst.name] = code.b.stack_slot(nothing.type, f"{dst.name}.before")
            code.b.store(nothing, made.slots[dst.name])
        made.slots[_STARTED] = code.b.stack_slot(I1, f"{statement.dsts[0].name}.started")
        code.b.store(IRValue(I1, "false"), made.slots[_STARTED])
        made.slots[_LANES] = _unknown_lanes(code.b, code.lanes, f"{statement.dsts[0].name}.lanes")
        return made

    def vector(self, given: Sequence[IRValue], mask: IRValue | None) -> dict[str, IRValue]:
        """The next vector of every result; `mask`: the lanes that are in the row, the first ones."""
        s, b = self.statement, self.code.b
        values = [self._held(x, d.name in self.integral) for x, d in zip(given, s.dsts, strict=True)]
        values = self._within(values, mask)
        lanes = self.code.lanes
        last = [0 if s.reverse else lanes - 1] * lanes
        whole = [shuffle(b, x, x, last) for x in values]
        before = [b.load(self.slots[d.name], x.type) for d, x in zip(s.dsts, values, strict=True)]
        started = b.load(self.slots[_STARTED], I1)
        made = {}
        for d, joined, x, total, run in zip(
            s.dsts, self._combined(before, values), values, whole, self._combined(before, whole), strict=True
        ):
            made[d.name] = b.select(started, joined, x)
            b.store(b.select(started, run, total), self.slots[d.name])
        b.store(IRValue(I1, "true"), self.slots[_STARTED])
        return made

    def _held(self, x: IRValue, integral: bool) -> IRValue:
        if is_integral(x) == integral:
            return x
        return (from_float if integral else to_float)(self.code.b, x, self.code.lanes)

    def _within(self, values: list[IRValue], mask: IRValue | None) -> list[IRValue]:
        """The scan of one vector alone."""
        b, lanes, backwards = self.code.b, self.code.lanes, self.statement.reverse
        step = 1
        while step < lanes:
            taken = [max(0, min(n + step if backwards else n - step, lanes - 1)) for n in range(lanes)]
            first = int_constant(lanes - step if backwards else step, lanes)
            joins = b.icmp_signed("<" if backwards else ">=", self.slots[_LANES], first)
            # In reverse, the lanes beyond the end come first.
            there = both(b, joins, shuffle(b, mask, mask, taken) if backwards and mask is not None else None)
            assert there is not None
            before = [shuffle(b, x, x, taken) for x in values]
            joined = self._combined(before, values)
            values = [b.select(there, new, x) for new, x in zip(joined, values, strict=True)]
            step *= 2
        return values

    def _combined(self, left: Sequence[IRValue], right: Sequence[IRValue]) -> list[IRValue]:
        combine = self.statement.combine
        known = {t.name: x for t, x in zip((*combine.left, *combine.right), (*left, *right), strict=True)}
        for s in combine.body:
            known[s.dst.name] = mapped(self.code.b, s, known.__getitem__, self.code.lanes)
        return [known[name] for name in combine.results]


def _unknown_lanes(b: Builder, lanes: int, name: str) -> IRValue:
    """0, 1, 2 …, opaque to LLVM.

    If LLVM knows which lanes of a combination are dropped, it computes them from the contents of some register: from
    the indices of a shuffle, which are denormal numbers, and take a hundred times as long to multiply.
    """
    of = vector(I32, lanes)
    slot = b.stack_slot(of, name)
    b.store(IRValue(of, f"<{', '.join(f'i32 {n}' for n in range(lanes))}>"), slot)
    return b.instruction(of, f"load volatile {of}, ptr {slot.text}")
