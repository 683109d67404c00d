"""Knobs: the choices a schedule is made of. Each owns its sampling, mutation and crossover.

Values are JSON scalars or tuples of integers, so that schedules are hashable and can be written to a log.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from search_spaces.errors import UnmatchedError

KnobValue = int | str | bool | tuple[int, ...]


class Values(dict[str, KnobValue]):
    """A value per knob, read as the type that the knob has."""

    def tiling(self, name: str) -> tuple[int, ...]:
        value = self[name]
        assert isinstance(value, tuple), f"{name}={value!r} is no tiling"
        return value

    def tile(self, name: str) -> int:
        """The innermost factor of a tiling."""
        return self.tiling(name)[-1]

    def integer(self, name: str, undecided: int | None = None) -> int:
        """The value of a knob; `undecided` if it has none yet and that is given."""
        value = self[name] if undecided is None else self.get(name, undecided)
        assert isinstance(value, int), f"{name}={value!r} is no integer"
        return value

    def flag(self, name: str) -> bool:
        return bool(self[name])

    def word(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str), f"{name}={value!r} is no word"
        return value


class Knob(Protocol):
    """A named choice among one value or more. Every method returns only values that are in `values`."""

    @property
    def name(self) -> str: ...

    @property
    def values(self) -> tuple[KnobValue, ...]:
        """Every allowed value, in a fixed order."""
        ...

    def sample(self, rng: np.random.Generator) -> KnobValue:
        """A value; each equally likely, unless the knob says otherwise."""
        ...

    def mutate(self, value: KnobValue, rng: np.random.Generator) -> KnobValue:
        """A value near `value`, and different from it when there is another."""
        ...

    def neighbours(self, value: KnobValue) -> tuple[KnobValue, ...]:
        """The values one step away."""
        ...

    def restricted(self, allowed: Sequence[KnobValue]) -> Knob:
        """The same knob with only those of its values that are allowed, one at least, in its own order."""
        ...


@dataclass(frozen=True)
class Choice:
    """One of a few values. `ordered`: neighbours are the adjacent values; otherwise all others.

    `likely`: weight of the first value in random draws; the others weigh 1.

    Raises:
        UnmatchedError: there is no value.
    """

    name: str
    values: tuple[KnobValue, ...]
    ordered: bool = True
    likely: int = 1

    def __post_init__(self) -> None:
        _check_some(self)

    def sample(self, rng: np.random.Generator) -> KnobValue:
        return _drawn(self.values, self.likely, rng)

    def mutate(self, value: KnobValue, rng: np.random.Generator) -> KnobValue:
        near = self.neighbours(value)
        return near[int(rng.integers(len(near)))] if near else value

    def neighbours(self, value: KnobValue) -> tuple[KnobValue, ...]:
        at = self.values.index(value)
        if not self.ordered:
            return tuple(v for v in self.values if v != value)
        return self.values[max(0, at - 1) : at] + self.values[at + 1 : at + 2]

    def restricted(self, allowed: Sequence[KnobValue]) -> Choice:
        values = tuple(v for v in self.values if v in allowed)
        return replace(self, values=values, likely=self.likely if self.values[0] in allowed else 1)


@dataclass(frozen=True)
class Tiling:
    """Split of one loop into nested levels, outermost first; the product covers the extent.

    Before: for m in 512.  After (4, 16, 8): for m.0 in 4, for m.1 in 16, for m.2 in 8. Also called split or factorise.
    A mutation moves a factor from one level to another: exactly two levels change, in opposite directions. A value of
    fewer levels has one iteration of the outermost ones. `likely`: weight of the first value in random draws.

    Raises:
        UnmatchedError: there is no value.
    """

    name: str
    extent: int
    levels: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]
    likely: int = 1

    def __post_init__(self) -> None:
        _check_some(self)

    @cached_property
    def _moves(self) -> dict[KnobValue, tuple[KnobValue, ...]]:
        return {v: _moves_from(v, self.values) for v in self.values}

    def sample(self, rng: np.random.Generator) -> KnobValue:
        return _drawn(self.values, self.likely, rng)

    def mutate(self, value: KnobValue, rng: np.random.Generator) -> KnobValue:
        near = self._moves[value]
        if not near:
            near = tuple(v for v in self.values if v != value)
        return near[int(rng.integers(len(near)))] if near else value

    def neighbours(self, value: KnobValue) -> tuple[KnobValue, ...]:
        return self._moves[value]

    def restricted(self, allowed: Sequence[KnobValue]) -> Tiling:
        values = tuple(v for v in self.values if v in allowed)
        return replace(self, values=values, likely=self.likely if self.values[0] in allowed else 1)


def _drawn(values: Sequence[KnobValue], likely: int, rng: np.random.Generator) -> KnobValue:
    """One of the values at random, the first with weight `likely` and the others with 1."""
    return values[max(0, int(rng.integers(len(values) + likely - 1)) - likely + 1)]


def _check_some(knob: Knob) -> None:
    """Refuse a knob without values: no schedule of such a sketch exists."""
    if not knob.values:
        raise UnmatchedError(f"knob {knob.name} has no value that fits")


def _moves_from(value: tuple[int, ...], values: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The tilings that differ from `value` by moving one factor, smallest moves first, at most 8."""
    found: list[tuple[float, tuple[int, ...]]] = []
    for other in values:
        levels = itertools.zip_longest(reversed(other), reversed(value), fillvalue=1)
        changed = [math.log2(o / v) for o, v in levels if o != v]
        if len(changed) == 2 and changed[0] * changed[1] < 0:
            found.append((max(map(abs, changed)), other))
    return tuple(v for _, v in sorted(found)[:8])


def nearest(knob: Knob, *wanted: float) -> KnobValue:
    """The value of a knob closest to the one wanted, level by level in ratio (of a tiling, its last levels)."""

    def distance(value: KnobValue) -> float:
        levels = value[-len(wanted) :] if isinstance(value, tuple) else (value,)
        return sum(abs(math.log2(max(float(v), 1e-9) / w)) for v, w in zip(levels, wanted, strict=True))

    return min(knob.values, key=distance)


def padded(extent: int) -> int:
    """Positions of the smallest GPU tile for `extent` elements: a power of two."""
    return 1 << (extent - 1).bit_length()


def cover(extent: int, inner: tuple[int, ...]) -> tuple[int, ...]:
    """The tiling with these inner factors: the outermost factor is the fewest that cover `extent`."""
    return (-(-extent // math.prod(inner)), *inner)


def crossover(a: KnobValue, b: KnobValue, rng: np.random.Generator) -> KnobValue:
    """One parent's value or the other's, equally likely: levels of one knob are never mixed."""
    return a if rng.integers(2) else b
