"""Dots by fused multiply-adds of every thread: for operands that tensor cores do not multiply.

for step in 16:                      a product along k, or four if an operand is read along k
  a_part, b_part = rows and columns of the thread's blocks
  for k, i, j: acc[i, j] += a_part[i][k] * b_part[j][k]

An outer product of rows by columns for each k, whose operands are loaded in vectors along the rows and the columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.sources import Staged
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.types import VECTOR_BYTES, held_type, memory_type
from autosched.backends.cuda.registers.layouts import register_offset, thread_offset, vector
from autosched.backends.cuda.registers.tiles import Held

# Multiply-adds of a thread in straight code: of a whole iteration, and of part of one, 32 KiB of instructions. ptxas 13
# delays loads to their uses in longer iterations that are straight code, but not in such parts.
_WHOLE, _PART = 1024, 2048


@dataclass(frozen=True)
class FmaDot:
    """One dot, which adds to `acc`."""

    plan: DotPlan
    acc: Held
    a: Staged
    b: Staged

    @property
    def steps(self) -> int:
        return self.plan.depth // self.plan.step

    @property
    def unrolled(self) -> int:
        """Steps in straight code: a divisor of their number, even if that is."""
        each = math.prod(self.plan.registers) * self.plan.step
        if self.steps * each <= _WHOLE:
            return self.steps
        most = max(1, min(_PART // each, self.steps // 2))
        return math.gcd(self.steps, max(2, 1 << (most.bit_length() - 1)))

    def lines(self) -> Iterator[str]:
        """The whole dot."""
        if self.plan.outer:
            yield f"{UNROLL} {self.unrolled}"
        yield f"for (int step = 0; step < {self.steps}; ++step) {{"
        yield from (f"    {line}" for line in (self.parts(""), *self.take(""), *self.multiply("")))
        yield "}"

    def parts(self, sets: str) -> str:
        """Definitions of the operands of a step, or of several sets of them."""
        rows, columns = self.plan.registers
        step = self.plan.step
        return f"{held_type(self.plan.element)} a_part{sets}[{rows}][{step}], b_part{sets}[{columns}][{step}];"

    def take(self, which: str) -> Iterator[str]:
        """Load the operands of `step`."""
        yield from self._take(0, f"a_part{which}", self.a)
        yield from self._take(1, f"b_part{which}", self.b)

    def multiply(self, which: str) -> Iterator[str]:
        rows, columns = self.plan.registers
        for depth, (variable, count) in enumerate((("k", self.plan.step), ("i", rows), ("j", columns))):
            yield f"{'    ' * depth}{UNROLL}"
            yield f"{'    ' * depth}for (int {variable} = 0; {variable} < {count}; ++{variable})"
        element = self.acc.element({self.plan.rows: "i", self.plan.columns: "j"})
        yield f"            {element} += a_part{which}[i][k] * b_part{which}[j][k];"

    def _take(self, side: int, part: str, source: Staged) -> Iterator[str]:
        plan, spread = self.plan, self.plan.spreads[side]
        free = f"({thread_offset(spread, plan.warps)} + {register_offset(spread, 'i')})"
        if plan.along_k[side]:
            several, together, apart, k = 1, plan.step, 1, "0"
            place = source.stage.element(free, f"(step * {plan.step})")
        else:
            several = together = math.gcd(vector(spread), VECTOR_BYTES // plan.element_bytes)
            apart, k = plan.step, "k"
            place = source.stage.element("step" if plan.step == 1 else f"(step * {plan.step} + k)", free)
        loops = [("i", plan.registers[side], several)] + [("k", plan.step, 1)] * (not plan.along_k[side])
        for depth, (variable, count, by) in enumerate(loops):
            yield f"{'    ' * depth}{UNROLL}"
            yield f"{'    ' * depth}for (int {variable} = 0; {variable} < {count}; {variable} += {by})"
        at = f"reinterpret_cast<const {memory_type(plan.element)}*>(shared + {source.at} + {place})"
        yield f"{'    ' * len(loops)}load<{together}, {apart}>(&{part}[i][{k}], {at});"
