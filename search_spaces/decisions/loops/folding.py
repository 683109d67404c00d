"""Folds in a loop: the owner of their running values, and dependent folds that share their loop.

Before:  for c.0: total[r] = total[r] + sum over c of x_tile[r, c]                      a fold of every tile
After (accumulate=point):   for c.0: part[r, c] = part[r, c] + x_tile[r, c];  total[r] = sum over c of part[r, c]
      (accumulate=thread):  the same for every thread's own columns of a tile

Before:  for c.0: top = max(top, x_tile);  for c.0: total += sum over c of exp(x_tile - top)
After (online=True):  for c.0: higher = max(top, x_tile); total = total * exp(top - higher) + …; top = higher

Online softmax (Milakov and Gimelshein, 2018), Welford's algorithm; rfactor (Halide, TVM) of lanes.
"""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("accumulate", "online")
WHERE_NOT = "Where whole rows are folded at once, one fold needs no other's result, or dots have the running values."

ROW, POINT, BY_THREAD = "row", "point", "thread"


def accumulation(ways: Iterable[str]) -> Decision:
    """One of these owners of running values; the base program is made with it."""
    return Decision(Choice("accumulate", tuple(ways)))


def online_folds(choices: tuple[bool, ...]) -> Decision:
    """Dependent folds rescaled in one loop, or in a second loop after the fold that they depend on."""
    return Decision(Choice("online", choices), bears_on="legality")
