"""Equal values computed for a few rows: what a check has to compute of large ones.

Before:  y = norm(x) @ W, z = r * (x @ W')         x[8192, k]
After:   the same of x[16, k]

Rows are positions of a digit of a dimension (`digits`) that constants do not have, so that weights stay whole, and that
every input has in one way. Rows are independent then: those of a sample are computed as among all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.digits import Digit, computed_of, resized, sliced_operands
from autosched.tracing.values.values import Leaf, Value
from search_spaces.workloads.strides import dense_strides

# Rows of a sample: enough of a matrix for the mean of an error; an image has many pixels.
_COUNTS = (16, 1)
# Of both values, one after the other.
Pair = tuple[Value, Value]


class _NoSampleError(Exception):
    """A constant has the rows, or an input has them in several ways."""


@dataclass(frozen=True)
class _Rows:
    """`count` positions of a digit of both values, `made` of smaller `inputs`; `ways`: the digits that these have."""

    inputs: Container[Value]
    count: int
    made: dict[tuple[Value, Digit | None], Value] = field(default_factory=dict)
    ways: dict[Value, Digit | None] = field(default_factory=dict)

    def of(self, value: Value, digit: Digit | None) -> Value:
        """Raises _NoSampleError."""
        if (value, digit) not in self.made:
            self.made[value, digit] = self._made(value, digit)
        return self.made[value, digit]

    def _made(self, value: Value, digit: Digit | None) -> Value:
        if digit is None:
            for each in below([value]):
                self._take(each, None)
            return value
        if value in self.inputs:
            return self._taken(value, digit)
        operands = sliced_operands(value, digit)
        if operands is None or value.constant:
            raise _NoSampleError
        return computed_of(value, digit, self.count, [self.of(o.value, o.digit) for o in operands])

    def _take(self, value: Value, digit: Digit | None) -> None:
        if value in self.inputs and self.ways.setdefault(value, digit) != digit:
            raise _NoSampleError

    def _taken(self, value: Value, digit: Digit) -> Leaf:
        self._take(value, digit)
        shape = resized(value.shape, digit, self.count)
        return Leaf(name=value.name, shape=shape, dtype=value.dtype, strides=dense_strides(shape), position=0)


def samples(pair: Pair, inputs: Mapping[Value, None]) -> Iterator[Pair]:
    """Both values for some of their rows, by every digit that they are independent along, the largest first.

    `inputs`: values that a check draws, in the place of which there are smaller arguments.
    """
    extents = {n for value in inputs for n in value.shape}
    for digit in sorted(set(_digits(pair[0].shape, extents)), key=lambda d: -d.size):
        for count in (n for n in _COUNTS if n < digit.size):
            rows = _Rows(inputs, count)
            with contextlib.suppress(_NoSampleError):
                yield rows.of(pair[0], digit), rows.of(pair[1], digit)


def _digits(shape: Sequence[int], extents: Container[int]) -> Iterator[Digit]:
    """The dimensions, and digits of them that are a dimension of an input: its first or its last one."""
    for dim, size in enumerate(shape):
        yield Digit(dim, 1, size, 1)
        for inner in (n for n in range(2, size) if size % n == 0):
            if inner in extents:
                yield Digit(dim, size // inner, inner, 1)
            if size // inner in extents:
                yield Digit(dim, 1, size // inner, inner)
