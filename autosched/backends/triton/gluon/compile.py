"""Arguments of Triton's compiler for a Gluon kernel, whose types include layouts."""

from __future__ import annotations

from autosched.backends.backend import CompileError
from autosched.backends.gpu.arguments import Descriptor
from autosched.backends.gpu.warps import WARP_GROUP, why_no_groups
from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import Launch
from search_spaces.workloads.dtypes import dtype

# Widths of swizzled rows in shared memory, in bytes.
SWIZZLES = (128, 64, 32)


def first_warps(launch: Launch, target: Target) -> int:
    """Warps of the first warp group; the text contains those of the others.

    Raises:
        CompileError: the target has no warp-group dots.
    """
    if why := why_no_groups(target, launch.producer_warps):
        raise CompileError(why)
    return WARP_GROUP


def descriptor_type(element: str, descriptor: Descriptor) -> str:
    """The type of a descriptor, with elements of Triton's type `element`.

    Rows of its tiles are swizzled over their length in bytes, 128 at most, against bank conflicts of copies and dots.
    """
    size = dtype(descriptor.buffer.dtype).bytes
    row_bytes = descriptor.block[-1] * size
    swizzle = next((s for s in SWIZZLES if s <= row_bytes), 0)
    rank = len(descriptor.block)
    layout = f"NVMMASharedLayout(swizzle_byte_width={swizzle}, element_bitwidth={8 * size}, rank={rank})"
    return f"tensordesc<{element}{list(descriptor.block)},{layout}>"
