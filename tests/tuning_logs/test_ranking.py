"""Who wins: ratios over paired rounds, how sure they are, and what a tie is."""

from __future__ import annotations

import dataclasses
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import Schedule, ops, target_named
from tuning_logs import CompileFacts, Measurement, Provenance, TuningRecord
from tuning_logs.intervals import CONFIDENCE, LEAST_ROUNDS, paired_ratio, ratio_interval
from tuning_logs.ranking import best_of, fastest_trial, tied_with, undecided, winner

OP, H200 = ops.matmul(64, 64, 64), target_named("h200")


def rounds(ratio: float, noise: float = 0.0, count: int = 15, seed: int = 0) -> tuple[float, ...]:
    """Latencies of so many rounds; a drift of a factor of two is common to all, the noise is each candidate's own."""
    drift = np.linspace(1e-3, 2e-3, count)
    return tuple(drift * ratio * np.exp(noise * np.random.default_rng(seed).standard_normal(count)))


def record(tile: int, latencies_s: tuple[float, ...], finals: int = 0, trial: int = 0) -> TuningRecord:
    provenance = Provenance("g1", "cold", 1.0, 0, trial, (), finals)
    return TuningRecord(OP, H200, Schedule("tiled", (("tile", tile),)), Measurement("ok", latencies_s), provenance)


def tile_of(best: TuningRecord | None) -> object:
    return best.schedule.knobs["tile"] if best else None


def test_a_drift_of_all_rounds_does_not_touch_the_ratio() -> None:
    assert paired_ratio(rounds(1.25), rounds(1.0)) == pytest.approx(1.25)
    interval = ratio_interval(rounds(1.25), rounds(1.0))
    assert interval is not None
    assert interval.low == pytest.approx(1.25)
    assert interval.high == pytest.approx(1.25)


@pytest.mark.parametrize("count", [15, 31, 99])
def test_the_interval_is_that_of_a_bootstrap_with_many_resamples(count: int) -> None:
    """One order statistic of difference is allowed: the resamples are drawn, and the ends may be moved outwards."""
    ratios = sorted(np.random.default_rng(1).lognormal(0.0, 0.05, count))
    interval = ratio_interval(ratios, [1.0] * count)
    assert interval is not None
    from scipy import stats

    drawn = stats.bootstrap(
        (ratios,), np.median, confidence_level=CONFIDENCE, n_resamples=20_000, method="percentile", rng=0
    ).confidence_interval
    assert abs(ratios.index(interval.low) - np.searchsorted(ratios, drawn.low)) <= 1
    assert abs(ratios.index(interval.high) - np.searchsorted(ratios, drawn.high)) <= 1


@pytest.mark.parametrize("count", [6, 7, 8, 15, 16, 31, 60, 200, 2000])
def test_the_interval_has_the_true_median_between_its_ends_in_95_of_100_cases(count: int) -> None:
    ends = ratio_interval([float(i) for i in range(1, count + 1)], [1.0] * count)
    assert ends is not None
    below = int(ends.low) - 1
    from scipy import stats

    missed = stats.binom.cdf(below, count, 0.5) + stats.binom.sf(int(ends.high) - 1, count, 0.5)
    assert missed <= 1 - CONFIDENCE + 1e-12


def test_more_rounds_narrow_the_interval() -> None:
    widths = []
    for count in (7, 15, 60, 240):
        interval = ratio_interval(rounds(1.0, 0.05, count, 1), rounds(1.0, 0.05, count, 2))
        assert interval is not None
        widths.append(interval.width)
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("count", range(1, LEAST_ROUNDS))
def test_too_few_rounds_give_no_interval(count: int) -> None:
    assert ratio_interval(rounds(2.0, count=count), rounds(1.0, count=count)) is None


def test_latencies_that_are_not_paired_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio((1.0, 2.0), (1.0,))


@given(st.lists(st.tuples(st.floats(1e-7, 10), st.floats(1e-7, 10)), min_size=LEAST_ROUNDS, max_size=70))
def test_the_median_ratio_lies_in_its_interval_and_the_inverse_in_the_inverse(pairs: list[tuple[float, float]]) -> None:
    slow, fast = zip(*pairs, strict=True)
    there, back = ratio_interval(slow, fast), ratio_interval(fast, slow)
    assert there is not None
    assert back is not None
    assert statistics.median(s / f for s, f in pairs) in there
    assert math.isclose(there.low * back.high, 1.0, rel_tol=1e-9)


def test_of_two_that_cannot_be_told_apart_the_first_wins_whichever_was_faster() -> None:
    one, other = rounds(1.0, 0.02, seed=1), rounds(1.0, 0.02, seed=2)
    assert winner([one, other]) == winner([other, one]) == 0


