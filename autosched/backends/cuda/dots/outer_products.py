"""Layout of the accumulator of outer products: what a thread multiplies, so that its loads are few and share cycles.

    k of 16: 8 rows x 16 columns of a thread      128 multiply-adds, 6 loads of four neighbours

Thread tiles and warp tiles of CUTLASS's SIMT products ("Efficient GEMM in CUDA"), and of SGEMM in MaxAs.
"""

from __future__ import annotations

import itertools
import math

from autosched.backends.cuda.registers.layouts import Digit, Spread, simplified
from autosched.backends.gpu.warps import WARP

_POWERS = (1, 2, 4, 8, 16, 32)


def outer_blocks(extents: tuple[int, int], warps: tuple[int, int], most: int) -> tuple[Spread, Spread]:
    """Rows and columns of threads: blocks of up to `most` neighbours, that one load covers, as far apart as all lanes.

    Of the arrangements that leave the fewest lanes idle, the one with the fewest loads; of equals the one with more
    columns of a thread, which are multiplied with the same register one after the other.
    """
    left = [size // of_warps for size, of_warps in zip(extents, warps, strict=True)]
    sizes = ([x for x in _POWERS if x <= most and size % x == 0] for size in left)
    found = [
        (blocks, (rows, math.gcd(left[1] // blocks[1], WARP // rows)))
        for blocks in itertools.product(*sizes)
        for rows in _POWERS
        if left[0] % (blocks[0] * rows) == 0
    ]

    def loads(blocks: tuple[int, ...], lanes: tuple[int, int]) -> int:
        return sum(size // (block * count) for size, block, count in zip(left, blocks, lanes, strict=True))

    blocks, lanes = max(found, key=lambda x: (math.prod(x[1]), -loads(*x), x[1]))
    rows, columns = (
        simplified(
            (
                Digit("register", block),
                *digits,
                Digit("warp", of_warps, place),
                Digit("register", size // (block * count)),
            )
        )
        for size, block, count, digits, of_warps, place in zip(
            left, blocks, lanes, _interleaved(*lanes), warps, (1, warps[0]), strict=True
        )
    )
    return rows, columns


def _interleaved(rows: int, columns: int) -> tuple[Spread, Spread]:
    """Digits of lanes along rows and columns: the least bit counts columns, the next ones rows, the others columns.

    Two quarters of a warp that load 16 bytes a lane share a cycle of shared memory if every lane reads what its
    neighbour, or the one after that, reads; a warp then takes two cycles instead of four for either operand.
    """
    first = math.gcd(columns, 2)
    return (Digit("lane", rows, first),), (Digit("lane", first), Digit("lane", columns // first, first * rows))
