"""A search space of knobs, their values and a legality test: of a user's kernel, or of a recorded table.

Its points are tuples of knob values, in the order of the knobs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import EmptySearchSpaceError, InputError
from search_spaces.schedules.plain_features import PlainValue, in_order, value_columns

__all__ = ["Legal", "PlainSpace", "PlainValue", "Point", "identity"]

Point = tuple[PlainValue, ...]
Legal = Callable[[Mapping[str, PlainValue]], bool]

# Combinations up to which a space is listed: a second's work where each is tested for legality.
_MOST_LISTED = 300_000
# Tries before a random draw gives up, where the space is too large for a list.
_MAX_DRAWS = 20_000
# Values of a knob up to which all are neighbours of each other; of more, about so many of the nearest are, and ever
# fewer of those farther off: some milliseconds' work, whatever the knob is.
_MOST_NEAR = 128
# Values shown in a message.
_MOST_SHOWN = 20


class PlainSpace:
    """Every legal combination of knob values; all randomness comes from the generators passed in.

    `legal` is called with the values by the names of the knobs. `configurations` are the legal points themselves, if
    they are known; `legal` is not called then. A space without points is allowed: only drawing from it is refused.
    """

    def __init__(
        self,
        knobs: Mapping[str, Sequence[PlainValue]],
        legal: Legal | None = None,
        configurations: Iterable[Sequence[PlainValue]] | None = None,
    ) -> None:
        """Raises InputError.

        Of a knob without values, with one twice or with one that is not finite; or a configuration not of these knobs.
        """
        self.names = tuple(knobs)
        self.values: tuple[Point, ...] = tuple(tuple(map(_hashable, values)) for values in knobs.values())
        for name, values in zip(self.names, self.values, strict=True):
            # Points are keys of tables, in which 1 and True are one.
            if not values or len({*values}) != len(values):
                raise InputError(
                    f"knob {name}: expected one value or more, each once, for Python, to which 1 is True; "
                    f"got {_shown(values)}"
                )
            if not all(map(_finite, values)):
                raise InputError(f"knob {name}: expected finite numbers; got {_shown(values)}")
        self._positions = [{identity(v): i for i, v in enumerate(values)} for values in self.values]
        self._orders: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        self._legal = legal
        self._given = None if configurations is None else [self._known(point) for point in configurations]

    @cached_property
    def points(self) -> list[Point] | None:
        """Every legal point, each once and in a fixed order; None where there are too many combinations for a list."""
        if self._given is not None:
            return list(dict.fromkeys(self._given))
        if self.combinations > _MOST_LISTED:
            return None
        return [point for point in itertools.product(*self.values) if self._accepts(point)]

    @property
    def combinations(self) -> int:
        """Number of combinations of values, legal or not."""
        return math.prod(len(values) for values in self.values)

    def holds(self, point: Sequence[PlainValue]) -> bool:
        """True if the point is of this space, and legal."""
        if not self.describes(point):
            return False
        values = self.read(point)
        return self._row_of(values) is not None if self.points is not None else self._accepts(values)

    def describes(self, point: Sequence[PlainValue]) -> bool:
        """True if the point has one of the values of every knob, legal together or not."""
        values = self.read(point)
        if len(values) != len(self.names):
            return False
        return all(identity(v) in positions for v, positions in zip(values, self._positions, strict=True))

    def read(self, values: Sequence[PlainValue | list[int]]) -> Point:
        """The point of values read from JSON: a value equal to one of the space, as 16.0 is to 16, becomes that one."""
        point = tuple(map(_hashable, values))
        if len(point) != len(self.names):
            return point
        places = [of.get(identity(v)) for of, v in zip(self._positions, point, strict=True)]
        return tuple(v if at is None else own[at] for v, at, own in zip(point, places, self.values, strict=True))

    def sample(self, rng: np.random.Generator) -> Point:
        """A legal point; every one is equally likely.

        Raises:
            EmptySearchSpaceError: there is none, or none was found.
        """
        if self.points is not None:
            if not self.points:
                raise EmptySearchSpaceError(f"no combination of the knobs {', '.join(self.names)} is legal")
            return self.points[int(rng.integers(len(self.points)))]
        for _ in range(_MAX_DRAWS):
            if self._accepts(point := self._drawn(rng)):
                return point
        raise EmptySearchSpaceError(f"no legal combination of the knobs {', '.join(self.names)} in {_MAX_DRAWS} draws")

    def mutate(self, point: Point, rng: np.random.Generator) -> Point:
        """A legal point that differs in one knob; the same point when none is found."""
        free = [i for i, values in enumerate(self.values) if len(values) > 1]
        for _ in range(32 if free else 0):
            knob = free[int(rng.integers(len(free)))]
            value = self.values[knob][int(rng.integers(len(self.values[knob])))]
            found = (*point[:knob], value, *point[knob + 1 :])
            if identity(value) != identity(point[knob]) and self.holds(found):
                return found
        return point

    def crossover(self, a: Point, b: Point, rng: np.random.Generator) -> Point:
        """A legal mix of two points, knob by knob; `a` when no mix is legal."""
        for _ in range(8):
            found = tuple(x if first else y for x, y, first in zip(a, b, rng.random(len(a)) < 0.5, strict=True))
            if self.holds(found):
                return found
        return a

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Every legal point that differs in one knob; for a knob of many values the nearest, and some farther off."""
        for knob in range(len(self.values)):
            for value in self._near(knob, point[knob]):
                found = (*point[:knob], value, *point[knob + 1 :])
                if identity(value) != identity(point[knob]) and self.holds(found):
                    yield found

    def _near(self, knob: int, value: PlainValue) -> Sequence[PlainValue]:
        """All values of a knob; of many those one to `_MOST_NEAR` / 2 steps away, and twice and four times as far, …"""
        values = self.values[knob]
        if len(values) <= _MOST_NEAR:
            return values
        order, places = self._ordered(knob)
        steps = [*range(1, _MOST_NEAR // 2 + 1)]
        while steps[-1] < len(values):
            steps.append(2 * steps[-1])
        here = places[self._positions[knob][identity(value)]]
        found = (here + step * way for step in steps for way in (-1, 1))
        return [values[order[place]] for place in found if 0 <= place < len(values)]

    def _ordered(self, knob: int) -> tuple[Sequence[int], Sequence[int]]:
        """The positions of a knob's values in their order, and the place of each there."""
        if knob not in self._orders:
            order = in_order(self.values[knob])
            self._orders[knob] = order, np.argsort(order).tolist()
        return self._orders[knob]

    def __iter__(self) -> Iterator[Point]:
        """Every legal point, in a fixed order."""
        if self.points is not None:
            return iter(self.points)
        return (point for point in itertools.product(*self.values) if self._accepts(point))

    def features(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """Features of the points for models, a row each; knobs of one value are left out (`value_columns`)."""
        codes = self.codes(points)
        parts = [table[codes[:, knob]] for knob, table in enumerate(self.columns) if table.shape[1]]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(points), 1))

    @cached_property
    def columns(self) -> list[NDArray[np.float64]]:
        """The features of every value of every knob, shape (values, columns) each."""
        return [value_columns(values) for values in self.values]

    def codes(self, points: Sequence[Point]) -> NDArray[np.int32]:
        """The position of each knob's value among its values, shape (points, knobs)."""
        rows = [[of[identity(v)] for of, v in zip(self._positions, point, strict=True)] for point in points]
        return np.array(rows, dtype=np.int32).reshape(len(points), len(self.names))

    def _known(self, values: Sequence[PlainValue]) -> Point:
        point = tuple(map(_hashable, values))
        if len(point) != len(self.names):
            raise InputError(f"configuration {list(point)}: expected a value for each of {', '.join(self.names)}")
        for name, value, positions in zip(self.names, point, self._positions, strict=True):
            if identity(value) not in positions:
                raise InputError(f"configuration {list(point)}: {name}={value!r} is not one of its values")
        return self.read(point)

    @cached_property
    def _rows(self) -> dict[tuple[tuple[type, PlainValue], ...], int]:
        return {tuple(map(identity, point)): row for row, point in enumerate(self.points or ())}

    def _row_of(self, point: Point) -> int | None:
        return self._rows.get(tuple(map(identity, point)))

    def _accepts(self, point: Point) -> bool:
        return self._legal is None or bool(self._legal(dict(zip(self.names, point, strict=True))))

    def _drawn(self, rng: np.random.Generator) -> Point:
        return tuple(values[int(rng.integers(len(values)))] for values in self.values)


def _hashable(value: PlainValue | list[int]) -> PlainValue:
    """Values read from JSON contain lists in place of tuples."""
    return tuple(value) if isinstance(value, list) else value


def _shown(values: Point) -> str:
    return f"{list(values[:_MOST_SHOWN])}{' …' if len(values) > _MOST_SHOWN else ''}"


def _finite(value: PlainValue) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return not any(isinstance(part, float) and not math.isfinite(part) for part in parts)


def identity(value: PlainValue) -> tuple[type, PlainValue]:
    """Key by which values of a knob are compared: True is not 1, but 1.0 is, as in JSON."""
    kind = type(value)
    return (float if kind is int else kind), value
