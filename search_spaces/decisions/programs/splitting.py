"""Split reduction: several programs share a reduction, and their partial sums are added up.

Before:  grid m.0, n.0:           for k: acc += …; store out[m, n] = epilogue(acc)
After (split=4):  grid k.split in 4, m.0, n.0:  for k in its part: acc += …; store partial[k.split, m, n] = acc
                  grid m.0, n.0:                store out[m, n] = epilogue(sum over s of partial[s, m, n])
      (partials=atomic):          one partial[m, n], to which all parts are added by atomic operations
      (join=ahead):               the second kernel is launched ahead, and waits on the device for the first

Also called split-K (CUTLASS), rfactor (Halide, TVM), reduction factorisation (Ansor), Flash-Decoding (attention).
"""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("split", "partials", "join")
WHERE_NOT = "Where nothing is reduced, or rows stay in a tile whole."


def splitting(parts: Iterable[int], most: int, likely: int = 1) -> Decision:
    """Number of parts: one of these, up to the most that are worth a program.

    `likely`: the first of them is drawn so many times as often as each other one.
    """
    return Decision(Choice("split", tuple(p for p in parts if p <= max(1, most)), likely=likely))


def partials() -> Decision:
    """A workspace for each part, or one for all; the base program is made with it."""
    return Decision(Choice("partials", ("workspace", "atomic")), bears_on="legality")


def join(ahead: bool) -> Decision:
    """The second kernel after the first, or if possible ahead of its end; the base program is made with it."""
    return Decision(Choice("join", ("after", "ahead") if ahead else ("after",), ordered=False))
