"""Tiles, warps and stages that starts of contractions on dot units have."""

from __future__ import annotations

# (m, n, k bytes, warps, stages) of starts: large tiles for much work, small ones for little.
START_TILES = (
    (128, 256, 128, 8, 3),
    (128, 256, 128, 8, 4),
    (256, 128, 128, 8, 4),
    (128, 128, 128, 8, 4),
    (128, 64, 128, 4, 5),
    (64, 128, 128, 4, 6),
    (64, 64, 256, 4, 6),
    (64, 32, 128, 4, 8),
)
# The same for devices without asynchronous copies, tried first: operands are loaded through registers, of which
# large tiles leave none.
EARLY_START_TILES = (
    (128, 128, 128, 4, 3),
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
)
# The same for dots without matrix instructions, whose threads read operands from shared memory for every multiply-add:
# 8 x 16 sums of a thread (the first four) are as many as leave registers for the operands of the next step; short
# iterations, since Triton unrolls them. By pointers: of tiles that descriptors load, Triton 3.9 spills registers.
MULTIPLY_ADD_START_TILES = (
    (128, 256, 64, 8, 4),
    (128, 128, 64, 4, 4),
    (256, 128, 64, 8, 4),
    (128, 256, 128, 8, 3),
    (128, 128, 64, 8, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 64, 64, 4, 6),
    (32, 64, 128, 4, 6),
)
# (m, n, k bytes, kind, warps, stages, subtiles) of warp-specialised kernels: ping-pong tiles of 128 x 128 if the
# reduction is short and the epilogue counts, large ones otherwise.
WARP_GROUP_STARTS = (
    (128, 128, 128, "pingpong", 8, 6, 4),
    (128, 256, 128, "cooperative", 8, 4, 4),
    (256, 128, 128, "cooperative", 8, 4, 4),
    (128, 256, 128, "cooperative", 8, 4, 8),
    (256, 128, 128, "cooperative", 8, 4, 8),
    (128, 128, 128, "cooperative", 8, 6, 2),
)
# The same if sums take twice the registers (promoted ones), or are narrow (integers).
NARROW_WARP_GROUP_STARTS = (
    (128, 128, 128, "cooperative", 8, 4, 4),
    (64, 128, 128, "pingpong", 8, 6, 2),
    (128, 64, 128, "pingpong", 8, 6, 2),
    (64, 128, 128, "cooperative", 4, 6, 2),
)
# The same for outputs of few tiles of 128 x 128: 1000 x 1000 are 64 of those, and 128 of 64 x 128.
# One tile per program, with a deeper ring; last, large ones with split-K.
FEW_TILES_STARTS = (
    (64, 128, 128, "cooperative", 4, 8, 2),
    (128, 64, 128, "cooperative", 8, 8, 2),
    (64, 128, 256, "cooperative", 4, 4, 2),
    (64, 64, 128, "cooperative", 4, 8, 1),
    (128, 128, 128, "cooperative", 8, 6, 2),
)
# (wide side, k bytes, warps, stages) for skinny products, swapped so that the wide side is the dot's rows.
THIN_STARTS = ((64, 256, 4, 6), (64, 512, 4, 4), (128, 128, 4, 6), (128, 256, 8, 4))
# (wide side, warps, stages) of starts with several products of a batch, whose rows are then whole lines. With one stage
# operands pass through the first cache, which has what neighbouring taps read again.
SHORT_ROW_STARTS = ((128, 4, 1), (128, 4, 2), (64, 4, 1), (64, 4, 2), (256, 8, 2), (128, 8, 1))
# (pixels, filters, k bytes, warps, stages, filters of all taps at once, programs of a multiprocessor) of starts whose
# windows are views of halos: blocks of channels of a line, of few filters, whose pixels would be loaded once for each
# tap and block of these. Warps of 64 x 64 read the least of shared memory for what they multiply.
HALO_STARTS = (
    (256, 64, 128, 8, 2, True, 1),
    (128, 64, 128, 4, 1, True, 2),
    (256, 64, 128, 4, 3, False, 2),
    (128, 64, 128, 4, 3, False, 4),
    (128, 128, 128, 8, 3, False, 2),
    (64, 128, 64, 4, 4, False, 4),
)
# (pixels, warps, stages, programs of a multiprocessor that have several tiles each or 0, most registers of a thread) of
# starts whose windows are views of halos of several groups of channels. Their dots are short and wait for loads: what
# hides these are many warps of a multiprocessor, or halos of the next tile.
GROUP_STARTS = (
    (64, 8, 1, 0, 0),
    (128, 4, 1, 0, 128),
    (64, 4, 1, 0, 0),
    (128, 8, 2, 2, 0),
    (256, 8, 1, 0, 0),
    (64, 4, 2, 3, 0),
)
# (m, n, k bytes, warps, stages) of starts. Accumulators share the registers: 128 x 128 of two dots are as many as
# 128 x 256 of one.
FUSED_START_TILES = (
    (128, 256, 128, 8, 3),
    (256, 128, 128, 8, 3),
    (128, 128, 128, 8, 4),
    (128, 128, 128, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 64, 128, 4, 4),
    (64, 128, 128, 4, 4),
    (64, 64, 128, 4, 5),
    (64, 32, 128, 4, 6),
    (32, 64, 128, 4, 4),
    (16, 64, 256, 4, 4),
)
# (m, n, k bytes, kind, warps, stages) of warp-specialised kernels of two dots.
FUSED_WARP_GROUP_STARTS = (
    (128, 128, 128, "cooperative", 8, 4),
    (128, 128, 64, "cooperative", 8, 6),
    (64, 128, 128, "pingpong", 8, 4),
    (128, 64, 128, "pingpong", 8, 4),
)
# (rows of the dots, columns, k bytes, warps, stages) of starts whose rows are converted in registers.
CONVERTED_STARTS = (
    (128, 256, 128, 8, 3),
    (128, 128, 128, 8, 4),
    (128, 128, 128, 4, 4),
    (64, 256, 128, 4, 4),
    (64, 128, 128, 4, 4),
)
