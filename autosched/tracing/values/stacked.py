"""Parts of a concatenation that differ in constants alone, as one expression of the part's number.

    stack((x & 15, x >> 4)), x of 8 bits without a sign    (x >> 4 n) & 15        for n = 0, 1
    stack(((x << 4) >> 4, x >> 4)), x of 8 bits            (x << 4 - 4 n) >> 4
    stack((a + 3, a + 5, a + 7))                           a + (3 + 2 n)

So every element is read once for all parts: numbers of a few bits are packed like that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.tracing.values.values import Joined, Pointwise, Value, View
from search_spaces.workloads.dtypes import is_integer, range_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Position
from search_spaces.workloads.expressions.operators import WRAPPINGS


def reads_the_same(joined: Joined) -> bool:
    """True if the parts are of one shape, and pointwise of the same elements."""
    first, *others = joined.parts
    return all(part.shape == first.shape and _leaves(part) == _leaves(first) for part in others)


def _leaves(part: Value) -> frozenset[Value] | None:
    """What a part is pointwise of, by views of all of its elements in one order; None where it is a leaf itself."""
    rest, found = [part], set[Value]()
    while rest:
        match rest.pop():
            case Pointwise(arguments=arguments):
                rest += arguments
            case View(argument=argument) as view if view.elements == argument.elements and isinstance(...)
                ...
    return frozenset(found)
