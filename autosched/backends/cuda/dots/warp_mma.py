"""Dots by m16n8 products of warps: operands through ldmatrix, or element by element if it cannot transpose them.

for step in 4:                       32 bytes along k
  a_part, b_part = operands of the warp: 16 rows each, 8 columns each
  for i, j: acc[i, j] += a_part[i] * b_part[j]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.sources import Made, Source, Staged
from autosched.backends.cuda.dots.stages import Stage
from autosched.backends.cuda.dots.windows import Window
from autosched.backends.cuda.language.loops import UNROLL
from search_spaces.devices.features import Features


@dataclass(frozen=True)
class WarpDot:
    """One dot. `strides`: distances of rows and of columns of the accumulator in its registers.

    `promoted`: products of every step are summed apart, and then added in float32.
    """

    plan: DotPlan
    acc: str
    strides: tuple[int, int]
    a: Source
    b: Staged
    promoted: bool
    functions: Functions
    features: Features

    @property
    def steps(self) -> int:
        return self.plan.depth // self.plan.step

    @property
    def unrolled(self) -> int:
        return 0

    def lines(self) -> Iterator[str]:
        """The whole dot."""
        yield UNROLL
        yield f"for (int step = 0; step < {self.steps}; ++step) {{"
        yield from _indented((self.parts(""), *self.take(""), *self.multiply("")))
        yield "}"

    def parts(self, sets: str) -> str:
        """Definitions of the operands of a step, or of several sets of them."""
        plan = self.plan
        return f"uint32 a_part{sets}[{plan.row_tiles}][4], b_part{sets}[{plan.column_tiles}][2];"

    def take(self, which: str) -> Iterator[str]:
        """Load the operands of `step`."""
        yield from self._rows(f"a_part{which}[i]")
        yield from self._columns(f"b_part{which}")

    def multiply(self, which: str) -> Iterator[str]:
        plan = self.plan
        row, column = self.strides
        name = self.functions.use(fn.multiply_name(plan), fn.multiply(plan, self.features))
        yield UNROLL
        yield f"for (int i = 0; i < {plan.row_tiles}; ++i)"
        yield f"    {UNROLL}"
        yield f"    for (int j = 0; j < {plan.column_tiles}; ++j) {{"
        at, parts = f"{self.acc} + i * {2 * row} + j * {2 * column}", f"a_part{which}[i], b_part{which}[j]"
        if self.promoted:
            yield "        float part[4] = {};"
            yield f"        {name}<2, 1>(part, {parts});"
            for n, place in enumerate(("0", str(column), str(row), str(row + column))):
                yield f"        ({at})[{place}] += part[{n}];"
        else:
            yield f"        {name}<{row}, {column}>({at}, {parts});"
        yield "    }"

    # Rows: four matrices of a_part are rows 0 and 8 of the first half of the step, then of the second.

    def _rows(self, part: str) -> Iterator[str]:
        plan, a = self.plan, self.a
        yield UNROLL
        yield f"for (int i = 0; i < {plan.row_tiles}; ++i) {{"
        if isinstance(a, Made):
            yield from _indented(self._made(a, part))
        elif plan.along_k[0]:
            row = f"(i * {16 * plan.row_warps} + {self._warp(0, 16)}lane % 16)"
            yield from self._matrices(a, 4, False, part, row, "(step * 2 + lane / 16)")
        elif plan.element_bytes == 2:
            row = f"(step * {plan.step} + lane % 8 + lane / 16 * 8)"
            chunk = f"(i * {2 * plan.row_warps} + {self._warp(0, 2)}lane / 8 % 2)"
            yield from self._matrices(a, 4, True, part, row, chunk)
        else:
            row = f"i * {16 * plan.row_warps} + {self._warp(0, 16)}lane / 4 + h % 2 * 8"
            yield from _indented(self._elements(a.stage, a.at, part, 4, row, "h / 2"))
        yield from _indented(self._rounded(part, 4))
        yield "}"

    def _made(self, a: Made, part: str) -> Iterator[str]:
        """Pairs of neighbours along k, from registers."""
        name = self.functions.use(*fn.pack(self.plan.element, self.features))
        yield UNROLL
        yield "for (int h = 0; h < 4; ++h) {"
        at = f"(2 * i + h % 2) * {a.row} + (4 * step + h / 2 * 2) * {a.k}"
        yield f"    {part}[h] = {name}({a.name}[{at}], {a.name}[{at} + {a.k}]);"
        yield "}"

    # Columns: two matrices of b_part are the two halves of the step.

    def _columns(self, part: str) -> Iterator[str]:
        plan, b = self.plan, self.b
        if not plan.along_k[1] and plan.element_bytes != 2:
            yield UNROLL
            yield f"for (int j = 0; j < {plan.column_tiles}; ++j) {{"
            column = f"j * {8 * plan.column_warps} + {self._warp(1, 8)}lane / 4"
            yield from _indented(self._elements(b.stage, b.at, f"{part}[j]", 2, column, "h"))
            yield from _indented(self._rounded(f"{part}[j]", 2))
            yield "}"
            return
        pairs = plan.column_tiles // 2
        if pairs:
            yield UNROLL
            yield f"for (int j = 0; j < {2 * pairs}; j += 2) {{"
            yield "    uint32 both[4];"
            yield from self._column_matrices(4, "both", "(j + lane / 16)")
            yield from (f"    {part}[j + {h // 2}][{h % 2}] = both[{h}];" for h in range(4))
            yield "}"
        if plan.column_tiles % 2:
            yield "{"
            yield from self._column_matrices(2, f"{part}[{2 * pairs}]", str(2 * pairs))
            yield "}"
        if plan.element == "float32":
            yield UNROLL
            yield f"for (int j = 0; j < {plan.column_tiles}; ++j) {{"
            yield from _indented(self._rounded(f"{part}[j]", 2))
            yield "}"

    def _column_matrices(self, count: int, part: str, tile: str) -> Iterator[str]:
        plan = self.plan
        if plan.along_k[1]:
            row = f"({tile} * {8 * plan.column_warps} + {self._warp(1, 8)}lane % 8)"
            yield from self._matrices(self.b, count, False, part, row, "(step * 2 + lane / 8 % 2)")
        else:
            row = f"(step * {plan.step} + lane % 16)"
            warp = self._warp(1, 1).removesuffix(" + ")
            chunk = f"({tile} * {plan.column_warps} + {warp})" if warp else f"{tile} * {plan.column_warps}"
            chunk = chunk if chunk.startswith("(") and warp else f"({chunk})"
            yield from self._matrices(self.b, count, True, part, row, chunk)

    # Both

    def _matrices(self, source: Staged, count: int, across: bool, part: str, row: str, chunk: str) -> Iterator[str]:
        name = self.functions.use(fn.matrices_name(count, across), fn.matrices(count, across))
        yield f"    const int row = {row[1:-1]}, chunk = {chunk[1:-1]};"
        yield f"    {name}({part}, shared_at + {source.at} + {source.stage.chunk('row', 'chunk')});"

    def _elements(self, stage: Stage | Window, at: str, part: str, count: int, column: str, half: str) -> Iterator[str]:
        """Elements of a column, which is not along k: one a register, or four of eight bits."""
        size, step = self.plan.element_bytes, self.plan.step
        yield UNROLL
        yield f"for (int h = 0; h < {count}; ++h) {{"
        yield f"    const int row = step * {step} + (lane % 4 + {half} * 4) * {4 // size}, column = {column};"
        place = f"shared + {at} + {stage.element('row', 'column')}"
        if size == 4:
            yield f"    {part}[h] = *(const uint32*)({place});"
        else:
            yield f"    {part}[h] = {self.functions.common('four_of_a_column')}<{stage.pitch}>({place});"
        yield "}"

    def _rounded(self, part: str, count: int) -> Iterator[str]:
        if self.plan.element == "float32":
            name = self.functions.common("round_tf32")
            yield UNROLL
            yield f"for (int h = 0; h < {count}; ++h) {part}[h] = {name}({part}[h]);"

    def _warp(self, side: int, size: int) -> str:
        """The term of the warp's place along rows or columns, for products of `size`."""
        return "".join(f"{_product(text, size)} + " for text in self.plan.warp_digits(side))


def _product(text: str, size: int) -> str:
    return text if size == 1 else f"{text} * {size}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
