"""Swapped operands: the transpose of a product is computed, whose rows are the columns of the output.

Before:  acc[m, n] += dot(a[m, k], b[k, n])             a thin m is padded to the rows of a matrix instruction
After (swap=True):  acc[n, m] += dot(b[n, k], a[k, m])  the rows are those of n, and few columns cost no padding

Swap-AB (CUTLASS, DeepGEMM).
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("swap",)
WHERE_NOT = "Without matrix instructions, whose rows and columns have other sizes; in chains, where both are given."


def swapping() -> Decision:
    """As they are, or swapped; the base program is made with it."""
    return Decision(Choice("swap", (False, True)))
