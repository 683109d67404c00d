"""Schedules of older records in the words of today: their decisions by name, and those that there were not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from search_spaces.schedules.knobs import Knob, KnobValue, Values

# Decisions that were called otherwise.
_RENAMED = {"parts": "subtiles", "per_unit": "per_sm"}
# What a schedule did that does not name a decision; of a tiling, tiles of one position.
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
    given = {k.name: values[k.name] if k.name in values else _undecided(k) for k in knobs}
    return Values({name: value for name, value in given.items() if value is not None} | values)


def _undecided(knob: Knob) -> KnobValue | None:
    value = _UNDECIDED.get(knob.name)
    if value is None:
        return next((v for v in knob.values if isinstance(v, tuple) and v[1:] == (1,)), None)
    return value if value in knob.values else None
