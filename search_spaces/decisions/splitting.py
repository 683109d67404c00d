"""Split reduction: several programs share a reduction, and their partial sums are added up.

Before:  grid m.0, n.0:           for k: acc += …; store out[m, n] = epilogue(acc)
After (split=4):  grid k.split in 4, m.0, n.0:  for k in its part: acc += …; store partial[k.split, m, n] = acc
                  grid m.0, n.0:                store out[m, n] = epilogue(sum over s of partial[s, m, n])

Also called split-K (CUTLASS), rfactor (Halide, TVM), reduction factorisation (Ansor), Flash-Decoding (attention).
"""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("split",)
WHERE_NOT = "Where nothing is reduced, or whole rows are in a tile."


def splitting(parts: Iterable[int], most: int) -> Decision:
    """Number of parts: one of these up to `most`, beyond which a part is not worth a program."""
    return Decision(Choice("split", tuple(p for p in parts if p <= max(1, most))))
