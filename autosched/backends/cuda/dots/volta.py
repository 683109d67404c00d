"""Dots by m8n8k4 products of warps of Volta, four side by side: 16 rows by 16 columns.

    for step in 4:                       8 products along k
      a_part, b_part = operands of a lane: a row and a column of eight k, or four neighbours at two of them
      for h in 2, i, j: acc[i, j] += a_part[i][h] * b_part[j][h]

A lane loads the row, and the column, `lane % 4 + quad * 4 + lane / 16 * 8` of 16; of operands not along k, four
neighbours at `k = lane % 4`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.sources import Staged
from autosched.backends.cuda.language.loops import UNROLL

# The quad of a lane along the rows and along the columns (see `plans`).
_QUADS = ("lane / 4 % 2", "lane / 8 % 2")


@dataclass(frozen=True)
class VoltaDot:
    """One dot. `strides`: distances of rows and of columns of the accumulator in its registers."""

    plan: DotPlan
    acc: str
    strides: tuple[int, int]
    a: Staged
    b: Staged
    functions: Functions

    def lines(self) -> Iterator[str]:
        plan = self.plan
        name = self.functions.use(fn.multiply_name(plan), fn.multiply_quads(plan))
        row, column = self.strides
        yield UNROLL
        yield f"for (int step = 0; step < {plan.depth // plan.step}; step++) {{"
        yield f"    alignas(16) uint32 a_part[{plan.row_tiles}][4], b_part[{plan.column_tiles}][4];"
        yield from self._part(0, "a_part[i]", "i", plan.row_tiles, plan.row_warps, self.a)
        yield from self._part(1, "b_part[j]", "j", plan.column_tiles, plan.column_warps, self.b)
        yield f"    {UNROLL}"
        yield "    for (int h = 0; h < 4; h += 2) {"
        for depth, (variable, count) in enumerate((("i", plan.row_tiles), ("j", plan.column_tiles)), 2):
            yield f"{'    ' * depth}{UNROLL}"
            yield f"{'    ' * depth}for (int {variable} = 0; {variable} < {count}; {variable}++)"
        at = f"{self.acc} + i * {2 * row} + j * {4 * column}"
        parts = ", ".join(f"{x}[h{more}]" for x in ("a_part[i]", "b_part[j]") for more in ("", " + 1"))
        yield f"                {name}<{row}, {column}>({at}, {parts});"
        yield "    }"
        yield "}"

    def _part(self, side: int, part: str, tile: str, count: int, warps: int, source: Staged) -> Iterator[str]:
        """Load the rows or columns of one operand."""
        warp = "".join(f"{text} * 16 + " for text in self.plan.warp_digits(side))
        free = f"{tile} * {16 * warps} + {warp}{_QUADS[side]} * 4 + lane / 16 * 8"
        yield f"    {UNROLL}"
        yield f"    for (int {tile} = 0; {tile} < {count}; {tile}++) {{"
        if self.plan.along_k[side]:
            yield f"        const int row = {free} + lane % 4;"
            place = source.stage.element("row", "step * 8")
            yield f"        *(uint4*){part} = *(const uint4*)(shared + {source.at} + {place});"
        else:
            yield f"        const int column = {free};"
            yield f"        {UNROLL}"
            yield "        for (int h = 0; h < 2; h++) {"
            yield "            const int row = step * 8 + h * 4 + lane % 4;"
            place = source.stage.element("row", "column")
            yield f"            *(uint2*)({part} + 2 * h) = *(const uint2*)(shared + {source.at} + {place});"
            yield "        }"
        yield "    }"
