"""Plan of a dot: its units, the part of each warp, and the layout of its accumulator in registers.

    wmma    wmma.m16n16k16: the layout of sums is undocumented, so only dots may add to them (Volta)
    volta   mma.m8n8k4, for all others there: a warp computes 16 x 16, four products of 8 x 8 side by side
    warp    mma.m16n8: a warp computes 16 x 8 at once (later ones)
    fma     every thread multiplies blocks of rows by blocks of columns

Dots that fit no unit (float32 as ieee, float64, tiles of odd sizes) are computed by fused multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.outer_products import outer_blocks
from autosched.backends.cuda.language.types import VECTOR_BYTES
from autosched.backends.cuda.registers.layouts import (
    Digit,
    Layout,
    Spread,
    registers,
    simplified,
    thread_digit,
    volta_columns,
    volta_rows,
    warp_mma_columns,
    warp_mma_rows,
)
from autosched.backends.gpu.warps import WARP
from search_spaces.devices.features import Features, multiplied
from search_spaces.programs.statements import Dot
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import dtype

# Bytes along k of the operands of one m16n8 product (PTX ISA, shapes of mma), and of one load of its operands.
STEP_BYTES = 32
# Products of m8n8k4 along k whose operands one load of 16 bytes covers.
VOLTA_STEP = 8
# Rows of the instruction of a quarter of a warp (m8n8k4).
_QUAD = (8, 8, 4)
# Bytes of elements that may be copied one by one.
_COPIED_ALONE = 4
# Lane digits of the four products that a warp of Volta computes at once.
_FIRST_QUAD, _SECOND_QUAD = Digit("lane", 2, 4), Digit("lane", 2, 8)
# Columns of an instruction of warps (m16n8).
_COLUMNS = 8
# Neighbours of a thread in a block of the accumulator, for fused multiply-adds: one load of 16 bytes covers them.
_BLOCK = 4

Kind = Literal["warp", "wmma", "volta", "fma"]


@dataclass(frozen=True)
class DotPlan:
    """A dot: its axes, where `rows` are those of the instruction, their extents, and its division among warps.

    `along_k`: for the operand with the rows and the one with the columns, true if neighbours along k are neighbours in
    shared memory. `turned`: the stored result has neighbours along the rows. `outer`: a sum of outer products, one for
    each k, by fused multiply-adds. `batch`: the axis of several products, or "", which warps divide among them, too.
    """

    kind: Kind
    rows: str
    columns: str
    k: str
    m: int
    n: int
    depth: int
    element: str
    warps: int
    row_warps: int
    column_warps: int
    along_k: tuple[bool, bool]
    turned: bool = False
    outer: bool = False
    batch: str = ""
    products: int = 1
    product_warps: int = 1

    @property
    def axes(self) -> tuple[str, str]:
        return self.rows, self.columns

    @property
    def element_bytes(self) -> int:
        return dtype(self.element).bytes

    @property
    def step(self) -> int:
        """Products along k of operands that are loaded at once."""
        if self.kind == "fma":
            return 1 if self.outer else math.gcd(self.depth, _BLOCK)
        return VOLTA_STEP if self.kind == "volta" else STEP_BYTES // self.element_bytes

    @property
    def row_tiles(self) -> int:
        """Instructions along the rows that a warp issues for one step."""
        return self.m // (16 * self.row_warps)

    @property
    def column_tiles(self) -> int:
        return self.n * self.together // ((_COLUMNS if self.kind == "warp" else 16) * self.column_warps)

    @property
    def together(self) -> int:
        """Products of the batch whose columns are those of one instruction: two of four columns, or one."""
        return 2 if self.batch and 2 * self.n == _COLUMNS else 1

    @property
    def own_products(self) -> int:
        """Products of the batch, or pairs of them, that a warp computes."""
        return self.products // (self.together * self.product_warps)

    @property
    def sums(self) -> int:
        """Accumulators of a thread."""
        return math.prod(self.registers) * self.own_products

    @cached_property
    def spreads(self) -> tuple[Spread, Spread]:
        """Spreads of the rows and columns of the accumulator."""
        second = self.row_warps
        match self.kind:
            case "warp":
                columns = warp_mma_columns(self.n * self.together, self.column_warps, second)
                of_one = columns if self.together == 1 else simplified((Digit("register", 2), Digit("lane", 2)))
                return warp_mma_rows(self.m, self.row_warps), of_one
            case "volta":
                return (
                    volta_rows(self.m, (_FIRST_QUAD,), self.row_warps),
                    volta_columns(self.n, (_SECOND_QUAD,), self.column_warps, second),
                )
            case "wmma":
                rows, columns = (self.chunk_layout[x] for x in self.axes)
                return simplified((*rows, Digit("register", self.row_tiles))), columns
            case "fma":
                extents, warps = (self.m, self.n), (self.row_warps, self.column_warps)
                if self.outer:
                    return outer_blocks(extents, warps, VECTOR_BYTES // self.element_bytes)
                return _blocks(extents, self.along_k, warps)

    @cached_property
    def chunk_layout(self) -> Layout:
        """Layout of 16 rows of every warp, in which wmma's sums are given to threads: in lines of the cache.

        Parts along the axis of these lines are parts of a thread's registers.
        """
        extents = {self.rows: 16 * self.row_warps, self.columns: self.n}
        slower, fastest = self.axes[::-1] if self.turned else self.axes
        held = math.gcd(extents[fastest], 2 * _BLOCK)
        lanes = math.gcd(extents[fastest] // held, 2 * _BLOCK)
        others = math.gcd(extents[slower], WARP // lanes)
        most = math.gcd(extents[slower] // others, self.warps)
        beside = math.gcd(extents[fastest] // (held * lanes), self.warps // most)
        along = (Digit("register", held), Digit("lane", lanes), Digit("warp", beside, most))
        across = (Digit("lane", others, lanes), Digit("warp", most))
        rest = {
            slower: extents[slower] // (others * most),
            fastest: extents[fastest] // (held * lanes * beside),
        }
        return {
            fastest: simplified((*along, Digit("register", rest[fastest]))),
            slower: simplified((*across, Digit("register", rest[slower]))),
        }

    @property
    def layout(self) -> Layout:
        """Layout of the accumulator."""
        beside = Digit("lane", self.together, _COLUMNS // (2 * self.together))
        batch = simplified((beside, self._of_warps[2], Digit("register", self.own_products)))
        of_batch = {self.batch: batch} if self.batch else {}
        return of_batch | dict(zip((self.rows, self.columns), self.spreads, strict=True))

    @property
    def part_registers(self) -> int:
        """Registers of a thread for the operands of one step, at least."""
        match self.kind:
            case "warp":
                # Rows of a batch are loaded one after the other.
                return 4 * (self.together if self.batch else self.row_tiles) + 2 * self.column_tiles
            case "wmma" | "volta":
                return 4 * (self.row_tiles + self.column_tiles)
            case "fma":
                return sum(self.registers)

    def takes_registers(self, tile: Tile, layout: Layout) -> bool:
        """True if the dot can multiply a tile in this layout directly as its rows."""
        rows = self.kind == "warp" and self.element_bytes == 2 and self.rows in tile.axes
        return rows and layout[self.rows] == self.spreads[0] and layout[self.k] == warp_mma_columns(self.depth)

    @property
    def _of_warps(self) -> tuple[Digit, Digit, Digit]:
        """Digits of a warp: along rows, along columns, and along the batch."""
        along = (self.row_warps, self.column_warps, self.product_warps)
        return (
            Digit("warp", along[0]),
            Digit("warp", along[1], along[0]),
            Digit("warp", along[2], along[0] * along[1]),
        )

    def warp_digits(self, side: int) -> list[str]:
        """The place of a warp along rows, columns or the batch (side 0, 1 or 2): at most one C expression."""
        digit = self._of_warps[side]
        return [thread_digit(digit, self.warps)] if digit.size > 1 else []

    @property
    def registers(self) -> tuple[int, int]:
        """Elements of a thread along rows and columns of the accumulator."""
        rows, columns = self.spreads
        return registers(rows), registers(columns)


def dot_plans(
    dots: Sequence[Dot],
    tiles: Mapping[str, Tile],
    fastest: Mapping[str, str],
    sums: Mapping[str, str],
    warps: int,
    features: Features,
) -> list[DotPlan]:
    """The plans of the dots of a kernel on a device with these features.

    `fastest`: the axis of every operand along which neighbours are neighbours in memory; `sums`: the same for the
    stored results of tiles to which only dots add.

    Dots with the same rows divide them among warps alike: their results are used together. If one multiplies another's
    result, every warp has rows of its own if that leaves none idle: they then stay in its registers.
    """
    alone = [_plan(dot, tiles, fastest, features, warps) for dot in dots]
    for dot, plan in zip(dots, alone, strict=True):
        same = [f for d, f in zip(dots, alone, strict=True) if d.dst.name == dot.dst.name]
        if dot.dst.name in sums and all(f.kind == "volta" and f.depth % 16 == 0 and f.rows == plan.rows for f in same):
            alone = [replace(f, kind="wmma", turned=sums[dot.dst.name] == f.rows) if f in same else f for f in alone]
    found = []
    for plan in alone:
        beside = [f for f in alone if (f.kind, f.rows, f.m) == (plan.kind, plan.rows, plan.m)]
        chained = any(f.k in (g.rows, g.columns) for f in beside for g in beside)
        rows, columns, products = _arrangement(plan.kind, beside, warps, chained)
        outer = are_outer(alone, False)
        found.append(replace(plan, row_warps=rows, column_warps=columns, product_warps=products, outer=outer))
    return found


def are_outer(plans: Sequence[DotPlan], transposed: bool) -> bool:
    """True if all dots of a kernel are sums of outer products of the same rows and columns.

    `transposed`: operands that are read along k may be transposed. Copies are then of single elements, of the four
    bytes that are copied asynchronously at least (PTX ISA, cp.async).
    """
    alike = len({(f.rows, f.columns, f.m, f.n) for f in plans}) == 1
    whole = all(f.kind == "fma" and f.element_bytes >= _COPIED_ALONE for f in plans)
    return alike and whole and (transposed or not any(any(f.along_k) for f in plans))


def _plan(dot: Dot, tiles: Mapping[str, Tile], fastest: Mapping[str, str], features: Features, warps: int) -> DotPlan:
    """The plan of a dot, not yet divided among warps. Raises CompileError for a batch without instructions of warps."""
    *batch, rows, columns = dot.dst.axes
    *products, m, n = dot.dst.shape
    a, b = (tiles[dot.a], tiles[dot.b]) if rows in tiles[dot.a].axes else (tiles[dot.b], tiles[dot.a])
    depth, element = a.extent(dot.axis), a.dtype
    along_k = (fastest[a.name] == dot.axis, fastest[b.name] == dot.axis)
    kind = _kind(multiplied(element, dot.precision), features)
    pairs = batch and kind == "warp" and 2 * n == _COLUMNS and products[0] % 2 == 0
    tiled = (m, 2 * n if pairs else n), (n, m)
    whole, turned = (_fits(kind, *x, depth, dtype(element).bytes) for x in tiled)
    if not whole and turned:
        rows, columns, m, n, along_k = columns, rows, n, m, along_k[::-1]
    kind = kind if whole or turned else "fma"
    plan = DotPlan(kind, rows, columns, dot.axis, m, n, depth, element, warps, 1, 1, along_k)
    if not batch:
        return plan
    if kind != "warp" or len(batch) > 1:
        raise CompileError(f"{dot.dst} is of several products; only products of warps are, in a batch of one axis")
    return replace(plan, batch=batch[0], products=products[0])


def _kind(element: str, features: Features) -> Kind:
    shapes = [(i.m, i.n, i.k) for i in features.multiplying(element, "registers")]
    if not shapes:
        return "fma"
    return "volta" if _QUAD in shapes else "warp"


def _fits(kind: Kind, m: int, n: int, depth: int, element_bytes: int) -> bool:
    """True if tiles of these extents are whole instructions."""
    if kind in ("volta", "wmma"):
        return m % 16 == n % 16 == depth % (16 if kind == "wmma" else VOLTA_STEP) == 0
    return m % 16 == n % 8 == depth * element_bytes % STEP_BYTES == 0


def _arrangement(kind: Kind, plans: Sequence[DotPlan], warps: int, whole_rows: bool) -> tuple[int, int, int]:
    """Warps along rows, columns and products: the division that reads the least, of those with the most warps.

    `whole_rows`: no two side by side in a row, if that leaves none idle.
    """
    row, column = {"warp": (16, 8), "wmma": (16, 16), "volta": (16, 16), "fma": (2 * _BLOCK, 2 * _BLOCK)}[kind]
    if kind == "fma":
        row, column = (math.gcd(size, *(x for f in plans for x in (f.m, f.n))) for size in (row, column))
    found = [
        (r, c, p)
        for r, c, p in _factors(warps)
        if all(f.m % (row * r) == f.n * f.together % (column * c) == f.products % (f.together * p) == 0 for f in plans)
    ]
    if whole_rows and (warps, 1, 1) in found:
        return warps, 1, 1

    def read(r: int, c: int, p: int) -> int:
        return sum((f.m // r + f.n // c) * (f.products // p) for f in plans)

    return max(found, key=lambda x: (math.prod(x), -read(*x), x[0]))


def _factors(warps: int) -> Iterator[tuple[int, int, int]]:
    """All triples of numbers whose product divides the number of warps."""
    for rows in range(1, warps + 1):
        for columns in range(1, warps // rows + 1):
            for products in range(1, warps // (rows * columns) + 1):
                if warps % (rows * columns * products) == 0:
                    yield rows, columns, products


def _blocks(extents: tuple[int, int], along_k: tuple[bool, bool], warps: tuple[int, int]) -> tuple[Spread, Spread]:
    """Blocks of rows by columns for threads that multiply them by themselves.

    Neighbours in shared memory are neighbours in registers, so that they are loaded in vectors; in operands read along
    k, neighbours are in neighbouring lanes, which then read from different banks.
    """
    left = [extents[0] // warps[0], extents[1] // warps[1]]
    blocks = [1 if k else math.gcd(size, _BLOCK) for size, k in zip(left, along_k, strict=True)]
    lanes = [math.gcd(left[0] // blocks[0], 4), 1]
    lanes[1] = math.gcd(left[1] // blocks[1], WARP // lanes[0])
    lanes[0] = math.gcd(left[0] // blocks[0], WARP // lanes[1])
    places = ((1, 1), (lanes[0], warps[0]))
    rows, columns = (
        simplified(
            (
                Digit("register", blocks[i]),
                Digit("lane", lanes[i], places[i][0]),
                Digit("warp", warps[i], places[i][1]),
                Digit("register", left[i] // (blocks[i] * lanes[i])),
            )
        )
        for i in range(2)
    )
    return rows, columns
