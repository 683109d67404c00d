"""Where a graph is split before it is cut into kernels: at what is alive across a product.

    x1 = x0 + p1                     x1 is read beside what is computed from it by further products: it is stored, and
    p2 = norm(x1) @ w                each layer is a region of its own, equal to those of other layers
    x2 = x1 + p2

Without that a residual stream would be computed anew from all products before it, in regions that grow from layer to
layer. Whether storing pays is decided later, as of everything that is stored.

    y = stack([h1 @ w, h2 @ w, ...])    each is stored: a kernel of y would compute all of them for each of its elements

    y = g[i] + g[i-1] + g[i-2] + ...    g is stored: as the gradient of a window, it would be computed at every place
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from autosched.tracing.fusion.regions import cone
from autosched.tracing.values.values import Joined, LookedUp, Padded, Product, Value, View

# What one value reads at so many places is not computed at each.
_MANY_PLACES = 8


def product_depths(values: Sequence[Value]) -> dict[Value, int]:
    """The most products that follow each other up to each of the values, which come after what they need."""
    depths: dict[Value, int] = {}
    for value in values:
        depths[value] = max((depths[o] for o in value.operands), default=0) + isinstance(value, Product)
    return depths


def split_points(values: Sequence[Value], stored: Container[Value], depths: Mapping[Value, int]) -> Iterator[Value]:
    """The values computed from products that are read twice or more, of which once with or by a later product."""
    readers: dict[Value, list[Value]] = {}
    for value in values:
        if not isinstance(value, View):
            for read in {_viewed(o): None for o in value.operands}:
                readers.setdefault(read, []).append(value)
    for value, reading in readers.items():
        later = any(depths[r] > depths[value] for r in reading)
        if value not in stored and depths[value] and value.operands and len(reading) > 1 and later:
            yield value


def multiplied_parts(values: Sequence[Value], stored: Container[Value]) -> Iterator[Value]:
    """Where several tensors are joined, those that are computed by products of what is stored."""
    for value in values:
        if isinstance(value, Joined):
            parts = {_viewed(part): None for part in value.parts}
            multiplied = [p for p in parts if any(isinstance(v, Product) for v in _computed(p, stored))]
            if len(multiplied) > 1:
                yield from multiplied


def read_at_many_places(values: Sequence[Value], stored: Container[Value]) -> Iterator[Value]:
    """The values computed from memory of which another reads elements at many places, each by a view or look-up."""
    for value in values:
        places = Counter(source for o in value.operands if (source := source_of(o)) is not o)
        for source, count in places.items():
            if count >= _MANY_PLACES and any(v in stored for v in cone([source], stored)):
                yield source


def source_of(value: Value) -> Value:
    """The value whose elements this one holds elsewhere: under views, padding and look-ups."""
    while isinstance(value, View | Padded | LookedUp):
        value = value.table if isinstance(value, LookedUp) else value.argument
    return value


def _computed(value: Value, stored: Container[Value]) -> list[Value]:
    """What a kernel of the value computes, itself included; nothing where it is stored."""
    return [] if value in stored else [value, *(v for v in cone([value], stored) if v not in stored)]


def _viewed(value: Value) -> Value:
    while isinstance(value, View):
        value = value.argument
    return value
