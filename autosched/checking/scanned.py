"""Scans of whole tensors: every element combined with those before it.

By doubling, in logarithmically many steps (Hillis and Steele, "Data Parallel Algorithms", 1986):

    y[t] = combine(y[t - 1], x[t]);  y[t] = combine(y[t - 2], y[t]);  y[t] = combine(y[t - 4], y[t]);  …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from search_spaces import Axis, Scan, Stage
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.scans import LEFT, RIGHT, unchanging

# The combination of all elements of a range, for every value of a scan: the value, and further tensors, as its error.
Values = Sequence[tuple[torch.Tensor, ...]]


def scanned(elements: Values, dim: int, reverse: bool, combine: Callable[[Values, Values, int], Values]) -> Values:
    """The scan along a dimension; `combine` gets the number of elements of each side that are combined at most, too."""
    made = [_turned(each, dim, reverse) for each in elements]
    length, step = made[0][0].shape[dim], 1
    while step < length:
        left = [tuple(x.narrow(dim, 0, length - step) for x in each) for each in made]
        right = [tuple(x.narrow(dim, step, length - step) for x in each) for each in made]
        joined = combine(left, right, step)
        made = [
            tuple(torch.cat([x.narrow(dim, 0, step), y], dim) for x, y in zip(before, after, strict=True))
            for before, after in zip(made, joined, strict=True)
        ]
        step *= 2
    return [_turned(each, dim, reverse) for each in made]


def _turned(values: tuple[torch.Tensor, ...], dim: int, reverse: bool) -> tuple[torch.Tensor, ...]:
    return tuple(x.flip(dim) for x in values) if reverse else values


def combined_values(scan: Scan, shape: Sequence[int]) -> tuple[Stage, tuple[Expression, ...]]:
    """The combinations of a scan as expressions, within a stage, of tensors of that shape with names by `named`."""
    axes = tuple(Axis(str(d), size) for d, size in enumerate(shape))
    own = tuple(axis_index(x.name) for x in axes)
    left, right = ([Access(named(s, n), own) for n in range(len(scan.members))] for s in (LEFT, RIGHT))
    combined = scan.combined(left, right)
    return Stage("scan", axes, combined[0]), combined


def named(side: str, number: int) -> str:
    return f"{side} {number}"


def running(scan: Scan) -> Callable[[torch.Tensor, int], torch.Tensor] | None:
    """PyTorch's operator for a scan of one value, where there is one."""
    combined = scan.combine[0]
    known = any(unchanging(scan.combine, whole) for whole in (False, True))
    return _RUNNING[combined.operator] if known and isinstance(combined, Apply) else None


_RUNNING: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "add": torch.cumsum,
    "mul": torch.cumprod,
    "maximum": lambda x, dim: torch.cummax(x, dim)[0],
    "minimum": lambda x, dim: torch.cummin(x, dim)[0],
}
