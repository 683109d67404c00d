"""PyTorch's layout of int4 weights for CPUs (aten/src/ATen/native/cpu/int4mm_kernel.cpp, weight_to_int4pack_kernel).

Rows lie in blocks, in each all k after another, and of each the rows of the block, two in a byte: of the halves of the
block with vectors of 512 or 256 bits, neighbours without.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Int4Layout:
    """Rows in a block, and whether the lower bits of its bytes are the rows of its first half, or the even rows."""

    block: int
    halves: bool

    def rows(self, packed: torch.Tensor) -> torch.Tensor:
        """The numbers of a packed tensor [n, k / 2] as [n, k]."""
        n, half = packed.shape
        bytes_ = packed.view(n // self.block, 2 * half, self.block // 2)
        both = torch.stack((bytes_ & 15, bytes_ >> 4), 2 if self.halves else 3)
        return both.reshape(n // self.block, 2 * half, self.block).mT.reshape(n, 2 * half)


_KNOWN = (Int4Layout(64, True), Int4Layout(32, True), Int4Layout(32, False))


@functools.cache
def int4_layout() -> Int4Layout | None:
    """The layout on this machine, as its own packing shows; None where it is another one."""
    numbers = torch.randint(0, 16, (64, 32), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    return next((known for known in _KNOWN if torch.equal(known.rows(packed), numbers.to(torch.uint8))), None)
