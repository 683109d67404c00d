"""Features of the knobs of a plain space for models: numbers for every value of a knob."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PlainValue = int | float | str | bool | None | tuple[int | float | str | bool | None, ...]

# Values up to which a knob without order has a column for each of them.
_MOST_ONE_HOT = 8
# From so many values on, the number of factors 2 of each is a feature: whether blocks divide sizes depends on it.
_MANY_VALUES = 6
_MOST_TWOS = 6
# Beyond this, only the order of numbers is used: floating point has no distances there.
_LARGEST = 1e300


def value_columns(values: Sequence[PlainValue]) -> NDArray[np.float64]:
    """The features of every value of a knob, shape (values, columns), each within 0 and 1; no columns for one value.

    Numbers enter by their logarithm if all are positive, and by their factors of 2 if they are many and not all powers
    of two. Words have a column each. Numbers too large, or too close, for floating point enter by their order.
    """
    if len(values) == 1:
        return np.zeros((1, 0))
    known = _numbers(values)
    numeric = len(known) == len(values)
    if numeric and max(map(abs, known)) > _LARGEST:
        return _order(known)
    numbers = np.array(known if numeric else range(len(values)), dtype=np.float64)
    positive = numeric and numbers.min() > 0
    columns = [np.log2(numbers) if positive else numbers]
    if numeric and len(values) >= _MANY_VALUES and np.all(numbers % 1 == 0) and not _powers_of_two(numbers):
        columns.append(_twos(numbers))
    if not numeric and 3 <= len(values) <= _MOST_ONE_HOT:
        columns = [*np.eye(len(values))]
    told_apart = [_scaled(column) for column in columns if np.ptp(column) > 0]
    return np.stack(told_apart, axis=1) if told_apart else _order(known)


def in_order(values: Sequence[PlainValue]) -> list[int]:
    """The positions of values in order: numbers from the least on; others as they stand."""
    known = _numbers(values)
    return sorted(range(len(values)), key=known.__getitem__) if len(known) == len(values) else [*range(len(values))]


def _numbers(values: Sequence[PlainValue]) -> list[int | float]:
    return [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _order(numbers: Sequence[int | float]) -> NDArray[np.float64]:
    place = {number: at for at, number in enumerate(sorted(numbers))}
    return _scaled(np.array([place[number] for number in numbers], dtype=np.float64))[:, None]


def _powers_of_two(numbers: NDArray[np.float64]) -> bool:
    return bool(numbers.min() > 0 and np.all(np.log2(numbers) % 1 == 0))


def _twos(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of factors 2 of each number, up to a few."""
    divided = [numbers % 2**power == 0 for power in range(1, _MOST_TWOS + 1)]
    return np.asarray(np.sum(divided, axis=0), dtype=np.float64)


def _scaled(column: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((column - column.min()) / np.ptp(column))
