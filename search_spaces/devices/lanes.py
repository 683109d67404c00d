"""Lanes that multiply what they loaded: their shares of k and of rows (PTX ISA, mma.m16n8k16).

Four lanes have neighbours along k, eight lie across it; an instruction sums over four positions of
each of the four.
"""

from __future__ import annotations

LOAD_BYTES = 16
ALONG, ACROSS, STEP = 4, 8, 4


def run_of(k: int, element_bytes: int) -> int:
    """Elements next to each other that a lane has of k positions: one load, or its quarter of them."""
    return min(LOAD_BYTES // element_bytes, k // ALONG)
