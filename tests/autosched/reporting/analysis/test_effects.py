"""Effects of decisions, on trials whose latency is a known function of some knobs."""

from __future__ import annotations

import itertools
from dataclasses import replace

from autosched.reporting.analysis.effects import knob_effects
from log_records import record
from search_spaces import Schedule
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import Measurement, TuningRecord


def trial(latency_s: float | None, sketch: str = "tiled", **knobs: KnobValue) -> TuningRecord:
    measured = Measurement("ok", (latency_s,)) if latency_s else Measurement("run_timeout")
    return replace(record(), schedule=Schedule(sketch, tuple(knobs.items()), backend="llvm"), measurement=measured)


def test_the_knob_that_matters_comes_first_and_its_values_have_their_costs() -> None:
    product = itertools.product((1, 2, 4), ("a", "b"), (0, 1, 2, 3, 4))
    found = knob_effects([trial(1e-3 * slow * (1.1 if order == "b" else 1.0), slow=slow, order=order, idle=idle)
                          for slow, order, idle in product])  # fmt: skip
    assert [effect.knob for effect in found] == ["slow", "order", "idle"]
    importances = [effect.importance or 0.0 for effect in found]
    assert sum(importances) == 1
    assert importances[0] > 0.9
    assert importances[2] < 0.01
    assert [(v.value, round(v.best, 6), round(v.median, 6), v.trials) for v in found[0].values] == [
        (1, 1.0, 1.05, 10), (2, 2.0, 2.1, 10), (4, 4.0, 4.2, 10),
    ]  # fmt: skip
    assert [round(v.best, 6) for v in found[1].values] == [1.0, 1.1]
    assert [v.best for v in found[2].values] == [1.0] * 5


def test_knobs_of_one_value_and_failures_have_no_effect_and_few_trials_no_importance() -> None:
    found = knob_effects([trial(1e-3, tile=(4, 8), same=1), trial(2e-3, tile=(8, 4), same=1), trial(None, tile=(1, 1))])
    assert [(effect.knob, effect.importance) for effect in found] == [("tile", None)]
    assert [v.value for v in found[0].values] == [(4, 8), (8, 4)]
    assert knob_effects([trial(None, tile=1)]) == []


def test_a_knob_that_another_sketch_lacks_is_absent_there() -> None:
    found = {e.knob: e for e in knob_effects([trial(1e-3, "a", depth=2), trial(3e-3, "b"), trial(2e-3, "a", depth=4)])}
    assert [(v.value, round(v.best, 6)) for v in found["depth"].values] == [(2, 1.0), (4, 2.0), (None, 3.0)]
    assert [v.value for v in found["sketch"].values] == ["a", "b"]


def test_trials_that_the_knobs_do_not_tell_apart_have_no_importance() -> None:
    found = knob_effects([trial(1e-3, idle=idle, other=other) for idle in range(6) for other in "abcd"])
    assert {effect.importance for effect in found} == {None}
