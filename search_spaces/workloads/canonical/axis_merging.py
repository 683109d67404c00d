"""Which axes can become one: those that follow each other wherever they stand, and that all memory walks as one.

Before: out[i, j, c] = f(x[i, j, c], b[c]), all dense.  After: out[ij, c] = f(x[ij, c], b[c]).

The longer a loop, the more ways there are to cut it; and what is read as a matrix may be written as anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from search_spaces.workloads.stages import MAX_EXTENT


def mergeable(
    lists: Sequence[Sequence[str]],
    walks: Sequence[Mapping[str, int]],
    extents: Mapping[str, int],
    fixed: frozenset[str],
) -> tuple[str, str] | None:
    """The first two axes that can be one, which is no longer than an axis may be, the outer one first; None if none.

    `lists`: the names of axes in all orders that mean something: of loops, of indices. `walks`: for everything in
    memory, how far apart its neighbours along its axes are. `fixed` axes stay as they are.
    """
    for names in lists:
        for outer, inner in itertools.pairwise(names):
            if {outer, inner} & fixed or extents[outer] * extents[inner] > MAX_EXTENT:
                continue
            together = all((outer in w) == (inner in w) for w in (*walks, *lists))
            gapless = all(w[outer] == w[inner] * extents[inner] for w in walks if outer in w and inner in w)
            if together and gapless and all(_follow(some, outer, inner) for some in lists):
                return outer, inner
    return None


def _follow(names: Sequence[str], outer: str, inner: str) -> bool:
    return outer not in names or names.index(outer) + 1 == names.index(inner)
