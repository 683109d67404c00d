"""Dots of windows by m16n8 products of warps: a batch of products, and operands of several taps along k.

for each in 2:                               products of a batch, or pairs of them
  for step in 2:                             32 bytes along k, of two taps if one has 16
    b_part = 8 filters of the product        ldmatrix, a row of any tap and filter from each lane
    for i in 4:                              16 pixels each
      acc[each, i] += a_part * b_part

Products of four columns come in pairs. Both are multiplied with the filters of both, and each thread keeps the sums of
one: a * b of the other product, which may be NaN, are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.windows import Window
from autosched.backends.cuda.language.index import grouped, scaled, sum_of
from autosched.backends.cuda.language.loops import UNROLL
from search_spaces.devices.features import Features
from search_spaces.workloads.dtypes import is_integer


@dataclass(frozen=True)
class WindowOperand:
    """A window, from byte `at` of shared memory on (a C expression that binds as tightly as a sum)."""

    window: Window
    at: str

    def of(self, product: str, place: str) -> str:
        """The address of this place of a product."""
        return sum_of(self.at, scaled(product, self.window.product_bytes), place)


@dataclass(frozen=True)
class WindowDot:
    """One dot, or a batch of them. `strides`: distances of rows, columns and products of the sums in registers."""

    plan: DotPlan
    acc: str
    strides: tuple[int, int, int]
    a: WindowOperand
    b: WindowOperand
    functions: Functions
    features: Features

    def lines(self) -> Iterator[str]:
        """The whole dot. Raises CompileError for windows whose rows are not along k."""
        if self.plan.along_k != (True, True):
            raise CompileError("a dot of windows of several products or taps has both operands along k")
        plan = self.plan
        product = scaled(grouped(sum_of(scaled("each", plan.product_warps), *plan.warp_digits(2))), plan.together)
        yield UNROLL
        yield f"for (int each = 0; each < {plan.own_products}; ++each) {{"
        yield f"    const int product = {product};"
        yield f"    {UNROLL}"
        yield f"    for (int step = 0; step < {plan.depth // plan.step}; ++step) {{"
        yield from _indented(self._columns(), 2)
        yield f"        {UNROLL}"
        yield f"        for (int i = 0; i < {plan.row_tiles}; ++i) {{"
        yield from _indented((*self._rows(), *self._multiplied()), 3)
        yield "        }"
        yield "    }"
        yield "}"

    def _columns(self) -> Iterator[str]:
        """Two registers of eight columns, of one product or of two."""
        plan, window = self.plan, self.b.window
        yield f"uint32 b_part[{plan.column_tiles}][2];"
        yield UNROLL
        yield f"for (int j = 0; j < {plan.column_tiles}; ++j) {{"
        number = "lane / 4" if window.in_words else "lane % 8"
        if plan.together > 1:
            row, product = f"{grouped(number)} % {plan.n}", f"(product + {grouped(number)} / {plan.n})"
        else:
            warp = [scaled(x, 8) for x in plan.warp_digits(1)]
            row, product = sum_of(scaled("j", 8 * plan.column_warps), *warp, number), "product"
        yield f"    const int row = {row};"
        if window.in_words:
            yield from _indented(self._words(self.b, product, ("b_part[j][0]", "b_part[j][1]")))
        else:
            place = window.chunk("row", "(step * 2 + lane / 8 % 2)")
            yield f"    {self._matrices(2)}(b_part[j], shared_at + {self.b.of(product, place)});"
            if window.ends_within_step:  # Both operands are 0 there, since 0 * NaN is NaN.
                yield f"    if (step == {plan.depth // plan.step - 1}) b_part[j][1] = 0;"
        yield from _indented(self._rounded("b_part[j]", 2))
        yield "}"

    def _rows(self) -> Iterator[str]:
        """Four registers of 16 rows of each product: rows 0 and 8 of the first half of a step, then of the second."""
        plan, window = self.plan, self.a.window
        yield f"uint32 a_part[{plan.together}][4];"
        yield UNROLL
        yield f"for (int t = 0; t < {plan.together}; ++t) {{"
        warp = [scaled(x, 16) for x in plan.warp_digits(0)]
        product = "(product + t)" if plan.together > 1 else "product"
        first = sum_of(scaled("i", 16 * plan.row_warps), *warp)
        if window.in_words:
            yield f"    {UNROLL}"
            yield "    for (int h = 0; h < 2; ++h) {"
            yield f"        const int row = {sum_of(first, 'lane / 4', 'h * 8')};"
            yield from _indented(self._words(self.a, product, ("a_part[t][h]", "a_part[t][h + 2]")), 2)
            yield "    }"
        else:
            yield f"    const int row = {sum_of(first, 'lane % 16')};"
            place = window.chunk("row", "(step * 2 + lane / 16)")
            load = f"(a_part[t], shared_at + {self.a.of(product, place)});"
            if window.ends_within_step:
                yield f"    if (step == {plan.depth // plan.step - 1})"
                yield f"        {self.functions.common('load_half')}{load}"
                yield "    else"
                yield f"        {self._matrices(4)}{load}"
            else:
                yield f"    {self._matrices(4)}{load}"
        yield from _indented(self._rounded("a_part[t]", 4))
        yield "}"

    def _multiplied(self) -> Iterator[str]:
        plan, (row, column, apart) = self.plan, self.strides
        name = self.functions.use(fn.multiply_name(plan), fn.multiply(plan, self.features))
        acc = sum_of(self.acc, scaled("each", apart), scaled("i", 2 * row))
        if plan.together == 1:
            yield UNROLL
            yield f"for (int j = 0; j < {plan.column_tiles}; ++j)"
            yield f"    {name}<{row}, {column}>({sum_of(acc, scaled('j', 2 * column))}, a_part[0], b_part[j]);"
            return
        kind = "int" if is_integer(plan.element) else "float"
        yield f"{kind}* const sums = {acc};"
        yield f"{kind} both[2][4];"
        yield UNROLL
        yield "for (int t = 0; t < 2; ++t) {"
        for n, place in enumerate((0, column, row, row + column)):
            yield f"    both[t][{n}] = sums[{place}];"
        yield f"    {name}<2, 1>(both[t], a_part[t], b_part[0]);"
        yield "}"
        for n, place in enumerate((0, column, row, row + column)):
            yield f"sums[{place}] = lane % 4 < 2 ? both[0][{n}] : both[1][{n}];"

    def _words(self, operand: WindowOperand, product: str, parts: tuple[str, str]) -> Iterator[str]:
        """The two words of a row of one tap, in the two halves of a step: of four taps, one in each of four lanes."""
        window = operand.window
        yield "const int tap = step * 4 + lane % 4;"
        place = operand.of(product, window.tap("row", "tap"))
        load = f"*reinterpret_cast<const uint2*>(shared + {place})"
        yield f"const uint2 words = tap < {window.taps} ? {load} : uint2{{}};"
        yield f"{parts[0]} = words.x, {parts[1]} = words.y;"

    def _matrices(self, count: int) -> str:
        return self.functions.use(fn.matrices_name(count, False), fn.matrices(count, False))

    def _rounded(self, part: str, count: int) -> Iterator[str]:
        if self.plan.element == "float32":
            yield UNROLL
            yield f"for (int h = 0; h < {count}; ++h) {part}[h] = {self.functions.common('round_tf32')}({part}[h]);"


def _indented(lines: Iterable[str], depth: int = 1) -> Iterator[str]:
    return (f"{'    ' * depth}{line}" for line in lines)
