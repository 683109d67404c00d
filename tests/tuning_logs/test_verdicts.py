"""Verdicts on kernels that were timed again: on both sides of every limit."""

from __future__ import annotations

import pytest

from tuning_logs.certificate import Ratio
from tuning_logs.several.verdicts import Verdict, against_library, against_recorded, of_change, of_latencies


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (Ratio(1.2, 1.1, 1.3), "faster"),
        (Ratio(0.9, 0.8, 0.95), "slower"),
        (Ratio(1.01, 0.98, 1.04), "same"),
        (Ratio(1.01, 0.9, 1.2), "ambiguous"),
    ],
)
def test_against_the_library_the_interval_decides(now: Ratio, verdict: Verdict) -> None:
    assert against_library(now) == (verdict, f"{now.value:.2f}x ({now.low:.2f}–{now.high:.2f}) the library")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (Ratio(1.0, 0.99, 1.01), "same"),
        # Significant, and no more than sessions differ by.
        (Ratio(1.03, 1.02, 1.04), "same"),
        (Ratio(1.03, 0.95, 1.2), "ambiguous"),
        (Ratio(1.1, 0.99, 1.3), "ambiguous"),
        (Ratio(1.06, 1.03, 1.09), "faster"),
        (Ratio(0.94, 0.92, 0.97), "slower"),
    ],
)
def test_a_change_counts_beyond_its_interval_and_the_difference_of_sessions(change: Ratio, verdict: Verdict) -> None:
    assert of_change(change, None, "a reason") == (verdict, "a reason")


@pytest.mark.parametrize(
    ("itself", "verdict"),
    [
        (Ratio(1.0, 0.97, 1.03), "slower"),
        (Ratio(1.0, 0.85, 1.02), "ambiguous"),
        (Ratio(1.05, 1.02, 1.2), "ambiguous"),
    ],
)
def test_a_change_as_large_as_that_of_a_kernel_to_itself_is_ambiguous(itself: Ratio, verdict: Verdict) -> None:
    assert of_change(Ratio(0.9, 0.88, 0.92), itself, "a reason")[0] == verdict


def test_latencies_of_two_sessions_are_compared_by_their_medians_and_not_round_by_round() -> None:
    """The first rounds of one, on a cold device, say nothing of those of the other."""
    warming, steady = [20e-6] * 8 + [13.4e-6] * 22, [13.3e-6] * 28 + [13.5e-6] * 2
    assert of_latencies(steady, warming, None, "a reason") == ("same", "a reason")
    assert of_latencies([12e-6] * 10, steady, None, "a reason")[0] == "faster"
    assert of_latencies([13e-6] * 5, steady, None, "a reason") == ("ambiguous", "a reason, in too few rounds")


def test_the_intervals_of_both_sessions_count() -> None:
    now, wide = Ratio(0.9, 0.89, 0.91), Ratio(1.0, 0.8, 1.2)
    assert against_recorded(now, Ratio(1.0, 0.99, 1.01), None)[0] == "slower"
    assert against_recorded(now, wide, None)[0] == "ambiguous"
    assert against_recorded(Ratio(1.0, 0.99, 1.01), Ratio(0.9, 0.89, 0.91), None)[0] == "faster"
