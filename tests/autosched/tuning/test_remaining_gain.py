"""What is said of the gain that remains, and when a search stops because of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

import pytest

import autosched
from autosched import Progress
from autosched.machine.policies import Policy
from autosched.tuning.progress import progress_line
from autosched.tuning.remaining_gain import Improvements, StopRule
from search_spaces import InputError, Schedule, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP = ops.matmul(64, 64, 64)


def seen(*latencies: float | None) -> Improvements:
    found = Improvements.of(latencies)
    assert found is not None
    return found


def test_nothing_is_said_before_a_trial_succeeded() -> None:
    assert Improvements.of([]) is None
    assert Improvements.of([None, None]) is None


def test_the_longer_a_search_the_less_remains() -> None:
    said = [seen(*[1.0] * trials).remaining for trials in (16, 48, 128, 1000)]
    assert all(later.expected < earlier.expected for earlier, later in pairwise(said))
    assert all(later.chance < earlier.chance for earlier, later in pairwise(said))


def test_a_search_with_large_improvements_expects_more_than_one_with_small_ones() -> None:
    start, rest = [1.0] * 8, [1.0] * 30
    large = seen(*start, 0.8, 0.6, *(0.6 * t for t in rest))
    small = seen(*start, 0.98, 0.96, *(0.96 * t for t in rest))
    assert large.remaining.expected > 2 * small.remaining.expected


def test_a_search_that_improved_of_late_expects_more_than_one_that_did_long_ago() -> None:
    late, early = seen(*[1.0] * 60, *[0.9] * 36), seen(*[1.0] * 8, *[0.9] * 88)
    assert late.remaining.chance > 1.5 * early.remaining.chance
    assert StopRule().stops(early)
    assert not StopRule().stops(late)


def test_what_the_first_trials_improved_says_nothing() -> None:
    assert seen(9.0, 5.0, 1.0, *[1.0] * 61) == seen(*[1.0] * 64)


def test_a_failure_is_a_trial_too() -> None:
    assert seen(1.0, *[None] * 63).remaining == seen(*[1.0] * 64).remaining


def test_more_trials_gain_more_and_never_everything() -> None:
    improvements = seen(*[1.0] * 10, 0.01, *[0.01] * 9)
    gains = [improvements.expected(more) for more in (1, 10, 100, 10_000)]
    assert gains == sorted(gains)
    assert 0.0 < gains[0] < gains[-1] < 1.0


@pytest.mark.parametrize(("trials", "stops"), [(32, False), (48, False), (64, True)])
def test_a_search_that_found_nothing_for_long_stops(trials: int, stops: bool) -> None:
    assert StopRule().stops(seen(*[1.0] * trials)) is stops


def test_a_search_stops_at_the_greatest_number_whatever_it_expects() -> None:
    improving = seen(*(0.5**trial for trial in range(1000)))
    assert improving.remaining.expected > 0.01
    assert StopRule().stops(improving)
    assert not StopRule(most=2000).stops(improving)


class Measurer:
    """A latency for every schedule, which is the same for all but few."""

    capacity = 64
    environment = ()

    def __init__(self) -> None:
        self.trials = 0

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        self.trials += len(schedules)
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            future.set_result(Measurement("ok", (1e-3 + 1e-6 * (zlib.crc32(schedule.one_line.encode()) % 9),)))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [Measurement("ok", (1e-3,) * rounds) for _ in schedules]

    def cancel(self) -> None:
        pass


def tuned(log: Path, measurer: Measurer, trials: object, **rest: object) -> autosched.TuneResult:
    arguments = {"strategy": "random", "cost_model": "random", **rest}
    return autosched.tune(OP, TARGET, trials, log=log, measurer=measurer, **arguments)  # type: ignore[arg-type,call-overload,no-any-return]


def test_with_auto_a_search_stops_where_little_is_to_be_gained_and_says_so(tmp_path: Path) -> None:
    result = tuned(tmp_path / "log.jsonl", Measurer(), "auto")
    assert (result.ending, result.trials_done) == ("converged", 64)
    assert result.remaining_gain is not None
    assert result.remaining_gain.expected < 0.01
    assert "expected of 128 more trials" in str(result)


def test_a_search_that_has_stopped_does_not_go_on_when_it_is_called_again(tmp_path: Path) -> None:
    tuned(tmp_path / "log.jsonl", Measurer(), "auto")
    again = Measurer()
    result = tuned(tmp_path / "log.jsonl", again, "auto")
    assert (result.ending, again.trials) == ("known", 0)


def test_a_number_of_trials_is_kept_to_whatever_is_expected(tmp_path: Path) -> None:
    result = tuned(tmp_path / "log.jsonl", Measurer(), 120)
    assert (result.ending, result.trials_done) == ("trials", 120)
    assert result.remaining_gain is not None
    assert "what is left to gain" in result.report


def test_progress_says_what_remains(tmp_path: Path) -> None:
    moments: list[Progress] = []
    tuned(tmp_path / "log.jsonl", Measurer(), 64, on_progress=moments.append)
    assert moments[0].remaining_gain is None
    gains = [p.remaining_gain.expected for p in moments if p.remaining_gain]
    assert gains[-1] < gains[0]


def test_a_line_of_progress_says_it_too() -> None:
    moment = Progress("x", 48, 1000, 0, 1e-6, None, (), None, remaining_gain=seen(*[1.0] * 48).remaining)
    assert progress_line(moment).endswith("1.2 % gain expected of 96 more trials (21 % chance of more than 1 %)")


def test_with_auto_every_kernel_of_many_stops_by_itself(tmp_path: Path) -> None:
    result = autosched.tune_many(
        [OP, ops.matmul(64, 64, 128)],
        TARGET,
        "auto",
        log=tmp_path / "log.jsonl",
        measurer=Measurer(),
        strategy="random",
        cost_model="random",
    )
    assert [s.result.trials_done for s in result.spent] == [64, 64]


@pytest.mark.parametrize("trials", ["automatic", 0, None, 2.5])
def test_another_word_than_auto_is_refused(tmp_path: Path, trials: object) -> None:
    with pytest.raises(InputError, match="trials="):
        tuned(tmp_path / "log.jsonl", Measurer(), trials)
