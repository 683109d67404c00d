"""Dots of what lanes loaded themselves, by m16n8k16 products of warps (`statements.Dot.from_memory`).

    load_words_once<16>(large_words + …, large_at + …);       16 bytes along k of a row, for each of four lanes
    load_words<16>(rows_words + …, rows_at + …);              the same positions of k of a column
    for step in 4 positions along k of a lane:
      a_part = pairs of large_words; b_part = pairs of rows_words
      for i, j: acc[i, j] += a_part[i] * b_part[j]

An instruction sums over 16 positions, four of each of four lanes; which of k these are is nothing to it, as long as
both operands agree. Words are loaded as they are. Bytes become pairs of floats by their bits: a field of a few is put
into the mantissas of 128 or 1024, from which a constant is subtracted; so the pairs of a word are its bytes 0 and 2,
and 1 and 3, and those of the other operand are as far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.memory.moves import Move
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Digit, Layout, registers, simplified
from search_spaces.devices.features import Features
from search_spaces.devices.lanes import ACROSS, ALONG, LOAD_BYTES, STEP, run_of
from search_spaces.programs.addressing import address
from search_spaces.programs.bit_fields import BitField, field_operand, made_by
from search_spaces.programs.statements import (
    Deinterleave,
    Dot,
    Fill,
    For,
    Interleave,
    Load,
    Statement,
    View,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.workloads.dtypes import dtype

# A number in whose mantissa a field of bits is a distance from it, its bits and those of 1: of each half of a word.
_BASES = {"bfloat16": (128, 0x4300, 0x3F80), "float16": (1024, 0x6400, 0x3C00)}
# Types of pairs (PTX ISA, fma).
_SHORT = {"bfloat16": "bf16", "float16": "f16"}

_WORDS = """\
template <int bytes>
__device__ __forceinline__ void NAME(uint32* to, const void* from, bool inside = true) {
    typename Words<bytes>::type words = {};
    if (inside) words = LOADED;
    memcpy(to, &words, bytes);
}"""
_FIELDS = """\
// Bits of both halves of a word as numbers, and a constant added.
template <uint32 mask>
__device__ __forceinline__ uint32 fields_{element}(uint32 bits, uint32 added) {{
    uint32 x;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(x) : "r"(bits), "n"(mask), "r"({base}u));
    asm("fma.rn.{short}x2 %0, %0, %1, %2;" : "+r"(x) : "r"({one}u), "r"(added));
    return x;
}}"""
_SIGNED = """\
// The lower bytes of both halves of a word as signed numbers: seven bits, less 128 where the eighth is set.
__device__ __forceinline__ uint32 signed_{element}(uint32 bits) {{
    uint32 x, y;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(x) : "r"(bits), "r"(0x007f007fu), "r"({base}u));
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(y) : "r"(bits), "r"(0x00800080u), "r"({base}u));
    asm("fma.rn.{short}x2 %0, %1, %2, %3;" : "=r"(x) : "r"(y), "r"({minus_one}u), "r"(x));
    return x;
}}"""

_LESS = """\
__device__ __forceinline__ uint32 less_{element}(uint32 x, uint32 y) {{
    asm("fma.rn.{short}x2 %0, %1, %2, %0;" : "+r"(x) : "r"(y), "r"({minus_one}u));
    return x;
}}"""


@dataclass(frozen=True)
class _Operand:
    """The words of a load: the values of one `digit` of every `digits`, or a `field` of each byte, less `zeros`."""

    load: Load
    digit: int = 0
    digits: int = 1
    field: BitField | None = None
    zeros: str = ""

    @property
    def size(self) -> int:
        return dtype(self.load.dst.dtype).bytes


class RegisterDots:
    """The `Products` of a kernel whose dots take operands from the registers that they were loaded to.

    Raises:
        CompileError: dots are of other kinds, too, or of operands that words do not hold.
    """

    def __init__(self, program: TileProgram, kernel: Kernel, features: Features) -> None:
        self._program, self._features, self._warps = program, features, kernel.launch.num_warps
        self._functions = Functions()
        loops = [s for s in kernel.body if isinstance(s, For) and any(isinstance(x, Dot) for x in s.body)]
        dots = [s for s in statements(kernel.body) if isinstance(s, Dot)]
        if len(loops) != 1 or not all(s.from_memory and s in loops[0].body for s in dots):
            raise CompileError(
                f"dots of what lanes loaded, and others; expected one loop with the former: {kernel.name}"
            )
        self._body = loops[0].body
        # Of each dot, by its two operands: the instruction's rows, and its columns.
        self._operands = {(s.a, s.b): (self._operand(s.a), self._operand(s.b)) for s in dots}
        self._plans = {(s.a, s.b): self._plan(s) for s in dots}
        self._sums = {s.dst.name: self._plans[s.a, s.b] for s in dots}
        self._loads = {x.load.dst.name: x.load for pair in self._operands.values() for x in pair}
        made = {s.dst.name for d in dots for x in (d.a, d.b) for s in made_by(self._body, x)}
        parts = {t.name for s in self._body if isinstance(s, Deinterleave) and s.src in self._loads for t in s.dst}
        self._unprinted = {*self._loads, *made, *parts}

    def _operand(self, name: str) -> _Operand:
        """The load of an operand, and its part of the words."""
        loads = {s.dst.name: s for s in self._body if isinstance(s, Load)}
        parts = {t.name: (s, n) for s in self._body if isinstance(s, Deinterleave) for n, t in enumerate(s.dst)}
        if name in loads:
            return _Operand(loads[name])
        if name in parts and parts[name][0].src in loads:
            s, digit = parts[name]
            return _Operand(loads[s.src], digit, len(s.dst))
        found = field_operand(self._body, name)
        if found is None:
            raise CompileError(f"{name} is neither as loaded nor a field of bytes")
        return _Operand(found.load, field=found.field, zeros=found.zeros.dst.name if found.zeros else "")

    def _plan(self, s: Dot) -> DotPlan:
        a, b = self._operands[s.a, s.b]
        (batch, rows, columns), (count, m, n) = s.dst.axes, s.dst.shape
        element = next((t.dtype for t in (a.load.dst, b.load.dst) if t.dtype in _BASES), "")
        if rows not in a.load.dst.axes or m % 16 or n % ACROSS or count != self._warps or not element:
            raise CompileError(f"{s.dst} += dot({s.a}, {s.b}): no products of 16 by 8 of 16-bit floats for each warp")
        depth = a.load.dst.extent(s.axis)
        plan = DotPlan("warp", rows, columns, s.axis, m, n, depth, element, self._warps, 1, 1, (True, True))
        return replace(plan, batch=batch, products=count, product_warps=count)

    @property
    def anchored(self) -> Mapping[str, Layout]:
        words = {
            x.load.dst.name: self._layout(x, pair[0], self._plans[dot])
            for dot, pair in self._operands.items()
            for x in pair
        }
        return {**{name: plan.layout for name, plan in self._sums.items()}, **words}

    def _layout(self, operand: _Operand, large: _Operand, plan: DotPlan) -> Layout:
        """Whole loads of every lane along k; lanes and registers across it."""
        batch, k = plan.batch, plan.k
        shape = dict(zip(operand.load.dst.axes, operand.load.dst.shape, strict=True))
        (own,) = shape.keys() - {batch, k}
        run = run_of(large.load.dst.extent(k), large.size) * operand.digits
        return {
            batch: simplified((Digit("warp", shape[batch]),)),
            own: simplified((Digit("lane", ACROSS, ALONG), Digit("register", shape[own] // ACROSS))),
            k: simplified((Digit("register", run), Digit("lane", ALONG), Digit("register", shape[k] // (run * ALONG)))),
        }

    @property
    def functions(self) -> list[str]:
        return [*self._functions.texts.values()]

    def load(self, s: Load | View | Fill | Interleave, printer: KernelPrinter) -> bool:
        return s.dst.name in self._loads

    def printed(self, s: Statement, printer: KernelPrinter) -> None:
        pass

    def loop(self, s: For, turns: Iterations, printer: KernelPrinter) -> bool:
        """Print the loop with the loads of one iteration ahead, if it has stages, in registers."""
        if s.body is not self._body:
            return False
        block, ahead = printer.block, s.pipeline_stages > 1 and s.extent > 1
        rest = [x for x in s.body if not self._is_printed_here(x)]
        open_braces(block, "")
        if ahead:
            self._declare("next", printer)
            open_braces(block, "")
            block.write(f"const int {turns.counter} = {turns.first};")
            self._bring("next", printer)
            block.close()
        turns.open_loop(block, turns.first, turns.end, unroll=1)
        with printer.shared.repeated():
            self._declare("words", printer)
            if ahead:
                for name in self._loads:
                    now, then = self._name(name, "words", printer), self._name(name, "next", printer)
                    block.write(f"memcpy({now}, {then}, sizeof({now}));")
                open_braces(block, f"if ({turns.counter} + 1 < {turns.end})")
                block.write(f"const int ahead = {turns.counter} + 1;")
                open_braces(block, "")
                block.write(f"const int {turns.counter} = ahead;")
                self._bring("next", printer)
                block.close()
                block.close()
            else:
                self._bring("words", printer)
            printer.body(rest)
        block.close()
        block.close()
        return True

    def _is_printed_here(self, s: Statement) -> bool:
        if isinstance(s, Deinterleave):
            return s.src in self._loads
        return any(t.name in self._unprinted for t in produced(s))

    def _name(self, tile: str, word: str, printer: KernelPrinter) -> str:
        return printer.identifiers.of((word, tile), f"{printer.tiles.name(tile)}_{word}")

    def _declare(self, word: str, printer: KernelPrinter) -> None:
        for name, load in self._loads.items():
            layout = printer.tiles.layout(name)
            elements = np.prod([registers(layout[x]) for x in load.dst.axes])
            size = int(elements) * dtype(load.dst.dtype).bytes // 4
            printer.block.write(f"uint32 {self._name(name, word, printer)}[{size}];")

    def _bring(self, word: str, printer: KernelPrinter) -> None:
        """Load all words of this iteration."""
        large = {pair[0].load.dst.name for pair in self._operands.values()}
        for name, load in self._loads.items():
            buffer = self._program.buffer(load.buffer)
            layout, size = printer.tiles.layout(name), dtype(buffer.dtype).bytes
            place = printer.places.place(address(buffer, load.slices, printer.indexing.extents), layout)
            k = load.dst.axes[-1]
            vector = min(layout[k][0].size, LOAD_BYTES // size)
            move = Move(
                load.dst, buffer, layout, replace(place, axis=k, vector=vector), printer.tiles.at(load.dst.axes, layout)
            )
            function = self._loading("load_words_once" if name in large else "load_words")
            to = f"{self._name(name, word, printer)} + ({move.index}) / {4 // size}"
            tests = [" && ".join(place.tests)] if place.tests else []
            line = call(f"{function}<{vector * size}>", to, printer.memory.pointer(move), *tests) + ";"
            printer.memory.each_vector(move, [line])

    def _loading(self, name: str) -> str:
        how = "*static_cast<const typename Words<bytes>::type*>(from)"
        if name == "load_words_once":
            how = how.replace("*static_cast", "__ldcs(static_cast", 1) + ")"
        return self._functions.use(name, _WORDS.replace("NAME", name).replace("LOADED", how))

    def dot(self, s: Dot, printer: KernelPrinter) -> None:
        plan, (a, b) = self._plans[s.a, s.b], self._operands[s.a, s.b]
        acc, apart = printer.tiles[s.dst.name], a.field is not None
        row, column = acc.apart(plan.rows), acc.apart(plan.columns)
        multiply = self._functions.use(fn.multiply_name(plan), fn.multiply(plan, self._features))
        k_a, k_b = (registers(printer.tiles.layout(x.load.dst.name)[plan.k]) for x in (a, b))
        write = printer.block.write
        write(UNROLL)
        open_braces(printer.block, f"for (int step = 0; step < {k_a // STEP}; ++step)")
        columns = plan.n // ACROSS
        write(f"uint32 b_part[{columns}][2];")
        write(UNROLL)
        open_braces(printer.block, f"for (int j = 0; j < {columns}; ++j)")
        for number, pair in enumerate(self._pairs(b, f"j * {k_b}", apart, plan.element, printer)):
            write(f"b_part[j][{number}] = {pair};")
        printer.block.close()
        write(UNROLL)
        open_braces(printer.block, f"for (int i = 0; i < {plan.m // 16}; ++i)")
        write("uint32 a_part[4];")
        for half in range(2):
            for number, pair in enumerate(self._pairs(a, f"(2 * i + {half}) * {k_a}", apart, plan.element, printer)):
                if a.zeros:
                    pair = self._less(pair, a.zeros, {plan.rows: f"2 * i + {half}"}, plan.element, printer)
                write(f"a_part[{2 * number + half}] = {pair};")
        write(UNROLL)
        write(f"for (int j = 0; j < {columns}; ++j)")
        write(f"    {multiply}<{row}, {column}>({acc.name} + i * {2 * row} + j * {2 * column}, a_part, b_part[j]);")
        printer.block.close()
        printer.block.close()

    def _pairs(self, x: _Operand, row: str, apart: bool, element: str, printer: KernelPrinter) -> Iterator[str]:
        """Both pairs of a lane's four positions of a step; `apart`: positions 0 and 2, and 1 and 3."""
        name = self._name(x.load.dst.name, "words", printer)

        def word(number: int) -> str:
            return f"{name}[({row} + step * {STEP * x.digits}) / {4 // x.size} + {number}]"

        if x.field is not None:
            yield self._field(x.field, word(0), 0, element)
            yield self._field(x.field, word(0), 8, element)
        elif not apart:
            yield word(0)
            yield word(1)
        else:
            take = self._halves("upper" if x.digit or x.digits == 1 else "lower")
            if x.digits == 1:
                yield f"{self._halves('lower')}({word(0)}, {word(1)})"
                yield f"{take}({word(0)}, {word(1)})"
            else:
                yield f"{take}({word(0)}, {word(2)})"
                yield f"{take}({word(1)}, {word(3)})"

    def _halves(self, which: Literal["lower", "upper"]) -> str:
        selector = {"lower": "0x5410", "upper": "0x7632"}[which]
        head = f"__device__ __forceinline__ uint32 {which}_halves(uint32 x, uint32 y)"
        return self._functions.use(f"{which}_halves", f"{head} {{ return __byte_perm(x, y, {selector}); }}")

    def _field(self, field: BitField, word: str, more: int, element: str) -> str:
        told, base = self._words(element), _BASES[element][0]
        shift = field.first + more
        shifted = f"{word} >> {shift}" if shift else word
        if field.is_signed:
            return f"{self._functions.use(f'signed_{element}', _SIGNED.format(**told))}({shifted})"
        name = self._functions.use(f"fields_{element}", _FIELDS.format(**told))
        mask = (1 << field.width) - 1
        return f"{name}<{hex(mask << 16 | mask)}>({shifted}, {hex(_pair(-(base + field.less), element))}u)"

    def _less(self, pair: str, zeros: str, row: Mapping[str, str], element: str, printer: KernelPrinter) -> str:
        """A pair less an element of a row."""
        held = printer.tiles[zeros]
        at = {**printer.tiles.at(held.tile.axes, held.layout), **row}
        packed = self._functions.use(*fn.pack(element, self._features))
        name = self._functions.use(f"less_{element}", _LESS.format(**self._words(element)))
        return f"{name}({pair}, {packed}(float({held.element(at)}), float({held.element(at)})))"

    @staticmethod
    def _words(element: str) -> dict[str, str]:
        _, bits, one = _BASES[element]
        halves = {"base": bits, "one": one, "minus_one": one | 0x8000}
        return {"element": element, "short": _SHORT[element], **{x: hex(n << 16 | n) for x, n in halves.items()}}


def _pair(value: int, element: str) -> int:
    """The bits of a number in both halves of a word. Raises CompileError if the type does not represent it."""
    bits = (
        int(np.float32(value).view(np.uint32)) >> 16
        if element == "bfloat16"
        else int(np.float16(value).view(np.uint16))
    )
    exact = np.uint32(bits << 16).view(np.float32) if element == "bfloat16" else np.uint16(bits).view(np.float16)
    if float(exact) != value:
        raise CompileError(f"a field of bits less {-value}, which is no {element}")
    return bits << 16 | bits
