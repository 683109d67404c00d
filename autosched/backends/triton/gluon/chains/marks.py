"""What marks iterations of loops, in the registers of whoever has the loop: every warp of it holds all."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.gpu.warps import WARP
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.statements import Load


def hold_marks(loads: Sequence[Load], printer: KernelPrinter, warps: int) -> None:
    """Lay out what was loaded so that looking for the next iteration takes no barrier between so many warps."""
    for load in loads:
        name, (length,) = printer.tiles.name(load.dst.name), load.dst.shape
        layout = f"gl.BlockedLayout([{max(1, length // WARP)}], [{WARP}], [{warps}], [0])"
        printer.block.write(f"{name} = gl.set_auto_layout({name}, {layout})")
