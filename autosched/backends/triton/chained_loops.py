"""Resources of loops with products of products: sums that start in each iteration, besides those carried by the loop.

acc = 0
for c.0 in …:                            once for each part of a split loop, one after the other
  s = 0;  s += dot(q, k)                 s lives within an iteration, and p takes its place
  acc = acc * rescale + dot(p, v)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from search_spaces.programs.statements import Dot, Fill, For, Load, Statement, statements
from search_spaces.programs.tiles import Tile


def is_chained(body: Sequence[Statement]) -> bool:
    """True if a loop starts sums of products in every iteration."""
    loops = (s for s in statements(tuple(body)) if isinstance(s, For))
    return any(_started(loop) for loop in loops)


def live_sums(body: Sequence[Statement]) -> int:
    """Elements of all sums that are live at once."""
    dots = {s.dst.name: s.dst.elements for s in statements(tuple(body)) if isinstance(s, Dot)}
    loops = [s for s in statements(tuple(body)) if isinstance(s, For)]
    started = {name for loop in loops for name in _started(loop)}
    within = max((sum(dots[name] for name in _started(loop)) for loop in loops), default=0)
    return within + sum(elements for name, elements in dots.items() if name not in started)


def staged_bytes(body: Sequence[Statement], own: Callable[[For], int]) -> int:
    """Shared memory of loops: each loop's `own` and that of its inner loops; consecutive loops share it."""
    loops = [s for s in body if isinstance(s, For)]
    return max((own(s) + staged_bytes(s.body, own) for s in loops), default=0)


def held_bytes(body: Sequence[Statement], tiles: Mapping[str, Tile], read: Sequence[str]) -> int:
    """Bytes of the operands that dots read from shared memory and that are loaded once, before the loops."""
    return sum(tiles[s.dst.name].bytes for s in body if isinstance(s, Load) and s.dst.name in read)


def _started(loop: For) -> set[str]:
    filled = {s.dst.name for s in loop.body if isinstance(s, Fill)}
    inner = [s for s in loop.body if isinstance(s, For)]
    dots = {s.dst.name for part in (loop, *inner) for s in part.body if isinstance(s, Dot)}
    return filled & dots
