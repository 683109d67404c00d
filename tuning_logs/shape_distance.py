"""How far apart two workloads of the same operator are in shape."""

from __future__ import annotations

import math

from search_spaces import Tensor, Workload

# What a tensor that only one of the two has (a bias, say) counts: as much as one dimension of twice the size.
_MISSING = 1.0


def shape_distance(a: Workload, b: Workload) -> float:
    """Sum over the sizes of inputs and output of |log2 ratio|; 0 for equal shapes, symmetric."""
    left, right = _tensors(a), _tensors(b)
    shared = left.keys() & right.keys()
    return sum(_between(left[n], right[n]) for n in sorted(shared)) + _MISSING * len(left.keys() ^ right.keys())


def _tensors(workload: Workload) -> dict[tuple[str, int], tuple[int, ...]]:
    """Shapes by name and rank; the output is called the same everywhere."""

    def entry(name: str, tensor: Tensor) -> tuple[tuple[str, int], tuple[int, ...]]:
        return (name, len(tensor.shape)), tensor.shape

    return dict([*(entry(t.name, t) for t in workload.inputs), entry("", workload.output)])


def _between(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    return sum(abs(math.log2(x / y)) for x, y in zip(a, b, strict=True))
