"""Lower bounds on the cost of kernels before assembly: what cannot be the cheapest is not assembled."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

from autosched.tracing.fusion.costs import LAUNCH_BYTES, work
from autosched.tracing.fusion.regions import Strides, cone
from autosched.tracing.values.values import Joined, Pointwise, Product, Reduced, Value, View
from autosched.tracing.values.views import Permutation, Reshape, Windows
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Apply
from search_spaces.workloads.expressions.operators import OPERATORS, ROUNDINGS, WRAPPINGS
from search_spaces.workloads.expressions.walking import distinct
from search_spaces.workloads.strides import distinct_elements

# Kernels leave out conversions that change nothing.
_OPERATIONS = {
    name: operations
    for name, (_, operations) in OPERATORS.items()
    if name not in {*ROUNDINGS, *WRAPPINGS, "to_integer", "to_float"}
}


def least_of_one(value: Value, stored: Mapping[Value, Strides]) -> float:
    """A lower bound on the cost of one kernel that computes the value: what it must read, multiply and write."""
    inside = _read_whole(value, stored)
    read = (v for v in inside[1:] if v in stored and v.readable)
    moved = value.bytes + sum(distinct_elements(v.shape, stored[v]) * dtype(v.dtype).bytes for v in read)
    computed = [v for v in inside if v is value or v not in stored]
    return LAUNCH_BYTES + work(moved, sum(map(_pointwise, computed)), _dots(v for v in computed if v not in stored))


def least_of_several(value: Value, stored: Mapping[Value, Strides]) -> float:
    """A lower bound on the cost of several kernels that compute the value: its memory once more, and a launch."""
    inside = [value, *cone([value], stored)]
    moved = sum(v.bytes for v in inside if v in stored) + 3 * value.bytes
    return 2 * LAUNCH_BYTES + work(moved, 0.0, _dots([v for v in inside if v not in stored]))


def _dots(computed: Iterable[Value]) -> float:
    """The operations of the products among values."""
    return sum(2.0 * v.elements * math.prod(v.summed) for v in computed if isinstance(v, Product))


def _pointwise(value: Value) -> float:
    """Operations for all elements of the value."""
    match value:
        case Pointwise(expression=expression):
            done = (_OPERATIONS.get(e.operator, 0) for e in distinct(expression) if isinstance(e, Apply))
            return float(value.elements * sum(done))
        case Joined(parts=parts):
            # For each part but one, a comparison and a selection.
            return 2.0 * value.elements * (len(parts) - 1)
        case _:
            return 0.0


def _read_whole(value: Value, stored: Container[Value]) -> list[Value]:
    """The value, and those of which its kernel certainly computes or reads every element."""
    found: dict[Value, None] = {}
    rest = [value]
    while rest:
        here = rest.pop()
        if here in found:
            continue
        found[here] = None
        if here is value or here not in stored:
            match here:
                case Pointwise() | Product() | Reduced() | Joined():
                    rest += here.operands
                case View(kind=Permutation() | Reshape() | Windows(size=1, step=1)):
                    rest += here.operands
    return list(found)
