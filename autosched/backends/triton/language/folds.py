"""Row folds: tiles that a loop carries and folds a reduction into in every iteration.

Triton moves the reduction of such a loop behind it (its pass OptimizeThreadLocality), and its compiler stops with a
failed assertion when the loop's result is then read more than once. The printer makes it be read once.
"""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces.programs.statements import (
    Deinterleave,
    Dot,
    For,
    Gather,
    Interleave,
    Map,
    Reduce,
    Regroup,
    Scan,
    Split,
    Statement,
    Store,
    View,
    statements,
)
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


def read(statement: Statement) -> tuple[str, ...]:
    """The names of the tiles that a statement reads."""
    match statement:
        case Map(arguments=arguments):
            return tuple(a for a in arguments if isinstance(a, str))
        case Gather(index=index):
            return tuple(i for i in index if isinstance(i, str))
        case Dot(dst=dst, a=a, b=b):
            return (dst.name, a, b)
        case Reduce(src=src) | Regroup(src=src) | Split(src=src) | Deinterleave(src=src):
            return (src,)
        case Store(src=src) | View(src=src):
            return (src,)
        case Scan(srcs=srcs):
            return srcs
        case Interleave(src=sources):
            return sources
        case _:
            return ()
