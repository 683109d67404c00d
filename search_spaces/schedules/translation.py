"""Translation of schedules of older records: renamed decisions, and values of decisions that did not exist then."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from search_spaces.schedules.knobs import Knob, KnobValue, Values

# Former names of sketches.
_SKETCHES: Mapping[str, str] = {
    "chained_dot_cpu": "chain",
    "chained_dot_gpu": "chain",
    "fused_dot_gpu": "contraction",
    "row_crossed": "crossed_reduction",
    "row_looped": "reduction",
    "row_split": "reduction",
    "row_whole": "reduction",
    "scan_split": "reduction",
    "thin_dot_gpu": "thin_contraction",
    "tiled_dot_cpu": "contraction",
    "tiled_dot_gpu": "contraction",
}
_ORDER: Mapping[Any, Mapping[str, KnobValue]] = {"mn": {"order": "row_major"}, "nm": {"order": "column_major"}}
_PERSISTENT: Mapping[Any, Mapping[str, KnobValue]] = {
    False: {"grid": "tiles", "per_sm": 1},
    True: {"grid": "persistent", "per_sm": 4},
}
# Former names of decisions, in any sketch.
_RENAMED = {"parts": "subtiles", "per_unit": "per_sm"}
# The same for one sketch; then values of former decisions, each as values of today's decisions.
_RENAMED_IN: Mapping[str, Mapping[str, str]] = {
    "tiled_dot_gpu": {"split_k": "split"},
    "fused_dot_gpu": {"split_k": "split"},
    "thin_dot_gpu": {"split_k": "split"},
    "tiled_dot_cpu": {"prefetch_b": "prefetch"},
    "chained_dot_cpu": {"inner": "inner_register", "carried": "carried_register"},
    "chained_dot_gpu": {"order": "direction"},
}
_IN_OTHER_WORDS: Mapping[str, Mapping[str, Mapping[Any, Mapping[str, KnobValue]]]] = {
    "fused_dot_gpu": {"order": _ORDER},
    "pointwise": {"persistent": _PERSISTENT},
    "row_whole": {"persistent": _PERSISTENT},
    "thin_dot_gpu": {"reduce": {"after_loop": {"accumulate": "point"}, "each_turn": {"accumulate": "row"}}},
    "tiled_dot_cpu": {"order": _ORDER},
    "tiled_dot_gpu": {"order": _ORDER},
}
# Decisions that schedules of one sketch did not name, with their former values.
_ADDED: Mapping[str, Mapping[str, KnobValue]] = {"chained_dot_cpu": {"prefetch": 0}}
# Tilings that older schedules do not name: their tiles have one position, or the whole axis.
_ONE_POSITION, _WHOLE = ("planes", "volumes", "batch"), ("columns",)
# Decisions that are dropped, since all their values make one kernel.
_SETTLED = ("group", "order", "stages")
# Former values of decisions that a schedule does not name.
_UNDECIDED: Mapping[str, KnobValue] = {
    "accumulate": "point",
    "across": False,
    "aligned": False,
    "ctas": 1,
    "eviction": "",
    "flat": 0,
    "grid": "tiles",
    "group": 1,
    "join": "after",
    "k_axes": "box",
    "m_axes": "box",
    "n_axes": "box",
    "online": False,
    "order": "row_major",
    "partials": "workspace",
    "per_sm": 1,
    "selected": False,
    "skip": False,
    "specialize": "none",
    "split": 1,
    "stages": 1,
    "tail": "masked",
    "unrolled_columns": 1,
    "unrolled_planes": 1,
    "unrolled_rows": 1,
}


def in_todays_words(sketch: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The present name of a sketch, and the decisions of an older schedule as present values."""
    renamed, said = _RENAMED_IN.get(sketch, {}), _IN_OTHER_WORDS.get(sketch, {})
    found: dict[str, Any] = {}
    for name, value in values.items():
        meaning = said[name].get(value) if name in said and isinstance(value, Hashable) else None
        found |= meaning or {renamed.get(name, _RENAMED.get(name, name)): value}
    return _SKETCHES.get(sketch, sketch), {**_ADDED.get(sketch, {}), **found}


def completed(values: Values, knobs: Iterable[Knob]) -> Values:
    """The values in the order of the knobs, with former values of decisions that they do not name, as far as known.

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
    tilings = [v for v in knob.values if isinstance(v, tuple)]
    if knob.name in _ONE_POSITION:
        return next((v for v in tilings if v[1:] == (1,)), None)
    if knob.name in _WHOLE:
        return next((v for v in tilings if len(v) == 1), None)
    return value if value in knob.values else None
