"""Loads of a loop's iteration to registers, as the words that memory has, this iteration's or the next one's.

    uint32 large_next[8]; bfloat16 scale_next[2];                         declared ahead of the loop
    load_words_once<16>(large_next + 4 * r_n, large_at + …);              loaded an iteration ahead
    memcpy(large_words, large_next, sizeof(large_words));                 at the beginning of their iteration
    scale[r_n] = widened(scale_words[r_n]);                               what is no operand of a dot becomes a tile

A conversion would wait for what it converts: words are as loaded until they are computed with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal

from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.language.index import grouped
from autosched.backends.cuda.language.operators import converted
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.language.types import memory_type
from autosched.backends.cuda.memory.moves import Move
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import registers
from search_spaces.devices.lanes import LOAD_BYTES
from search_spaces.programs.addressing import address
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import TileProgram
from search_spaces.workloads.dtypes import dtype

_WORDS = """\
template <int bytes>
__device__ __forceinline__ void NAME(void* to, const void* from, bool inside = true) {
    typename Words<bytes>::type words = {};
    if (inside) words = LOADED;
    memcpy(to, &words, bytes);
}"""
_LOADED = {
    "load_words": "*static_cast<const typename Words<bytes>::type*>(from)",
    "load_words_once": "__ldcs(static_cast<const typename Words<bytes>::type*>(from))",
}

Word = Literal["words", "next"]


@dataclass(frozen=True)
class RegisterWords:
    """The loads of one loop, by their tiles: `operands` of dots, whose words dots take, and `others`.

    `once`: operands that no other program reads. `copied`: operands that are in shared memory before their iteration.
    """

    operands: Mapping[str, Load]
    once: Set[str]
    copied: Set[str]
    others: Mapping[str, Load]
    program: TileProgram
    functions: Functions

    @property
    def _all(self) -> Mapping[str, Load]:
        return {**self.operands, **self.others}

    @property
    def _loaded(self) -> Mapping[str, Load]:
        return {name: s for name, s in self._all.items() if name not in self.copied}

    def name(self, tile: str, word: Word, printer: KernelPrinter) -> str:
        """The array of a tile's words."""
        return printer.identifiers.of((word, tile), f"{printer.tiles.name(tile)}_{word}")

    def function(self, name: str) -> str:
        """The function that loads words; `load_words_once`: what is read once."""
        return self.functions.use(name, _WORDS.replace("NAME", name).replace("LOADED", _LOADED[name]))

    def declare(self, word: Word, printer: KernelPrinter) -> None:
        """Declare this iteration's words, of all tiles, or the next one's."""
        for name, load in (self._all if word == "words" else self._loaded).items():
            layout, element = printer.tiles.layout(name), self.program.buffer(load.buffer).dtype
            kind, count = memory_type(element), math.prod(registers(layout[x]) for x in load.dst.axes)
            if name in self.operands:
                kind, count = "uint32", count * dtype(element).bytes // 4
            printer.block.write(f"{kind} {self.name(name, word, printer)}[{count}];")

    def move(self, source: Word, word: Word, printer: KernelPrinter) -> None:
        """Set words to those that were loaded ahead."""
        for name in self._loaded:
            to, of = (self.name(name, x, printer) for x in (word, source))
            printer.block.write(f"memcpy({to}, {of}, sizeof({to}));")

    def load(self, word: Word, printer: KernelPrinter) -> None:
        """Load an iteration's words, but those that are copied."""
        for name, s in self._loaded.items():
            buffer, layout = self.program.buffer(s.buffer), printer.tiles.layout(name)
            size, k = dtype(buffer.dtype).bytes, s.dst.axes[-1]
            place = printer.places.place(address(buffer, s.slices, printer.indexing.extents), layout)
            if name in self.operands:
                place = replace(place, axis=k, vector=min(layout[k][0].size, LOAD_BYTES // size))
            move = Move(s.dst, buffer, layout, place, printer.tiles.at(s.dst.axes, layout))
            if move.apart > 1:
                place = replace(place, vector=1)
                move = replace(move, place=place)
            to = f"{self.name(name, word, printer)} + {grouped(move.index)}"
            to += f" / {4 // size}" if name in self.operands and size < 4 else ""
            tests = [" && ".join(place.tests)] if place.tests else []
            function = self.function("load_words_once" if name in self.once else "load_words")
            line = call(f"{function}<{place.vector * size}>", to, printer.memory.pointer(move), *tests) + ";"
            printer.memory.each_vector(move, [line])

    def widen(self, printer: KernelPrinter) -> None:
        """Make tiles of the words that are no operands."""
        for name, s in self.others.items():
            held, source = printer.tiles.declare(s.dst), self.program.buffer(s.buffer).dtype
            at = printer.tiles.at(s.dst.axes, held.layout)
            word = f"widened({self.name(name, 'words', printer)}[{held.index(at)}])"
            line = f"{held.element(at)} = {converted(word, source, s.dst.dtype)};"
            printer.tiles.each(held.layout, s.dst.axes, [line])
