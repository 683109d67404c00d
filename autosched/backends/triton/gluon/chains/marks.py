"""Layouts of block masks, which every warp that runs the loop keeps whole in registers."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.gpu.warps import WARP
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.statements import Load


def hold_marks(loads: Sequence[Load], printer: KernelPrinter, warps: int) -> None:
    """Replicate the loaded marks over `warps` warps, so that the search for the next iteration needs no barrier."""
    for load in loads:
        name, (length,) = printer.tiles.name(load.dst.name), load.dst.shape
        layout = f"gl.BlockedLayout([{max(1, length // WARP)}], [{WARP}], [{warps}], [0])"
        printer.block.write(f"{name} = gl.set_auto_layout({name}, {layout})")
