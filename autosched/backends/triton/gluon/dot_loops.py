"""The loop of a warp group over the steps of a tile, as Gluon: dots whose operands lie in rings of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.gpu.specialized.form import DotForm, k_major
from autosched.backends.printing.scope import Block, call
from autosched.backends.triton.language.index import Indexing
from search_spaces.programs.statements import Load


@dataclass(frozen=True)
class DotLoops:
    """Prints the loop of a form; `rings` are the names of the operands' rings, `blocks` the shapes of their slots."""

    form: DotForm
    rings: Mapping[Load, str]
    blocks: Mapping[Load, tuple[int, ...]]
    accumulators: Sequence[str]

    def write(self, block: Block, indexing: Indexing, iterations: str) -> None:
        """The loop over the steps of a tile, with one dot in flight while its operands' barriers are waited for."""
        if self.form.a_through_registers:
            self._write_from_registers(block, indexing, iterations)
            return
        if self.form.promotes:
            self._write_promoted(block, indexing, iterations)
            return
        stages, variable = self.form.stages, indexing.variable(self.form.loop.variable)
        block.open(f"for {variable} in range({iterations}):")
        block.write(f"slot = step % {stages}")
        block.write(f"hopper.mbarrier.wait(full.index(slot), step // {stages} & 1)")
        names = {load.dst.name: name for load, name in self._operand_names().items()}
        for load, name in self._operand_names().items():
            block.write(f"{name} = {self._operand(load, 'slot')}")
        for dot, acc in zip(self.form.dots, self.accumulators, strict=True):
            a, b = (names[x] for x in self.form.sides(dot))
            block.write(f"{acc} = hopper.warpgroup_mma({a}, {b}, {acc}, is_async=True)")
        sums = ", ".join(self.accumulators)
        held = sums if len(self.accumulators) > 1 else f"{sums},"
        block.write(f"{sums} = hopper.warpgroup_mma_wait({len(self.accumulators)}, deps=({held}))")
        block.write(f"hopper.mbarrier.arrive(empty.index((step + {stages - 1}) % {stages}), pred={variable} > 0)")
        block.write("step += 1")
        block.close()
        self._hand_over(block)
        block.write(f"{sums} = hopper.warpgroup_mma_wait(0, deps=({held}))")
        some = f", pred={iterations} > 0" if self.form.loop.bound else ""
        block.write(f"hopper.mbarrier.arrive(empty.index((step + {stages - 1}) % {stages}){some})")

    def _write_from_registers(self, block: Block, indexing: Indexing, iterations: str) -> None:
        """The same with `a` in registers: they are loaded for the next dot while one runs on those of the last."""
        stages, variable = self.form.stages, indexing.variable(self.form.loop.variable)
        dot = f"acc = hopper.warpgroup_mma(a, {self._b(f'step % {stages}')}, acc, is_async=True)"
        done = [
            "acc, a = hopper.warpgroup_mma_wait(0, deps=(acc, a))",
            f"hopper.mbarrier.arrive(empty.index(step % {stages}))",
        ]
        full = "hopper.mbarrier.wait(full.index({0} % {1}), {0} // {1} & 1)"
        block.write(full.format("step", stages))
        block.write(f"a = {self._a(f'step % {stages}')}.load(operand)")
        block.open(f"for {variable} in range({iterations} - 1):")
        block.write(dot)
        block.write(full.format("(step + 1)", stages))
        block.write(f"next_a = {self._a(f'(step + 1) % {stages}')}.load(operand)")
        for line in (*done, "a = next_a", "step += 1"):
            block.write(line)
        block.close()
        block.write(dot)
        self._hand_over(block)
        for line in (*done, "step += 1"):
            block.write(line)

    def _write_promoted(self, block: Block, indexing: Indexing, iterations: str) -> None:
        """The same where the sums of a step are added up before the next dot begins.

        The other warp group's dots run meanwhile. Two dots in flight would be serialised by ptxas, which refuses to
        read the sums of one while the other runs (its note C7514).
        """
        stages, variable = self.form.stages, indexing.variable(self.form.loop.variable)
        block.write("sums = acc")
        block.open(f"for {variable} in range({iterations}):")
        block.write(f"slot = step % {stages}")
        block.write(f"hopper.mbarrier.wait(full.index(slot), step // {stages} & 1)")
        dot = (self._a("slot"), self._b("slot"), "sums", "use_acc=False", "is_async=True")
        for line in (
            call("hopper.warpgroup_mma", *dot, before="sums = "),
            "sums = hopper.warpgroup_mma_wait(0, deps=(sums,))",
            "hopper.mbarrier.arrive(empty.index(slot))",
            "acc += sums",
            "step += 1",
        ):
            block.write(line)
        block.close()
        self._hand_over(block)

    def _hand_over(self, block: Block) -> None:
        """Let the other warp group begin: every slot of this tile has been waited for, so none is mistaken for one of
        an earlier turn of the ring, and the dots of both do not compete."""
        if self.form.alternating:
            block.write("hopper.mbarrier.arrive(order.index(1 - half))")

    def _operand_names(self) -> dict[Load, str]:
        """The variables that operands are in: a, a2 …, b, b2 …"""
        return {load: ring.replace("_ring", "") for load, ring in self.rings.items()}

    def _operand(self, load: Load, slot: str) -> str:
        return self._a(slot, load) if load in self.form.rows_read else self._b(slot, load)

    def _a(self, slot: str, load: Load | None = None) -> str:
        form, load = self.form, load or self.form.a
        text = self._slot(load, slot)
        if form.shares_tile:
            dimension = load.dst.axes.index(form.dot.dst.axes[0])
            text += f".slice(half * {form.rows}, {form.rows}{', 1' if dimension else ''})"
        return text if k_major(load, form.dot) else f"{text}.permute((1, 0))"

    def _b(self, slot: str, load: Load | None = None) -> str:
        load = load or self.form.b
        text = self._slot(load, slot)
        return f"{text}.permute((1, 0))" if k_major(load, self.form.dot) else text

    def _slot(self, load: Load, slot: str) -> str:
        whole = len(self.blocks[load]) == len(load.dst.shape)
        return f"{self.rings[load]}.index({slot})" + ("" if whole else f".reshape({list(load.dst.shape)})")
