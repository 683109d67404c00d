"""Windows along dimensions of a tensor: each adds a dimension, of the positions in a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import piece, view
from autosched.tracing.values.values import Value
from autosched.tracing.values.views import Windows


@dataclass(frozen=True)
class Window:
    """The windows along a dimension: size, step between windows, and spacing of elements (dilation)."""

    dim: int
    size: int
    step: int
    before: int
    spacing: int
    count: int

    @property
    def reach(self) -> int:
        """Elements covered by all windows, including those before the tensor's first."""
        return (self.count - 1) * self.step + (self.size - 1) * self.spacing + 1

    def elements(self, extent: int, padding: int) -> list[int]:
        """Number of the tensor's elements in each window, with `padding` more at both ends counted."""
        starts = [n * self.step - self.before for n in range(self.count)]
        return [min(s + self.size, extent + padding) - max(s, -padding) for s in starts]


def windows_of(result: Result, x: Value, size: Any, step: Any, padding: Any, spacing: Any) -> list[Window]:
    """The windows along the last dimensions; a single number serves all of them."""
    count = len(size) if len(size) > 1 else len(x.shape) - 1 if len(x.shape) < 3 else None
    rank = count or (2 if len(x.shape) < 5 else 3)
    sizes, steps, before, apart = (of_dims(v, rank) for v in (size, step or size, padding, spacing))
    first = len(x.shape) - rank
    found = zip(range(first, len(x.shape)), sizes, steps, before, apart, result.shape[first:], strict=True)
    return [Window(*each) for each in found]


def of_dims(given: Any, rank: int) -> list[int]:
    """A number for each of so many dimensions, of which a single one serves all."""
    values = [given] if isinstance(given, int) else list(given)
    return values * rank if len(values) == 1 else values


def covered(result: Result, x: Value, windows: Sequence[Window], outside: float) -> Value:
    """The elements that the windows cover, with `outside` beyond the ends of the tensor."""
    shape, before = list(x.shape), [0] * len(x.shape)
    for w in windows:
        shape[w.dim], before[w.dim] = w.reach, w.before
    for d, (size, start) in enumerate(zip(shape, before, strict=True)):
        first = max(-start, 0)
        x = piece(x, d, first, max(min(x.shape[d], size - start) - first, 0))
        before[d] = max(start, 0)
    there = result.part("padded", shape, x.dtype)
    if 0 in x.shape:
        return there.constant(outside)
    return x if x.shape == tuple(shape) else padded(there, x, before, outside)


def windowed(result: Result, x: Value, windows: Sequence[Window]) -> Value:
    """The windows of what they cover: positions in them come last, a dimension for each."""
    shape = list(x.shape)
    for w in windows:
        shape[w.dim] = w.count
        shape.append(w.size)
        x = view(result.part(f"windows_{w.dim}", shape, x.dtype), x, Windows(w.dim, w.size, w.step, w.spacing))
    return x


def folded(result: Result, operator: str, x: Value, windows: Sequence[Window], dtype: str) -> Value:
    """The reduction of every window."""
    x = windowed(result, x, windows)
    along = range(len(x.shape) - len(windows), len(x.shape))
    return result.reduced(operator, x, along, name=f"{result.name}_folded", dtype=dtype)


def at_place(x: Value, windows: Sequence[Window], place: Sequence[int]) -> Value:
    """The element of every window at this position in it."""
    for w, at in zip(windows, place, strict=True):
        x = piece(x, w.dim, at * w.spacing, w.count, w.step)
    return x
