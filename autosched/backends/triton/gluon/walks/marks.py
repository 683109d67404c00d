"""What marks iterations of a walk, in the registers of whoever has the loop: every warp of it holds all."""

from __future__ import annotations

from autosched.backends.gpu.warps import WARP
from autosched.backends.triton.gluon.walks.form import WalkForm
from autosched.backends.triton.printer import KernelPrinter


def hold_marks(form: WalkForm, printer: KernelPrinter, warps: int) -> None:
    """Lay out what was loaded so that looking for the next iteration takes no barrier between so many warps."""
    for load in form.marking:
        name, (length,) = printer.tiles.name(load.dst.name), load.dst.shape
        layout = f"gl.BlockedLayout([{max(1, length // WARP)}], [{WARP}], [{warps}], [0])"
        printer.block.write(f"{name} = gl.set_auto_layout({name}, {layout})")
