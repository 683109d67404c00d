"""The cost of tuning, from records alone."""

from __future__ import annotations

import dataclasses

import pytest

from autosched.tuning.history import tuning_history
from log_records import H200, SMALL
from search_spaces import Schedule
from tuning_logs import Measurement, Provenance, TuningRecord


def records(*figures: tuple[float, float, int]) -> list[TuningRecord]:
    """One of every (moment, latency, finals); each trial took a tenth of a second itself."""
    made = []
    for number, (unix_s, latency_s, finals) in enumerate(figures):
        measurement = Measurement("ok", (latency_s,), seconds=0.1)
        schedule = Schedule("fake", (("number", number % 5),))
        made.append(TuningRecord(SMALL, H200, schedule, measurement, Provenance("g", "cold", unix_s, 0, 0, (), finals)))
    return made


def test_the_history_tells_when_a_search_was_nearly_as_good_as_in_the_end() -> None:
    trials = [(100.0, 9e-3, 0), (101.0, 1.04e-3, 0), (102.0, 5e-3, 0), (104.0, 1e-3, 0), (106.0, 1.5e-3, 7)]
    history = tuning_history(records(*trials))
    assert history is not None
    assert (history.trials, history.near_trials) == (4, 2)
    assert history.seconds == pytest.approx(6.1)
    assert history.near_s == pytest.approx(1.1)


def test_pauses_between_two_searches_on_one_log_are_not_tuning() -> None:
    ended_in_finals = records((100.0, 2e-3, 0), (101.0, 2e-3, 7), (103.0, 1e-3, 0))
    killed = records((100.0, 2e-3, 0), (5000.0, 1e-3, 0))
    first, second = tuning_history(ended_in_finals), tuning_history(killed)
    assert first is not None
    assert second is not None
    assert first.seconds == pytest.approx(0.1 + 1.0 + 0.1)
    assert second.seconds == pytest.approx(0.2)


def test_a_search_without_success_has_no_history() -> None:
    failed = [dataclasses.replace(r, measurement=Measurement("run_crash")) for r in records((1.0, 1.0, 0))]
    assert tuning_history(failed) is None
