"""The thread that brings operands into the ring, and what the epilogue reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.cuda.hopper.extras import Extras
from autosched.backends.cuda.hopper.ring import Ring
from autosched.backends.cuda.hopper.walk import Walk
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.gpu.warps import WGMMA
from search_spaces.programs.tile_program import TileProgram


@dataclass(frozen=True)
class Producer:
    """Prints what the warp group of that thread does; `maps`: what tensor maps are called."""

    program: TileProgram
    walk: Walk
    ring: Ring
    extras: Extras
    maps: Mapping[TensorMap, str]

    def write(self) -> None:
        block, form = self.walk.printer.block, self.walk.form
        if form.groups > 1:
            block.write(f"fewer_registers<{WGMMA.shares.least}>();")
        open_braces(block, "if (thread == 0)")
        block.write("int slot = 0, parity = 1;")
        if self.extras.tiles:
            block.write("int extra_tile = 0;")
        self.walk.open_tiles(self.walk.first, 1)
        self.walk.open_steps()
        # A barrier that was never used counts as passed for the turn before the first.
        block.write("barrier_wait(empty + 8 * slot, parity);")
        block.write(f"barrier_expect(full + 8 * slot, {self.ring.expected});")
        block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
        self._bring()
        self.walk.advance()
        block.close()
        if self.extras.tiles:
            self.extras.bring(self.walk.printer, self.maps)
        block.close()
        # The block stays as long as others arrive at its barriers.
        open_braces(block, f"for (int i = 0; i < {form.stages}; ++i)")
        block.write("barrier_wait(empty + 8 * slot, parity);")
        self.walk.advance()
        block.close()
        block.close()

    def _bring(self) -> None:
        """Every operand, or what this block brings of it for all blocks of the cluster."""
        for operand in self.ring.operands.values():
            shared = operand.shares > 1
            everyone = [str(2**operand.shares - 1)] if shared else []
            for place, starts in operand.loads(self.program, self.walk.printer.indexing):
                to = "here" if place == "0" else f"here + {place}"
                arguments = (to, self.maps[operand.map], "full + 8 * slot", *everyone, *starts)
                function = "load_tile_to" if shared else "load_tile"
                self.walk.printer.block.write(call(function, *arguments) + ";")
