"""Knob values as they stand in JSON."""

from __future__ import annotations

import sys

from search_spaces.schedules.plain_space import PlainValue

# Models look at values as floating-point numbers, which end here. It keeps out infinity and what is no number, too.
_LARGEST = sys.float_info.max


def plain_value(value: object) -> PlainValue:
    """A knob value read from JSON, where a list stands for a tuple.

    Raises:
        ValueError: it is an object, a list of lists, or no finite number.
    """
    if isinstance(value, list):
        return tuple([_scalar(part) for part in value])
    return _scalar(value)


def _scalar(value: object) -> int | float | str | bool | None:
    if value is None or isinstance(value, str) or (isinstance(value, int | float) and abs(value) <= _LARGEST):
        return value
    raise ValueError(
        f"{str(value)[:60]} is no knob value; expected a finite number, a text, true, false, null or a list of these"
    )
