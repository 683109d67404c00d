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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.byte_pairs import ELEMENTS, BytePairs
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.register_words import RegisterWords
from autosched.backends.cuda.dots.shared_vectors import SharedVectors
from autosched.backends.cuda.language.index import sum_of
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Digit, Layout, registers, simplified
from search_spaces.devices.features import Features
from search_spaces.devices.lanes import ACROSS, ALONG, STEP, run_of
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
from search_spaces.programs.tile_program import Kernel, TileProgram, loads_at_data
from search_spaces.workloads.dtypes import dtype


@dataclass(frozen=True)
class _Operand:
    """The words of a load: the values of one `digit` of every `digits`, or a `field` of each byte, less `zeros`.

    `floats`: each byte is a float.
    """

    load: Load
    digit: int = 0
    digits: int = 1
    field: BitField | None = None
    zeros: str = ""
    floats: bool = False

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
        self._sums_of = {(s.a, s.b): s.dst.name for s in dots}
        self._loads = {x.load.dst.name: x.load for pair in self._operands.values() for x in pair}
        if any(len({(a.load, b.load) for a, b in self._added_to(x).values()}) > 1 for x in self._sums):
            raise CompileError(f"dots of several loads added to one tile; expected one of each: {kernel.name}")
        made = {s.dst.name for d in dots for x in (d.a, d.b) for s in made_by(self._body, x)}
        parts = {t.name for s in self._body if isinstance(s, Deinterleave) and s.src in self._loads for t in s.dst}
        self._copied = self._copied_vectors(loops[0], dots)
        at_data = loads_at_data(loops[0])
        self._words = RegisterWords(
            operands=self._loads,
            once={pair[0].load.dst.name for pair in self._operands.values()},
            copied=self.copied,
            others={
                s.dst.name: s
                for s in self._body
                if isinstance(s, Load) and s.dst.name not in self._loads and s not in at_data and not s.fill
            },
            program=program,
            functions=self._functions,
        )
        self._unprinted = {*self._loads, *self._words.others, *made, *parts}

    def _added_to(self, sums: str) -> dict[tuple[str, str], tuple[_Operand, _Operand]]:
        """The operands of all dots that add to a tile, in order."""
        return {dot: pair for dot, pair in self._operands.items() if self._sums_of[dot] == sums}

    def _copied_vectors(self, loop: For, dots: Sequence[Dot]) -> dict[str, SharedVectors]:
        """Large operands that are to be several iterations ahead, which are copied: their warps have them alone."""
        ahead, found = _ahead(loop), dict[str, SharedVectors]()
        for s in dots if ahead > 1 else ():
            plan, (large, _) = self._plans[s.a, s.b], self._operands[s.a, s.b]
            if large.load.dst.name not in found:
                found[large.load.dst.name] = SharedVectors(
                    large.load,
                    own=plan.rows,
                    k=plan.k,
                    layout=self._layout(large, large, plan),
                    slots=min(ahead + 1, loop.extent),
                    begin=sum(v.bytes for v in found.values()),
                    buffer=self._program.buffer(large.load.buffer),
                )
        return found

    @property
    def copied(self) -> Set[str]:
        """Tiles that registers do not have ahead."""
        return self._copied.keys()

    @property
    def shared_bytes(self) -> int:
        """Shared memory of operands."""
        return sum(x.bytes for x in self._copied.values())

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
        zeros = found.zeros.dst.name if found.zeros else ""
        return _Operand(found.load, field=found.field, zeros=zeros, floats=found.field is None)

    def _plan(self, s: Dot) -> DotPlan:
        a, b = self._operands[s.a, s.b]
        (batch, rows, columns), (count, m, n) = s.dst.axes, s.dst.shape
        element = next((t.dtype for t in (a.load.dst, b.load.dst) if t.dtype in ELEMENTS), "")
        beside, rest = divmod(self._warps, count)
        if rows not in a.load.dst.axes or m % (16 * max(1, beside)) or n % ACROSS or rest or not element:
            raise CompileError(f"{s.dst} += dot({s.a}, {s.b}): no products of 16 by 8 of 16-bit floats for each warp")
        depth = a.load.dst.extent(s.axis)
        plan = DotPlan("warp", rows, columns, s.axis, m, n, depth, element, self._warps, beside, 1, (True, True))
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
        beside = plan.row_warps if own == plan.rows else 1
        return {
            batch: simplified((Digit("warp", shape[batch], plan.row_warps),)),
            own: simplified(
                (
                    Digit("lane", ACROSS, ALONG),
                    Digit("register", math.gcd(shape[own] // ACROSS, 2)),
                    Digit("warp", beside),
                    Digit("register", max(1, shape[own] // (2 * ACROSS * beside))),
                )
            ),
            k: simplified((Digit("register", run), Digit("lane", ALONG), Digit("register", shape[k] // (run * ALONG)))),
        }

    @property
    def functions(self) -> list[str]:
        return [*self._functions.texts.values()]

    def load(self, s: Load | View | Fill | Interleave, printer: KernelPrinter) -> bool:
        return s.dst.name in self._loads or s.dst.name in self._words.others

    def printed(self, s: Statement, printer: KernelPrinter) -> None:
        pass

    def loop(self, s: For, turns: Iterations, printer: KernelPrinter) -> bool:
        """Print the loop, with the loads of the next iteration, and copies of several, ahead if it has stages."""
        if s.body is not self._body:
            return False
        with printer.shared.taken():
            self._at = printer.shared.claim(self.shared_bytes) if self._copied else ""
            self._loop(s, turns, printer)
        return True

    def _loop(self, s: For, turns: Iterations, printer: KernelPrinter) -> None:
        block, ahead, copied = printer.block, _ahead(s) > 0, _ahead(s) if self._copied else 0
        words = self._words
        open_braces(block, "")
        if ahead:
            words.declare("next", printer)
            self._at_turn(turns.first, turns, printer, lambda: words.load("next", printer))
        if copied:
            open_braces(block, f"{UNROLL}\nfor (int ahead = 0; ahead < {copied}; ++ahead)")
            self._copy(sum_of(turns.first, "ahead"), turns, printer)
            block.close()
        turns.open_loop(block, turns.first, turns.end, unroll=1)
        with printer.shared.repeated():
            words.declare("words", printer)
            if ahead:
                words.move("next", "words", printer)
            else:
                words.load("words", printer)
            if copied:
                block.write(f"wait_ahead<{copied - 1}>();")
            for name, vectors in self._copied.items():
                vectors.take(words.name(name, "words", printer), words.function("load_words"), self._at, turns, printer)
            if ahead:
                self._at_turn(f"{turns.counter} + 1", turns, printer, lambda: words.load("next", printer))
            if copied:
                self._copy(f"{turns.counter} + {copied}", turns, printer)
            words.widen(printer)
            printer.body([x for x in s.body if not self._is_printed_here(x)])
        block.close()
        block.close()

    def _at_turn(self, turn: str, turns: Iterations, printer: KernelPrinter, body: Callable[[], None]) -> None:
        """Print what an iteration needs at another one, if there is that one."""
        block = printer.block
        open_braces(block, "")
        block.write(f"const int turn = {turn};")
        open_braces(block, f"if (turn < {turns.end})")
        block.write(f"const int {turns.counter} = turn;")
        body()
        block.close()
        block.close()

    def _copy(self, turn: str, turns: Iterations, printer: KernelPrinter) -> None:
        """Issue all copies of an iteration, as one group."""

        def each() -> None:
            for vectors in self._copied.values():
                vectors.copy(self._at, turns, printer)

        self._at_turn(turn, turns, printer, each)
        printer.block.write("commit_ahead();")

    def _is_printed_here(self, s: Statement) -> bool:
        if isinstance(s, Deinterleave):
            return s.src in self._loads
        return any(t.name in self._unprinted for t in produced(s))

    def dot(self, s: Dot, printer: KernelPrinter) -> None:
        """Print all dots of the same loads at the first of them: a vector has values of several."""
        (first, (large, rows)), *_ = added = [*self._added_to(s.dst.name).items()]
        if (s.a, s.b) != first:
            return
        plan = self._plans[first]
        acc = printer.tiles[s.dst.name]
        row, column = acc.apart(plan.rows), acc.apart(plan.columns)
        multiply = self._functions.use(fn.multiply_name(plan), fn.multiply(plan, self._features))
        k_a, k_b = (registers(printer.tiles.layout(x.load.dst.name)[plan.k]) for x in (large, rows))
        parts = [pair for _, pair in added]
        pairs = BytePairs(plan.element, self._functions, self._features)
        write = printer.block.write
        write(UNROLL)
        open_braces(printer.block, f"for (int step = 0; step < {k_a // STEP}; ++step)")
        write(f"uint32 a_part[{plan.row_tiles}][{len(parts)}][4];")
        write(UNROLL)
        open_braces(printer.block, f"for (int i = 0; i < {plan.row_tiles}; ++i)")
        for n, (a, _) in enumerate(parts):
            for half in range(2):
                words = self._words.name(a.load.dst.name, "words", printer)
                at = f"((2 * i + {half}) * {k_a} + step * {STEP * a.digits}) / {4 // a.size}"
                for number, pair in enumerate(self._pairs(a, words, at, pairs)):
                    if a.zeros:
                        pair = pairs.less(pair, self._element(a.zeros, {plan.rows: f"2 * i + {half}"}, printer))
                    write(f"a_part[i][{n}][{2 * number + half}] = {pair};")
        printer.block.close()
        write(UNROLL)
        open_braces(printer.block, f"for (int j = 0; j < {plan.n // ACROSS}; ++j)")
        write(f"uint32 b_part[{len(parts)}][2];")
        apart = any(a.field for a, _ in parts)
        for n, (_, b) in enumerate(parts):
            words = self._words.name(b.load.dst.name, "words", printer)
            at = f"(j * {k_b} + step * {STEP * b.digits}) / {4 // b.size}"
            for number, pair in enumerate(self._pairs(b, words, at, pairs, apart)):
                write(f"b_part[{n}][{number}] = {pair};")
        write(UNROLL)
        open_braces(printer.block, f"for (int i = 0; i < {plan.row_tiles}; ++i)")
        for n in range(len(parts)):
            at = f"{acc.name} + i * {2 * row} + j * {2 * column}"
            write(f"{multiply}<{row}, {column}>({at}, a_part[i][{n}], b_part[{n}]);")
        for _ in range(3):
            printer.block.close()

    @staticmethod
    def _element(name: str, row: Mapping[str, str], printer: KernelPrinter) -> str:
        held = printer.tiles[name]
        return f"float({held.element({**printer.tiles.at(held.tile.axes, held.layout), **row})})"

    def _pairs(self, x: _Operand, words: str, first: str, pairs: BytePairs, apart: bool = False) -> Iterator[str]:
        """Both pairs of a lane's four positions of a step; `apart`: positions 0 and 2, and 1 and 3."""

        def word(number: int) -> str:
            return f"{words}[{first} + {number}]"

        if x.field is not None:
            yield pairs.field(x.field, word(0), 0)
            yield pairs.field(x.field, word(0), 8)
        elif x.floats:
            yield from (pairs.floats(x.load.dst.dtype, word(0), more) for more in (0, 16))
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


def _ahead(loop: For) -> int:
    """Iterations whose loads are issued ahead."""
    return max(0, min(loop.pipeline_stages, loop.extent) - 1)
