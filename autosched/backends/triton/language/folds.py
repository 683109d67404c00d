"""Row folds: loop-carried tiles into which every iteration folds a reduction.

Triton moves the reduction of such a loop behind it (its pass OptimizeThreadLocality), and its compiler stops with a
failed assertion when the loop's result is then read more than once. The printer makes it be read once.
"""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces.programs.statements import For, Map, Reduce, read, statements
from search_spaces.programs.tiles import Tile


def folded_tiles(loop: For) -> Iterator[Tile]:
    """The tiles `t` that the loop updates as `t = operator(t, r)`, r being a reduction that nothing else reads."""
    body = tuple(statements(loop.body))
    reductions = {s.dst.name for s in body if isinstance(s, Reduce)}
    for s in body:
        if not isinstance(s, Map) or s.dst.name not in s.arguments:
            continue
        folded = reductions.intersection(a for a in s.arguments if isinstance(a, str))
        if any(sum(name in read(other) for other in body) == 1 for name in folded):
            yield s.dst
