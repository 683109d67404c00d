"""The distance in shape between two workloads of one family."""

from __future__ import annotations

import itertools
import math

from tuning_logs.record import Subject

# Distance for a tensor that only one of the two has (a bias, say): that of one dimension of twice the size.
_MISSING = 1.0


def shape_distance(a: Subject, b: Subject) -> float:
    """Sum over the sizes of loop and inputs of |log2 ratio|; 0 for equal shapes, symmetric.

    Both are those of the canonical forms, inputs in their order.
    """
    pairs = itertools.zip_longest(a.canonical.shapes, b.canonical.shapes)
    return sum(_MISSING if x is None or y is None else _between(x, y) for x, y in pairs)


def _between(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """The dimensions that only one of them has are its outer ones, and of size 1 in the other."""
    pairs = itertools.zip_longest(reversed(a), reversed(b), fillvalue=1)
    return sum(abs(math.log2(x / y)) for x, y in pairs)
