"""Dots by fused multiply-adds of every thread: for operands that tensor cores do not multiply.

for step in 16:                      16 products along k
  a_part, b_part = rows and columns of the thread's block
  for k, i, j: acc[i, j] += a_part[i][k] * b_part[j][k]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.sources import Staged
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.types import held_type, memory_type
from autosched.backends.cuda.registers.layouts import register_offset, thread_offset
from autosched.backends.cuda.registers.tiles import Held


@dataclass(frozen=True)
class FmaDot:
    """One dot, which adds to `acc`."""

    plan: DotPlan
    acc: Held
    a: Staged
    b: Staged

    def lines(self) -> Iterator[str]:
        plan = self.plan
        held = held_type(plan.element)
        rows, columns = plan.registers
        yield f"for (int step = 0; step < {plan.depth}; step += {plan.step}) {{"
        yield f"    {held} a_part[{rows}][{plan.step}], b_part[{columns}][{plan.step}];"
        yield from self._part(0, "a_part", rows, self.a)
        yield from self._part(1, "b_part", columns, self.b)
        for depth, (variable, count) in enumerate((("k", plan.step), ("i", rows), ("j", columns)), 1):
            yield f"{'    ' * depth}{UNROLL}"
            yield f"{'    ' * depth}for (int {variable} = 0; {variable} < {count}; {variable}++)"
        element = self.acc.element({plan.rows: "i", plan.columns: "j"})
        yield f"                {element} += a_part[i][k] * b_part[j][k];"
        yield "}"

    def _part(self, side: int, part: str, count: int, source: Staged) -> Iterator[str]:
        plan, spread = self.plan, self.plan.spreads[side]
        along_k = plan.along_k[side]
        # Neighbours in memory innermost, so that the compiler makes vectors of them.
        loops = [("k", plan.step), ("i", count)]
        for depth, (variable, size) in enumerate(reversed(loops) if along_k else loops, 1):
            yield f"{'    ' * depth}{UNROLL}"
            yield f"{'    ' * depth}for (int {variable} = 0; {variable} < {size}; {variable}++)" + " {" * (depth == 2)
        free = f"({thread_offset(spread, plan.warps)} + {register_offset(spread, 'i')})"
        place = source.stage.element(free, "(step + k)") if along_k else source.stage.element("(step + k)", free)
        at = f"*(const {memory_type(plan.element)}*)(shared + {source.at} + {place})"
        yield f"            {part}[i][k] = widened({at});"
        yield "        }"
