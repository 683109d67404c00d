"""Axes that can become one: neighbours in every list of axes, contiguous in all memory.

Before: out[i, j, c] = f(x[i, j, c], b[c]), all dense.  After: out[ij, c] = f(x[ij, c], b[c]).

The longer a loop, the more ways there are to tile it; and the shapes of reads and writes need not agree.
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
    """The first two axes that can be one, not longer than an axis may be, the outer one first; None if there are none.

    `lists`: the names of axes in all orders that matter: of loops, of indices. `walks`: for everything in memory, the
    strides along its axes. `fixed` axes stay as they are.
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