def test_a_difference_larger_than_the_noise_wins_from_any_place() -> None:
    slow, fast = rounds(1.05, 0.01, seed=1), rounds(1.0, 0.01, seed=2)
    assert winner([slow, fast, slow]) == 1


def test_without_an_interval_the_lowest_median_wins() -> None:
    assert winner([(1.001, 1.002), (1.0, 1.001)]) == 1


def test_finals_are_undecided_until_ties_are_narrow_and_differences_sure() -> None:
    noisy, quiet = (rounds(1.0, 0.02, seed=s) for s in (1, 2))
    assert undecided([noisy, quiet])
    assert not undecided([rounds(1.2, 0.02, seed=1), quiet])
    assert not undecided([rounds(1.0, 0.001, seed=1), rounds(1.0, 0.001, seed=2)])
    assert undecided([rounds(1.2, count=3), rounds(1.0, count=3)])
    assert not undecided([noisy])
    assert not undecided([])


def test_a_tie_in_the_finals_goes_to_the_schedule_that_was_tried_first() -> None:
    trials = [record(16, (3e-3,)), record(32, (1e-3,)), record(64, (2e-3,))]
    tied = [record(32, rounds(0.999, 0.02, seed=1), 1), record(16, rounds(1.0, 0.02, seed=2), 1)]
    assert tied[0].measurement.latency_s != tied[1].measurement.latency_s
    assert tile_of(best_of([*trials, *tied])) == 16
    assert tile_of(best_of([*trials, *reversed(tied)])) == 16


def test_a_clear_winner_of_the_finals_is_best_though_it_was_tried_last() -> None:
    finals = [record(16, rounds(1.1, 0.01, seed=1), 1), record(32, rounds(1.0, 0.01, seed=2), 1)]
    assert tile_of(best_of([record(16, (1e-3,)), record(32, (2e-3,)), *finals])) == 32


def test_those_that_finals_cannot_separate_from_the_winner_tie_with_it() -> None:
    trial, earlier = record(64, (5e-4,)), record(128, rounds(1.0, 0.01, seed=4), 1)
    tied, clear = record(16, rounds(1.0, 0.01, seed=1), 2), record(32, rounds(1.1, 0.01, seed=2), 2)
    out, best = record(8, rounds(1.0, 0.01, count=8), 2), record(4, rounds(1.0, 0.01, seed=3), 2)
    records = [trial, earlier, tied, clear, out, best]
    assert tied_with(best, records) == [best.schedule, tied.schedule]
    assert tied_with(trial, records) == [trial.schedule]
    assert fastest_trial(records) is trial


def test_who_dropped_out_of_the_finals_cannot_win_with_fewer_rounds() -> None:
    finals = [record(16, (1.0e-3,) * 15, 1), record(32, (1.1e-3,) * 30, 1), record(64, (1.2e-3,) * 30, 1)]
    assert tile_of(best_of(finals)) == 32


def test_trials_alone_are_ranked_by_their_medians_without_ties() -> None:
    trials = [record(16, rounds(1.0, 0.02, seed=1)), record(32, rounds(0.99, 0.02, seed=1))]
    assert tile_of(best_of(trials)) == 32


# Trials and finals of two versions, for which some schedules are the same kernel, and some are not.
@st.composite
def records_of_two_versions(draw: st.DrawFn) -> list[TuningRecord]:
    def some(number: int) -> TuningRecord:
        tile, version = draw(st.integers(1, 4)), draw(st.sampled_from(["old", "new"]))
        source = f"{tile} of {version}" if tile % 2 else f"{tile}"
        latencies = draw(st.sampled_from([(), (1e-3,), (1e-3,) * 8, (1.1e-3,) * 8, (2e-3,)]))
        found = record(tile, latencies or (1.0,), draw(st.sampled_from([0, 0, 1, 2])), number)
        facts = CompileFacts(0.1, source=source)
        measurement = Measurement("ok" if latencies else "run_error", latencies, facts=facts)
        return dataclasses.replace(found, measurement=measurement)

    return [some(number) for number in range(draw(st.integers(0, 12)))]


@given(records_of_two_versions())
def test_the_best_of_the_good_ones_is_found_by_asking_about_a_few(records: list[TuningRecord]) -> None:
    asked: list[TuningRecord] = []

    def is_good(found: TuningRecord) -> bool:
        asked.append(found)
        return not str(found.measurement.source).endswith("of old")

    good = list(filter(is_good, records))
    asked.clear()
    assert best_of(records, is_good) is best_of(good)
    # The last good one, four kernels at most, and what is stale.
    assert len(asked) <= 1 + 4 + 2 * (len(records) - len(good))


def test_no_record_is_best_where_there_is_none() -> None:
    assert best_of([]) is None
