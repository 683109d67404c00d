"""Rows of dots that a warp group computes in registers, from what the producer loaded of them.

    read_part<…>(in1, …);                                 a thread's elements of its rows, from rows of the slot
    operand[…] = in1[…] * scale[…];                       computed like any other tile
    operand_words[i] = pack_bfloat16(operand[2 * i], …);  pairs along k, as the instructions read them
    dot_256_rk(acc, operand_words[0], …);

A thread has the rows of an operand that it has of sums, and of every 16 positions along k two neighbours of either half
(PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix A): the layout of sums, with k as their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.hopper import instructions
from autosched.backends.cuda.hopper.byte_rows import ByteRows, ByteWords
from autosched.backends.cuda.hopper.group_tiles import group_layout
from autosched.backends.cuda.hopper.ring import RingPlan
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.language.types import memory_type
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Layout, vector
from autosched.backends.cuda.registers.parts import after_digits
from autosched.backends.gpu.roles import refuse
from autosched.backends.gpu.warps import GROUP_ROWS
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.statements import Dot, Load, Statement, produced
from search_spaces.programs.tiles import Tile

# Positions along k of an instruction, and threads that share a row of these.
_STEP, _ACROSS = 16, 4
# Rows for each of a thread's.
_RUN = 32


def layouts(roles: ProductRoles) -> Mapping[str, Layout]:
    """The layouts of computed rows, and of what they are computed from."""
    found = dict[str, Layout]()
    for dot in roles.dots:
        row, k, computed = dot.dst.axes[0], dot.axis, {t.name: t for t in roles.computed}
        for name in {*roles.sides(dot)} & {*computed}:
            found[name] = group_layout(computed[name], (row, k))
    for tile in map(roles.fetched, roles.rows_read) if found else ():
        whole = next(iter(found.values()))
        parts = roles.computed[0].extent(roles.dot.axis) // tile.extent(roles.dot.axis)
        along = after_digits(whole[roles.dot.axis], parts)
        if along is None:
            refuse(roles.kernel, f"{parts} positions of each element of {tile.name}; expected one or two")
        found[tile.name] = {**whole, roles.dot.axis: along}
    return found


def words_of_thread(roles: ProductRoles) -> int:
    """Registers of a thread for the words of all computed rows."""
    threads = roles.units.threads
    return sum(t.elements // 2 for t in roles.computed) // threads


@dataclass(frozen=True)
class ComputedRows:
    """Prints such rows of a warp group; `functions` has what the text uses."""

    roles: ProductRoles
    ring: RingPlan
    printer: KernelPrinter
    functions: Functions

    @cached_property
    def _bytes(self) -> Mapping[str, ByteRows]:
        """The computed rows that are fields of bytes, by name."""
        share, row = self.roles.share, self.roles.dot.dst.axes[0]
        body = (*self.roles.rows_read, *share.before, *share.making)
        found = ((t.name, ByteRows.of(body, t, row)) for t in self.roles.computed)
        return {name: rows for name, rows in found if rows}

    @cached_property
    def _replaced(self) -> frozenset[str]:
        making = self.roles.share.making
        return frozenset(x for rows in self._bytes.values() for x in rows.replaced(making))

    def replaces(self, s: Statement) -> bool:
        """True if words take the place of what a statement computes."""
        return any(t.name in self._replaced for t in produced(s))

    def fetch(self, load: Load) -> None:
        """Read a group's rows of a slot into registers, unless their words are read there."""
        if load.dst.name in self._replaced:
            return
        roles, operand = self.roles, self.ring.operands[load.dst.name]
        tile = operand.operand.tile
        held = self.printer.tiles.declare(roles.fetched(load))
        row, k = roles.dot.dst.axes[0], roles.dot.axis
        sizes = (roles.rows, tile.row, vector(held.layout[k]), held.apart(row), held.apart(k))
        types = ", ".join(map(str, (memory_type(load.dst.dtype), *sizes)))
        name = self.functions.use("read_part", instructions.READ_PART)
        for piece, at in enumerate(self._pieces(load)):
            to = sum_of(held.name, str(piece * tile.row // _ACROSS * held.apart(k)))
            self.printer.block.write(call(f"{name}<{types}>", to, at, "warp", "lane") + ";")

    def _pieces(self, load: Load) -> Iterator[str]:
        """The addresses of a group's rows, in each piece of the slot's tile."""
        roles, operand = self.roles, self.ring.operands[load.dst.name]
        tile = operand.operand.tile
        share = roles.rows * tile.row_bytes if roles.shares_tile else 0
        for piece in range(tile.pieces):
            place = str(operand.place + piece * tile.piece_bytes)
            yield sum_of("shared + (here - shared_at)", place, scaled(HALF, share) if share else "0")

    def keep(self, dots: tuple[Dot, ...]) -> None:
        """Put computed rows into the words that instructions read."""
        row, k = self.roles.dot.dst.axes[0], self.roles.dot.axis
        for tile in self._of(dots):
            words, count = self.words(tile.name), tile.elements // (2 * self.roles.units.threads)
            self.printer.block.write(f"uint32 {words}[{count}];")
            if found := self._bytes.get(tile.name):
                load = found.fields[0].load
                row_bytes = self.ring.operands[load.dst.name].operand.tile.row_bytes
                made = ByteWords(found, self.printer, self.functions)
                made.write(words, row, tile.extent(row) // _RUN, row_bytes, [*self._pieces(load)])
                continue
            held = self.printer.tiles[tile.name]
            if held.apart(k) != 1:
                refuse(self.roles.kernel, f"{tile} does not run along {k}; expected that")
            name = self.functions.use(*fn.pack(self.roles.whole.multiplied, self.printer.features))
            line = f"{words}[i] = {call(name, f'{held.name}[2 * i]', f'{held.name}[2 * i + 1]')};"
            self.printer.block.write(f"{UNROLL}\nfor (int i = 0; i < {count}; ++i) {line}")

    def settle(self, dots: tuple[Dot, ...]) -> None:
        """Dots that ran have read their words."""
        for tile in self._of(dots):
            name = self.functions.use("words_read", instructions.WORDS_READ)
            self.printer.block.write(f"{name}({self.words(tile.name)});")

    def words(self, tile: str) -> str:
        """The array of a tile's words."""
        return self.printer.identifiers.of(("words", tile), f"{self.printer.tiles.name(tile)}_words")

    def operand(self, tile: str, step: int, row: int) -> list[str]:
        """The four words of an instruction's rows: two rows of either half of its positions along k."""
        computed = next(t for t in self.roles.computed if t.name == tile)
        depth = computed.extent(self.roles.dot.axis) // (2 * _ACROSS)
        first, pairs = row // GROUP_ROWS * 2, step * _STEP // (2 * _ACROSS)
        return [f"{self.words(tile)}[{(first + n % 2) * depth + pairs + n // 2}]" for n in range(4)]

    def _of(self, dots: tuple[Dot, ...]) -> Iterator[Tile]:
        multiplied = {x for d in dots for x in (d.a, d.b)}
        return (t for t in self.roles.computed if t.name in multiplied)
