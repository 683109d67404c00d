"""Dots of Volta by m16n16k16 products, whose sums have the device's own register layout (PTX ISA, wmma).

    sums                                 begin at 0 where the tile does
    for step: a_part, b_part = 16 rows, 16 columns each; sums[i, j] += a_part[i] * b_part[j]
    acc = sums                           by way of shared memory, 16 rows of every warp at a time

For tiles to which only dots add: the layout of mma.m8n8k4 is documented, but only Volta has it as an instruction;
an H200 takes 25 times as long with it as with this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.sources import Staged
from autosched.backends.cuda.language.index import grouped, scaled
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Layout, registers
from autosched.backends.cuda.registers.tiles import Held

# Padding of rows of sums in shared memory, in elements: 16 bytes, so that rows begin in other banks.
_PADDING = 4
# Sums that a thread reads at once.
_TOGETHER = 4


@dataclass(frozen=True)
class WmmaDot:
    """One dot, which adds to `sums`."""

    plan: DotPlan
    sums: str
    a: Staged
    b: Staged
    functions: Functions

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
        yield from (f"    {line}" for line in (self.parts(""), *self.take(""), *self.multiply("")))
        yield "}"

    def parts(self, sets: str) -> str:
        """Definitions of the operands of a step, or of several sets of them."""
        plan = self.plan
        return f"uint32 a_part{sets}[{plan.row_tiles}][8], b_part{sets}[{plan.column_tiles}][8];"

    def take(self, which: str) -> Iterator[str]:
        """Load the operands of `step`."""
        yield from self._take(0, f"a_part{which}[i]", "i", self.plan.row_tiles, self.plan.row_warps, self.a)
        yield from self._take(1, f"b_part{which}[j]", "j", self.plan.column_tiles, self.plan.column_warps, self.b)

    def _take(self, side: int, part: str, tile: str, count: int, warps: int, source: Staged) -> Iterator[str]:
        along_k = self.plan.along_k[side]
        name = self.functions.use(*fn.wmma_load("ab"[side], along_k))
        warp = "".join(f" + {text} * 16" for text in self.plan.warp_digits(side))
        free, k = f"({tile} * {16 * warps}{warp})", "step * 16"
        place = source.stage.element(free, k) if along_k else source.stage.element(k, free)
        pitch = source.stage.pitch // source.stage.element_bytes
        yield UNROLL
        yield f"for (int {tile} = 0; {tile} < {count}; ++{tile})"
        yield f"    {name}({part}, shared_at + {source.at} + {place}, {pitch});"

    def multiply(self, which: str) -> Iterator[str]:
        plan = self.plan
        name = self.functions.use(*fn.wmma_multiply(plan.along_k))
        yield UNROLL
        yield f"for (int i = 0; i < {plan.row_tiles}; ++i)"
        yield f"    {UNROLL}"
        yield f"    for (int j = 0; j < {plan.column_tiles}; ++j)"
        yield f"        {name}({self.sums}[i][j], a_part{which}[i], b_part{which}[j]);"


def sums_definition(plan: DotPlan, sums: str) -> str:
    return f"float {sums}[{plan.row_tiles}][{plan.column_tiles}][8] = {{}};"


def chunk_bytes(plan: DotPlan) -> int:
    """Bytes of 16 rows of every warp in shared memory."""
    return (plan.n if plan.turned else 16 * plan.row_warps) * _pitch(plan) * 4


def _pitch(plan: DotPlan) -> int:
    return (16 * plan.row_warps if plan.turned else plan.n) + _PADDING


def spread_sums(plan: DotPlan, sums: str, acc: Held, functions: Functions, printer: KernelPrinter) -> None:
    """Move the sums to `acc`, through shared memory."""
    store = functions.use(*fn.wmma_store(plan.turned))
    chunk = plan.chunk_layout
    slower, fastest = (plan.columns, plan.rows) if plan.turned else (plan.rows, plan.columns)
    pitch = _pitch(plan)
    scratch = printer.shared.scratch(chunk_bytes(plan))
    block = printer.block
    open_braces(block, f"{UNROLL}\nfor (int i = 0; i < {plan.row_tiles}; ++i)")
    block.write("__syncthreads();")
    at = {
        axis: " + ".join(f"{text} * 16" for text in plan.warp_digits(side)) or "0"
        for side, axis in enumerate(plan.axes)
    }
    at[plan.columns] = f"j * {16 * plan.column_warps} + {at[plan.columns]}"
    place = f"(({at[slower]}) * {pitch} + {at[fastest]}) * 4"
    address = f"shared_at + {scratch.removeprefix('shared + ')} + {place}"
    block.write(
        f"{UNROLL}\nfor (int j = 0; j < {plan.column_tiles}; ++j)\n    {store}({address}, {sums}[i][j], {pitch});"
    )
    printer.shared.meet()
    _read(plan, acc, chunk, (slower, fastest), f"{scratch}", pitch, printer)
    block.close()


def _read(
    plan: DotPlan, acc: Held, chunk: Layout, axes: tuple[str, str], scratch: str, pitch: int, printer: KernelPrinter
) -> None:
    """Read a thread's part of 16 rows of every warp."""
    slower, fastest = axes
    within = {x: grouped(printer.positions.within(x, chunk[x])) for x in axes}
    counting = dict(printer.tiles.at(axes, chunk))
    more = registers(chunk[plan.rows])
    row = counting[plan.rows]
    counting[plan.rows] = f"i * {more} + {row}" if row != "0" else scaled("i", more)
    pointer = f"reinterpret_cast<const float*>({scratch}) + {within[slower]} * {pitch} + {within[fastest]}"
    line = f"load<{_TOGETHER}, {acc.apart(fastest)}>({acc.address(counting)}, {pointer});"
    printer.tiles.each(chunk, axes, [line], {fastest: _TOGETHER})
