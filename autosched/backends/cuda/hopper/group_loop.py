"""The loop of a warp group over the steps of a tile: dots of what lies in the slots of the ring."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.hopper.instructions import dot_name
from autosched.backends.cuda.hopper.ring import Ring
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.gpu.specialized.form import DotForm
from autosched.backends.gpu.specialized.halves import HALF
from search_spaces.devices.warps import GROUP_ROWS


@dataclass(frozen=True)
class GroupLoop:
    """Prints the loop of a form, whose sums are declared."""

    form: DotForm
    ring: Ring
    printer: KernelPrinter

    def begin(self) -> None:
        """Which slot is the first to come, before the loop over tiles."""
        form, block = self.form, self.printer.block
        if not form.alternating:
            block.write("int slot = 0, parity = 0;")
            return
        steps = form.loop.extent
        block.write(f"int slot = {HALF} * {steps % form.stages}, parity = {HALF} * {steps // form.stages % 2};")
        block.write(f"int turn = 1 - {HALF};")

    def write(self, steps: str) -> None:
        """The loop over the steps of a tile, with one dot in flight while its operands' barriers are waited for."""
        form, block = self.form, self.printer.block
        if form.alternating:
            block.write(f"barrier_wait(order + 8 * {HALF}, turn);")
            block.write("turn ^= 1;")
        if form.promotes:
            self._write_promoted(steps)
        else:
            self._write(steps)
        if form.alternating:
            # Past the steps of the other group's tile.
            skipped = form.loop.extent
            block.write(f"slot += {skipped % form.stages}, parity ^= {skipped // form.stages % 2};")
            block.write(f"if (slot >= {form.stages}) slot -= {form.stages}, parity ^= 1;")

    def _write(self, steps: str) -> None:
        form, block = self.form, self.printer.block
        variable = self.printer.indexing.variable(form.loop.variable)
        if form.loop.bound:
            # A part of the reduction may be empty.
            for acc in self._sums:
                self._clear(acc)
        block.write("int last = slot;")
        self._open(variable, steps)
        block.write("barrier_wait(full + 8 * slot, parity);")
        block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
        self._issue(self._sums, variable)
        block.write("dots_wait<1>();")
        self._settle()
        block.write(f"if ({variable} > 0) {self._release('last')}")
        block.write("last = slot;")
        self._advance()
        block.close()
        self._hand_over()
        block.write("dots_wait<0>();")
        self._settle()
        some = f"if ({steps} > 0) " if form.loop.bound else ""
        block.write(some + self._release("last"))

    def _write_promoted(self, steps: str) -> None:
        """The same where the sums of a step are added up before the next dot begins, in float32: the dot units keep
        fewer bits. The dots of the other warp group run meanwhile."""
        block = self.printer.block
        (acc,) = self._sums
        variable = self.printer.indexing.variable(self.form.loop.variable)
        held = self.printer.tiles[self.form.dot.dst.name]
        self._clear(acc)
        self._open(variable, steps)
        block.write("barrier_wait(full + 8 * slot, parity);")
        block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
        block.write(f"float sums[{held.elements}];")
        self._issue(["sums"], "0")
        block.write("dots_wait<0>();")
        block.write("settled(sums);")
        block.write(self._release("slot"))
        block.write(f"#pragma unroll\nfor (int i = 0; i < {held.elements}; ++i) {acc}[i] += sums[i];")
        self._advance()
        block.close()
        self._hand_over()

    @property
    def _sums(self) -> list[str]:
        return [self.printer.tiles.name(d.dst.name) for d in self.form.dots]

    def _open(self, variable: str, steps: str) -> None:
        header = f"for (int {variable} = 0; {variable} < {steps}; ++{variable})"
        open_braces(self.printer.block, f"#pragma unroll 1\n{header}")

    def _clear(self, acc: str) -> None:
        count = self.form.rows * self.form.columns // 128
        self.printer.block.write(f"#pragma unroll\nfor (int i = 0; i < {count}; ++i) {acc}[i] = 0;")

    def _settle(self) -> None:
        for acc in self._sums:
            self.printer.block.write(f"settled({acc});")

    def _issue(self, sums: list[str], variable: str) -> None:
        """Every dot instruction of a step. What is there already is added to from the second step on."""
        form, block = self.form, self.printer.block
        if not form.promotes:
            self._settle()
        block.write("dots_begin();")
        cleared = form.loop.bound is not None
        for dot, acc in zip(form.dots, sums, strict=True):
            a, b = (self.ring.operands[x] for x in form.sides(dot))
            share = a.operand.offset(0, form.rows) if form.shares_tile else 0
            at = [scaled(HALF, share)] if share else []
            name = dot_name(form.columns, a.operand.along_k, b.operand.along_k)
            places = {"a": (sum_of("here", str(a.place), *at), a), "b": (sum_of("here", str(b.place)), b)}
            open_braces(block, "")
            for side, (place, operand) in places.items():
                block.write(f"const uint64 {side} = matrix({place}, {operand.operand.descriptor:#x}ull);")
            for step in range(a.operand.steps):
                for row in range(0, form.rows, GROUP_ROWS):
                    held = sum_of(acc, str(row * form.columns // 128))
                    added = "1" if step or cleared else "0" if form.promotes else f"{variable} > 0"
                    rows = sum_of("a", str(a.operand.offset(step, row) // 16))
                    columns = sum_of("b", str(b.operand.offset(step) // 16))
                    block.write(call(name, held, rows, columns, added) + ";")
            block.close()
        block.write("dots_issued();")

    def _release(self, slot: str) -> str:
        """Let the slot be filled again: in every block of the cluster, since all bring parts of what is in it."""
        if self.form.blocks == 1:
            return f"if (thread == 0) barrier_arrive(empty + 8 * {slot});"
        return f"if (thread < {self.form.blocks}) barrier_arrive_at(empty + 8 * {slot}, thread);"

    def _advance(self) -> None:
        self.printer.block.write(f"if (++slot == {self.form.stages}) slot = 0, parity ^= 1;")

    def _hand_over(self) -> None:
        """Let the other warp group begin: every slot of this tile has been waited for, so none is mistaken for one of
        an earlier turn of the ring, and the dots of both do not compete."""
        if self.form.alternating:
            self.printer.block.write(f"if (thread == 0) barrier_arrive(order + 8 * (1 - {HALF}));")
