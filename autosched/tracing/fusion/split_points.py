"""Cuts of a graph before it is partitioned into kernels: at values that are live across a product.

    x1 = x0 + p1                     x1 is an operand of x2 and, by way of a product, of p2: it is stored, and
    p2 = norm(x1) @ w                each layer is a region of its own, equal to those of other layers
    x2 = x1 + p2

Otherwise a residual stream would be recomputed from all products before it, in regions that grow from layer to layer.
Like everything stored, each is reconsidered later by cost.

    y = stack([h1 @ w, h2 @ w, ...])    each is stored: a kernel of y would compute all of them for each of its elements
    y = cat([a1, a2, ..., a512])        23 groups are stored: a kernel of so many tensors would be too large
    y = g[i] + g[i-1] + g[i-2] + ...    g is stored: as the gradient of a window, it would be computed at every place
    y = x / s[segment]                  s, the sum of each segment, is stored: it would be summed anew for every row
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from autosched.tracing.fusion.regions import cone
from autosched.tracing.values.values import Gathered, Joined, Padded, Product, Reduced, Value, View

# A value read at this many places is stored instead of recomputed at each.
_MANY_PLACES = 8


def product_depths(values: Sequence[Value]) -> dict[Value, int]:
    """The length of the longest sequence of products up to each value; values come after their operands."""
    depths: dict[Value, int] = {}
    for value in values:
        depths[value] = max((depths[o] for o in value.operands), default=0) + isinstance(value, Product)
    return depths


def split_points(values: Sequence[Value], stored: Container[Value], depths: Mapping[Value, int]) -> Iterator[Value]:
    """The values computed from products that are read twice or more, one of these with or by a later product."""
    readers: dict[Value, list[Value]] = {}
    for value in values:
        if not isinstance(value, View):
            for read in {_viewed(o): None for o in value.operands}:
                readers.setdefault(read, []).append(value)
    for value, reading in readers.items():
        later = any(depths[r] > depths[value] for r in reading)
        if value not in stored and depths[value] and value.operands and len(reading) > 1 and later:
            yield value


def multiplied_parts(values: Sequence[Value], stored: Iterable[Value]) -> Iterator[Value]:
    """The parts of concatenations that products of stored values compute, if several; operands come first in `values`.

    Parts of parts are stored as well, and the concatenations of these then need no products.
    """
    products = _UnstoredProducts(values, stored)
    for value in values:
        if isinstance(value, Joined):
            parts = {_viewed(part): None for part in value.parts}
            multiplied = [p for p in parts if p in products.needed]
            if len(multiplied) > 1:
                for part in multiplied:
                    products.store(part)
                yield from multiplied


class _UnstoredProducts:
    """The values whose kernels compute a product, as values are stored one after the other.

    `needed`: these values. Each leaves it once, when it or all that it needs a product for is stored.
    """

    def __init__(self, values: Sequence[Value], stored: Iterable[Value]) -> None:
        """`values`: each after its operands."""
        self.needed: set[Value] = set()
        self._readers: dict[Value, list[Value]] = {}
        self._reasons: Counter[Value] = Counter()
        known = {*stored}
        for value in values:
            reasons = [o for o in {*value.operands} if o in self.needed]
            self._reasons[value] = len(reasons) + isinstance(value, Product)
            if self._reasons[value] and value not in known:
                self.needed.add(value)
                for operand in reasons:
                    self._readers.setdefault(operand, []).append(value)

    def store(self, value: Value) -> None:
        """The value is in memory now, and its readers do not compute it."""
        rest = [value] if value in self.needed else []
        while rest:
            here = rest.pop()
            self.needed.remove(here)
            for reader in self._readers.get(here, ()):
                self._reasons[reader] -= 1
                if reader in self.needed and not self._reasons[reader]:
                    rest.append(reader)


def groups_of_parts(values: Sequence[Value]) -> Iterator[Value]:
    """The groups in which many parts are concatenated."""
    wholes = (v for v in values if isinstance(v, Joined) and v.in_groups)
    return (part for whole in wholes for part in whole.parts if isinstance(part, Joined))


def read_at_many_places(values: Sequence[Value], stored: Container[Value]) -> Iterator[Value]:
    """The computed values whose elements another reads at many places, each by a view or gather."""
    for value in values:
        places = Counter(source for o in value.operands if (source := source_of(o)) is not o)
        for source, count in places.items():
            if count >= _MANY_PLACES and any(v in stored for v in cone([source], stored)):
                yield source


def looked_up_folds(values: Sequence[Value], stored: Container[Value]) -> Iterator[Value]:
    """The tables of which more elements are looked up than they have, and that are computed from reductions."""
    for value in values:
        if isinstance(value, Gathered) and value.elements > value.table.elements:
            source = source_of(value.table)
            if source not in stored and any(isinstance(v, Reduced) for v in cone([source], stored)):
                yield source


def source_of(value: Value) -> Value:
    """The value that this one takes its elements from: under views, padding and gathers."""
    while isinstance(value, View | Padded | Gathered):
        value = value.table if isinstance(value, Gathered) else value.argument
    return value


def _viewed(value: Value) -> Value:
    while isinstance(value, View):
        value = value.argument
    return value
