"""The loop of a warp group over the steps of a tile: dots of what lies in the slots of the ring."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.hopper.instructions import dot_name
from autosched.backends.cuda.hopper.ring import Ring
from autosched.backends.cuda.hopper.walk import Walk
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.gpu.specialized.form import DotForm
from autosched.backends.gpu.specialized.halves import HALF
from autosched.backends.gpu.warps import GROUP_ROWS


@dataclass(frozen=True)
class GroupLoop:
    """Prints the loop of a form, whose sums are declared."""

    form: DotForm
    ring: Ring
    walk: Walk

    @property
    def printer(self) -> KernelPrinter:
        return self.walk.printer

    def begin(self) -> None:
        """Which slot is the first to come, before the loop over tiles."""
        form, block = self.form, self.printer.block
        if not form.alternating:
            block.write("int slot = 0, parity = 0;")
            return
        steps = form.loop.extent
        block.write(f"int slot = {HALF} * {steps % form.stages}, parity = {HALF} * {steps // form.stages % 2};")
        block.write(f"int turn = 1 - {HALF};")

    def write(self) -> None:
        """The loop over the steps of a tile, with one dot in flight while its operands' barriers are waited for."""
        form, block = self.form, self.printer.block
        # Not by the first dot: ptxas 12.6 makes all dots wait for each other where nothing defines their sums.
        for acc in self._sums:
            self._clear(acc)
        if form.alternating:
            block.write(f"barrier_wait(order + 8 * {HALF}, turn);")
            block.write("turn ^= 1;")
        if form.promotes:
            self._write_promoted()
        else:
            self._write()
        if form.alternating:
            # Past the steps of the other group's tile.
            skipped = form.loop.extent
            block.write(f"slot += {skipped % form.stages}, parity ^= {skipped // form.stages % 2};")
            block.write(f"if (slot >= {form.stages}) slot -= {form.stages}, parity ^= 1;")

    def _write(self) -> None:
        form, block = self.form, self.printer.block
        block.write("int last = slot;")
        self.walk.open_steps()
        block.write("barrier_wait(full + 8 * slot, parity);")
        block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
        self._issue(self._sums)
        block.write("dots_wait<1>();")
        self._settle()
        block.write(self._release("last", f"{self.walk.step} > 0"))
        block.write("last = slot;")
        self.walk.advance()
        block.close()
        self._hand_over()
        block.write("dots_wait<0>();")
        self._settle()
        block.write(self._release("last", f"{self.walk.steps} > 0" if form.loop.bound else ""))

    def _write_promoted(self) -> None:
        """The same where the sums of a step are added up before the next dot begins, in float32: the dot units keep
        fewer bits. The dots of the other warp group run meanwhile."""
        block = self.printer.block
        (acc,) = self._sums
        held = self.printer.tiles[self.form.dot.dst.name]
        block.write(f"float sums[{held.elements}];")
        self._clear("sums")
        self.walk.open_steps()
        block.write("barrier_wait(full + 8 * slot, parity);")
        block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
        self._issue(["sums"])
        block.write("dots_wait<0>();")
        block.write("settled(sums);")
        block.write(self._release("slot"))
        block.write(f"#pragma unroll\nfor (int i = 0; i < {held.elements}; ++i) {acc}[i] += sums[i];")
        self.walk.advance()
        block.close()
        self._hand_over()

    @property
    def _sums(self) -> list[str]:
        return [self.printer.tiles.name(d.dst.name) for d in self.form.dots]

    def _clear(self, acc: str) -> None:
        count = self.form.rows * self.form.columns // 128
        self.printer.block.write(f"#pragma unroll\nfor (int i = 0; i < {count}; ++i) {acc}[i] = 0;")

    def _settle(self) -> None:
        for acc in self._sums:
            self.printer.block.write(f"settled({acc});")

    def _issue(self, sums: list[str]) -> None:
        """Every dot instruction of a step."""
        form, block = self.form, self.printer.block
        if not form.promotes:
            self._settle()
        block.write("dots_begin();")
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
                    added = "0" if form.promotes and not step else "1"
                    rows = sum_of("a", str(a.operand.offset(step, row) // 16))
                    columns = sum_of("b", str(b.operand.offset(step) // 16))
                    block.write(call(name, held, rows, columns, added) + ";")
            block.close()
        block.write("dots_issued();")

    def _release(self, slot: str, condition: str = "") -> str:
        """Let the slot be filled again: in every block of the cluster, since all bring parts of what is in it."""
        blocks = self.form.blocks
        tests = [condition] if condition else []
        tests.append("thread == 0" if blocks == 1 else f"thread < {blocks}")
        barrier = f"empty + 8 * {slot}"
        arrive = f"barrier_arrive({barrier})" if blocks == 1 else f"barrier_arrive_at({barrier}, thread)"
        return f"if ({' && '.join(tests)}) {arrive};"

    def _hand_over(self) -> None:
        """Let the other warp group begin: every slot of this tile has been waited for, so none is mistaken for one of
        an earlier turn of the ring, and the dots of both do not compete."""
        if self.form.alternating:
            self.printer.block.write(f"if (thread == 0) barrier_arrive(order + 8 * (1 - {HALF}));")
