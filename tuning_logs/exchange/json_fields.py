"""Accessors of parsed JSON for the readers of recorded tables. Unexpected values raise a ValueError that names them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from search_spaces.parsed_json import knob_value
from search_spaces.schedules.plain_space import PlainValue

MS = 1e-3
# Longer times mean failures: Kernel Tuner once wrote 1e20.
_LONGEST = 1e19
# Major version of the files that are read.
_MAJOR = "1"

T = TypeVar("T")


def field(data: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """The value of that name, of that type."""
    value = data.get(name)
    if not isinstance(value, kind):
        got = "none" if name not in data else f"{str(value)[:60]!r}"
        raise ValueError(f"expected {name}, a JSON {'object' if kind is dict else 'array'}; got {got}")
    return value


def version(data: Mapping[str, Any], what: str) -> None:
    """Refuse a file of another major version; files without one are of the first."""
    got = data.get("schema_version", f"{_MAJOR}.0.0")
    if str(got).partition(".")[0] != _MAJOR:
        raise ValueError(f"schema_version {got!r}; expected a {what} of version {_MAJOR}.x")


def knob(value: object) -> PlainValue:
    return knob_value(value, "knob value")


def milliseconds(value: object) -> float | None:
    """Seconds; None for no valid time: null, NaN, infinity, zero, or beyond `_LONGEST`."""
    time = number(value)
    return time * MS if 0 < time < _LONGEST else None


def number(value: object) -> float:
    """A number unchanged, and 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        return float(value) if math.isfinite(value) else 0.0
    except OverflowError:
        return 0.0


def numbers(value: object, unit: float) -> tuple[float, ...]:
    """A list of positive numbers in seconds; empty for anything else."""
    if not isinstance(value, list):
        return ()
    found = tuple([number(v) * unit for v in value])
    return found if all(v > 0 for v in found) else ()


def made_at(timestamp: object) -> float | None:
    """Seconds since 1970 of an ISO 8601 text; without an offset it is taken for UTC."""
    try:
        when = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
