"""Measurements of one space as points of another: of the same kernel on another device, or of another version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces import InputError
from search_spaces.schedules.plain_space import PlainSpace, PlainValue, Point, identity


@dataclass(frozen=True)
class Fitted:
    """Points of a space, each once, and their seconds (None: failed); `remarks` name what was left out."""

    points: tuple[Point, ...]
    seconds: tuple[float | None, ...]
    remarks: tuple[str, ...] = ()


def fitted(names: Sequence[str], points: Sequence[Point], seconds: Sequence[float | None], space: PlainSpace) -> Fitted:
    """Measurements with the knobs `names`, as points of `space`; these may be illegal there.

    Unknown knobs are dropped, and of points that then are equal the fastest counts. A knob missing in the points takes
    its only value. Points with unknown values are left out.

    Raises:
        InputError: the points lack a knob that has several values.
    """
    columns = [_column(name, list(names), values) for name, values in zip(space.names, space.values, strict=True)]
    allowed = [set(map(identity, values)) for values in space.values]
    best: dict[Point, float] = {}
    foreign = 0
    for point, took in zip(points, seconds, strict=True):
        found = tuple(value if column is None else point[column] for column, value in columns)
        if all(identity(v) in values for v, values in zip(found, allowed, strict=True)):
            own = space.read(found)
            best[own] = min(best.get(own, math.inf), math.inf if took is None else took)
        else:
            foreign += 1
    unknown = [
        name
        for place, name in enumerate(names)
        if name not in space.names and len({identity(point[place]) for point in points}) > 1
    ]
    fastest = tuple(s if math.isfinite(s) else None for s in best.values())
    return Fitted(tuple(best), fastest, _remarks(unknown, foreign, len(points)))


def _column(name: str, names: list[str], values: Point) -> tuple[int | None, PlainValue]:
    """The position of a knob in the points; or, if missing there, its only value."""
    if name in names:
        return names.index(name), None
    if len(values) > 1:
        raise InputError(f"expected a value of the knob {name} ({list(values)[:20]}); got the knobs {', '.join(names)}")
    return None, values[0]


def _remarks(unknown: Sequence[str], foreign: int, of: int) -> tuple[str, ...]:
    remarks = []
    if unknown:
        remarks.append(f"knobs that the space has not were left out: {', '.join(unknown)}")
    if foreign:
        remarks.append(f"{foreign} of {of} points with values that the space has not were left out")
    return tuple(remarks)
