"""Schedules of older records in the words of today: their decisions by name, and those that there were not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from search_spaces.schedules.knobs import Knob, KnobValue, Values

# Decisions that were called otherwise.
_RENAMED = {"parts": "subtiles", "per_unit": "per_sm"}
# Tilings that older schedules do not name: their tiles have one position.
_UNCUT = ("planes", "volumes")
# Decisions that are none any more where all values are one kernel.
_SETTLED = ("group", "order", "stages")
# What a schedule did that does not name a decision.
_UNDECIDED: Mapping[str, KnobValue] = {
    "accumulate": "point",
    "across": False,
    "aligned": False,
    "ctas": 1,
    "flat": 0,
    "join": "after",
    "partials": "workspace",
    "per_sm": 1,
    "selected": False,
    "skip": False,
    "specialize": "none",
    "split_k": 1,
    "tail": "masked",
    "unrolled_columns": 1,
    "unrolled_rows": 1,
}


def renamed(decision: str) -> str:
    """The name that a decision has now."""
    return _RENAMED.get(decision, decision)


def completed(values: Values, knobs: Iterable[Knob]) -> Values:
    """The values in the order of the knobs, with those of decisions that they do not name, as far as these are known.

    Values of no knob come last.
    """
    given = {k.name: _value(k, values) for k in knobs}
    return Values({**{name: value for name, value in given.items() if value is not None}, **_beside(values, given)})


def _beside(values: Values, given: Mapping[str, KnobValue | None]) -> Values:
    return Values({name: value for name, value in values.items() if name not in given})


def _value(knob: Knob, values: Values) -> KnobValue | None:
    if knob.name not in values:
        return _undecided(knob)
    settled = knob.name in _SETTLED and len(knob.values) == 1
    return knob.values[0] if settled else values[knob.name]


def _undecided(knob: Knob) -> KnobValue | None:
    value = _UNDECIDED.get(knob.name)
    if knob.name in _UNCUT:
        return next((v for v in knob.values if isinstance(v, tuple) and v[1:] == (1,)), None)
    return value if value in knob.values else None
