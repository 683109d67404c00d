"""Knob values as they stand in JSON."""

from __future__ import annotations

from search_spaces.schedules.plain_space import PlainValue


def plain_value(value: object) -> PlainValue:
    """A knob value read from JSON, where a list stands for a tuple.

    Raises:
        ValueError: it is an object, or a list of lists.
    """
    if isinstance(value, list):
        return tuple([_scalar(part) for part in value])
    return _scalar(value)


def _scalar(value: object) -> int | float | str | bool | None:
    if value is None or isinstance(value, int | float | str):
        return value
    raise ValueError(
        f"{str(value)[:60]} is no knob value; expected a number, a text, true, false, null or a list of these"
    )
