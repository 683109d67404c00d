"""Epilogues in parts: accumulators are cut along their columns, and each part is finished and stored by itself.

Before:  out_tile = epilogue(acc);  store out[…] = out_tile
After (subtiles=2):  left, right = split acc;  store out[…] = epilogue(left);  store out[… + 64] = epilogue(right)

Fewer registers and less shared memory at a time. `EPILOGUE_SUBTILE` (Triton's tutorial), `EpilogueTile` (CUTLASS).
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("subtiles",)
WHERE_NOT = "Where no tile of accumulators is large enough to be finished in parts."


def subtiles() -> Decision:
    """One part to eight; the base program is made with it."""
    return Decision(Choice("subtiles", (1, 2, 4, 8)))
