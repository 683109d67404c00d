"""Peeling: the last, uneven iteration of a main loop runs apart, so that the others need no mask.

Before:  for k.0 in 17: a, b = load …, masked at the end of k; acc += dot(a, b)
After (tail=peeled):  for k.0 in 16: a, b = load …; acc += dot(a, b)
                      a, b = load …, masked; acc += dot(a, b)

Loop peeling or epilogue loops (compilers), `EVEN_K` (Triton's kernels), predicated residue tiles (CUTLASS).
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("tail",)
WHERE_NOT = "Where tiles along what is reduced come out even, or no compiler is to be spared a mask."


def peeling(uneven: bool) -> Decision:
    """Masked, or with uneven tiles also peeled; the base program is made with it."""
    return Decision(Choice("tail", ("masked", "peeled") if uneven else ("masked",)), bears_on="legality")
