"""Scans along an axis of a tile, digit by digit of its layout, from the least significant one on.

Before each digit, elements are scanned within blocks that the lower digits count, and all threads of a block have its
total. The digit then joins its blocks into one: totals are scanned along it, by a thread in its registers, by lanes
with shuffles, by warps through shared memory, and the total before a block is joined to all of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.cuda.language.index import grouped, scaled, sum_of
from autosched.backends.cuda.language.operators import converted, mapped
from autosched.backends.cuda.language.types import element_bytes, held_dtype, held_type
from autosched.backends.cuda.registers.layouts import Digit, registers, simplified, thread_digit, weighted
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.registers.tiles import Held, Tiles
from autosched.backends.printing.scope import INDENT
from search_spaces.programs.statements import Combination, Scan

_ALL = "0xffffffffu"


@dataclass(frozen=True)
class _Walk:
    """State of a scan while it is printed: of these tiles by a device function.

    Blocks have `length` registers and `positions` positions.
    """

    function: str
    tiles: Sequence[Held]
    totals: Sequence[Held]
    axis: str
    reverse: bool
    rest: Mapping[str, str]
    length: int = 1
    positions: int = 1

    @property
    def blocks(self) -> int:
        return registers(self.tiles[0].layout[self.axis]) // self.length

    def elements(self, number: str) -> list[str]:
        return [t.element({**self.rest, self.axis: number}) for t in self.tiles]

    def totals_at(self, number: str) -> list[str]:
        return [t.element({**self.rest, self.axis: number}) for t in self.totals]

    def types(self) -> list[str]:
        return [held_type(t.tile.dtype) for t in self.tiles]

    def join(self, left: Sequence[str], right: Sequence[str]) -> str:
        """The statement that makes `right` the two values joined."""
        return f"{self.function}({', '.join((*left, *right))});"

    def join_block(self, before: Sequence[str], block: str) -> list[str]:
        """Statements that join the total before a block to its elements."""
        if self.length == 1:
            return [self.join(before, self.elements(block))]
        own = sum_of(scaled(block, self.length), "i")
        return ["#pragma unroll", f"for (int i = 0; i < {self.length}; ++i) {self.join(before, self.elements(own))}"]


class Scans:
    """Prints the scans of one kernel. `functions`: those that join two elements, for every scan."""

    def __init__(self, tiles: Tiles, positions: Positions, shared: SharedMemory, warps: int) -> None:
        self._tiles = tiles
        self._positions = positions
        self._shared = shared
        self._warps = warps
        self.functions: list[str] = []

    def scan(self, s: Scan, given: Sequence[Held], kernel: str) -> None:
        """Print a scan of tiles, which are in the layout of the first result. `kernel`: its name."""
        layout = self._tiles.layout(s.dsts[0].name)
        dsts = []
        for source, tile in zip(given, s.dsts, strict=True):
            dst = self._tiles.declare(tile)
            at = self._tiles.at(tile.axes, layout)
            value = converted(source.element(at), source.tile.dtype, held_dtype(tile.dtype))
            if value != dst.element(at):
                self._tiles.each(layout, tile.axes, [f"{dst.element(at)} = {value};"])
            dsts.append(dst)
        function = f"join_{kernel}_{dsts[0].name}"
        self.functions.append(_joining(function, s.combine))
        totals = []
        for dst in dsts:
            total = self._tiles.temporary(dst.tile, f"{dst.name}_total", layout)
            at = self._tiles.at(dst.tile.axes, layout)
            self._tiles.each(layout, dst.tile.axes, [f"{total.element(at)} = {dst.element(at)};"])
            totals.append(total)
        rest = {x: text for x, text in self._tiles.at(dsts[0].tile.axes, layout).items() if x != s.axis}
        walk = _Walk(function, dsts, totals, s.axis, s.reverse, rest)
        length = 1
        for digit, positions in weighted(simplified(layout[s.axis])):
            at_digit = _Walk(function, dsts, walk.totals, s.axis, s.reverse, rest, length, positions)
            match digit.kind:
                case "register":
                    self._along_registers(at_digit, digit)
                    length *= digit.size
                case "lane":
                    self._along_lanes(at_digit, digit)
                case "warp":
                    self._along_warps(at_digit, digit)

    def _each_block(self, walk: _Walk, blocks: int, lines: Sequence[str]) -> None:
        """Write the lines for every row, and for every block `g` of it."""
        loop = f"for (int g = 0; g < {blocks}; ++g) {{"
        inner = [INDENT + line for line in lines]
        axes = list(walk.rest)
        self._tiles.each(walk.tiles[0].layout, axes, ["\n".join(["#pragma unroll", loop, *inner, "}"])])

    def _along_registers(self, walk: _Walk, digit: Digit) -> None:
        size, kinds = digit.size, walk.types()
        first, at = (
            (f"g * {size} + {size - 1}", f"g * {size} + {size - 1} - j")
            if walk.reverse
            else (
                f"g * {size}",
                f"g * {size} + j",
            )
        )
        run = [f"run_{n}" for n in range(len(kinds))]
        then = [f"next_{n}" for n in range(len(kinds))]
        lines = [f"{k} {r} = {t};" for k, r, t in zip(kinds, run, walk.totals_at(first), strict=True)]
        inner = walk.join_block(run, f"({at})")
        inner += [f"{k} {n} = {t};" for k, n, t in zip(kinds, then, walk.totals_at(at), strict=True)]
        inner += [walk.join(run, then), *(f"{r} = {n};" for r, n in zip(run, then, strict=True))]
        lines += ["#pragma unroll", f"for (int j = 1; j < {size}; ++j) {{", *(INDENT + i for i in inner), "}"]
        lines += [f"{t} = {r};" for t, r in zip(walk.totals_at("g"), run, strict=True)]
        self._each_block(walk, walk.blocks // size, lines)

    def _along_lanes(self, walk: _Walk, digit: Digit) -> None:
        kinds, place = walk.types(), digit.place
        move = "__shfl_down_sync" if walk.reverse else "__shfl_up_sync"
        number = self._number(digit, walk.reverse)
        whole = (digit.size - 1) * place
        last = f"lane & ~{whole}" if walk.reverse else f"lane | {whole}"
        run = [f"run_{n}" for n in range(len(kinds))]
        left = [f"left_{n}" for n in range(len(kinds))]
        lines = [f"{k} {r} = {t};" for k, r, t in zip(kinds, run, walk.totals_at("g"), strict=True)]
        moved = [
            f"const {k} {x} = {move}({_ALL}, {r}, apart * {place});" for k, x, r in zip(kinds, left, run, strict=True)
        ]
        inner = [*moved, f"if ({number} >= apart) {walk.join(left, run)}"]
        lines += ["#pragma unroll", f"for (int apart = 1; apart < {digit.size}; apart *= 2) {{"]
        lines += [*(INDENT + i for i in inner), "}"]
        lines += [f"const {k} {x} = {move}({_ALL}, {r}, {place});" for k, x, r in zip(kinds, left, run, strict=True)]
        lines += [f"if ({number} > 0) {{", *(INDENT + i for i in walk.join_block(left, "g")), "}"]
        lines += [f"{t} = __shfl_sync({_ALL}, {r}, {last});" for t, r in zip(walk.totals_at("g"), run, strict=True)]
        self._each_block(walk, walk.blocks, lines)

    def _along_warps(self, walk: _Walk, digit: Digit) -> None:
        """All warps write their totals, and each joins those that come before it."""
        kinds, first = walk.types(), walk.tiles[0]
        rows = first.tile.elements // first.tile.extent(walk.axis)
        count = first.tile.elements // walk.positions
        places, size = [], 0
        for t in walk.tiles:
            places.append(size)
            size += -(-count * element_bytes(held_dtype(t.tile.dtype)) // 16) * 16
        scratch = self._shared.scratch(size)
        pointers = [f"reinterpret_cast<{k}*>({sum_of(scratch, str(p))})" for k, p in zip(kinds, places, strict=True)]
        spread = first.layout[walk.axis]
        block = self._positions.within_at(walk.axis, spread, f"g * {walk.length}" if walk.length > 1 else "g")
        row, apart = list[str](), 1
        for x in reversed([*walk.rest]):
            row.append(scaled(self._positions.within(x, first.layout[x]), apart))
            apart *= first.tile.extent(x)
        own = sum_of(scaled(f"{grouped(block)} / {walk.positions}", rows), *row)
        totals = walk.totals_at("g")
        self._each_block(walk, walk.blocks, [f"{p}[{own}] = {t};" for p, t in zip(pointers, totals, strict=True)])
        self._shared.meet()
        number = self._number(digit, walk.reverse)
        at = f"{digit.size - 1} - j" if walk.reverse else "j"
        begin = scaled(f"{grouped(block)} / {walk.positions * digit.size}", digit.size)
        other = sum_of(scaled(sum_of(begin, at), rows), *row)
        run = [f"run_{n}" for n in range(len(kinds))]
        before = [f"before_{n}" for n in range(len(kinds))]
        then = [f"next_{n}" for n in range(len(kinds))]
        lines = [f"{k} {r}, {b};" for k, r, b in zip(kinds, run, before, strict=True)]
        inner = [f"{k} {n} = {p}[{other}];" for k, n, p in zip(kinds, then, pointers, strict=True)]
        kept = " ".join(f"{b} = {r};" for b, r in zip(before, run, strict=True))
        inner += [f"if (j > 0 && j == {number}) {{ {kept} }}", f"if (j > 0) {walk.join(run, then)}"]
        inner += [f"{r} = {n};" for r, n in zip(run, then, strict=True)]
        lines += ["#pragma unroll", f"for (int j = 0; j < {digit.size}; ++j) {{", *(INDENT + i for i in inner), "}"]
        lines += [f"if ({number} > 0) {{", *(INDENT + i for i in walk.join_block(before, "g")), "}"]
        lines += [f"{t} = {r};" for t, r in zip(totals, run, strict=True)]
        self._each_block(walk, walk.blocks, lines)

    def _number(self, digit: Digit, reverse: bool) -> str:
        """The value of a digit, counted from the start of the scan."""
        text = thread_digit(digit, self._warps)
        return f"{digit.size - 1} - {text}" if reverse else grouped(text)


def _joining(function: str, combine: Combination) -> str:
    """A device function that sets the right values to the combination of both."""
    names = {t.name: (f"left_{n}", t.dtype) for n, t in enumerate(combine.left)}
    names |= {t.name: (f"right_{n}", t.dtype) for n, t in enumerate(combine.right)}
    parameters = [f"const {held_type(t.dtype)} left_{n}" for n, t in enumerate(combine.left)]
    parameters += [f"{held_type(t.dtype)}& right_{n}" for n, t in enumerate(combine.right)]
    lines = []
    for n, s in enumerate(combine.body):
        value = mapped(s, [names[a] if isinstance(a, str) else a for a in s.arguments])
        lines.append(f"const {held_type(s.dst.dtype)} t{n} = {value};")
        names[s.dst.name] = (f"t{n}", s.dst.dtype)
    for n, (name, tile) in enumerate(zip(combine.results, combine.right, strict=True)):
        value, dtype = names[name]
        lines.append(f"const {held_type(tile.dtype)} result_{n} = {converted(value, dtype, tile.dtype)};")
    lines += [f"right_{n} = result_{n};" for n in range(len(combine.results))]
    head = f"__device__ __forceinline__ void {function}({', '.join(parameters)}) {{"
    return "\n".join([head, *(INDENT + line for line in lines), "}"]) + "\n"
