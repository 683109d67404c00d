"""What Triton's compiler is told of a kernel in Gluon: layouts are part of the types of its arguments."""

from __future__ import annotations

from autosched.backends.backend import CompileError
from autosched.backends.gpu.arguments import Descriptor
from autosched.backends.gpu.warps import WARP_GROUP, why_no_groups
from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import Launch
from search_spaces.workloads.dtypes import dtype

# The widths in bytes of rows in shared memory whose banks the hardware permutes.
SWIZZLES = (128, 64, 32)


def first_warps(launch: Launch, target: Target) -> int:
    """Warps of the first warp group: those of the others stand in the text.

    Raises:
        CompileError: the target has no warp-group dots.
    """
    if why := why_no_groups(target, launch.producer_warps):
        raise CompileError(why)
    return WARP_GROUP


def descriptor_type(element: str, descriptor: Descriptor) -> str:
    """The type of a descriptor of elements that Triton calls `element`. Rows of its tiles are swizzled over as many
    bytes as they are long, 128 at most, so that neither copies nor dots meet bank conflicts."""
    size = dtype(descriptor.buffer.dtype).bytes
    row_bytes = descriptor.block[-1] * size
    swizzle = next((s for s in SWIZZLES if s <= row_bytes), 0)
    rank = len(descriptor.block)
    layout = f"NVMMASharedLayout(swizzle_byte_width={swizzle}, element_bitwidth={8 * size}, rank={rank})"
    return f"tensordesc<{element}{list(descriptor.block)},{layout}>"
