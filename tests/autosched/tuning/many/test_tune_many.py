"""Several searches over one session: who gets the trials, what is logged and resumed, what is refused."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import autosched
from autosched.machine.policies import Policy
from autosched.strategies.random import Random
from cost_models import CostModel
from search_spaces import (
    Axis,
    InputError,
    Reduction,
    Schedule,
    SearchSpace,
    Stage,
    TargetUnavailableError,
    Tensor,
    Workload,
)
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, mul
from several_searches import LARGE, ROWS, SMALL, TARGET, FakeMeasurer, search, trials_of
from tuning_logs import Measurement, TuningLog


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def test_all_kernels_together_are_given_the_trials(log: Path) -> None:
    result = search(log, FakeMeasurer(), 96, (SMALL, 1), (LARGE, 1))
    counts = [len(trials_of(log, op)) for op in (SMALL, LARGE)]
    assert sum(counts) == result.trials_done == 96
    assert [r.trials_done for r in result.results if isinstance(r, autosched.TuneResult)] == counts


def test_few_trials_reach_every_kernel(log: Path) -> None:
    assert [s.result.trials_done for s in search(log, FakeMeasurer(), 8, (SMALL, 1), (LARGE, 1)).spent] == [4, 4]


def test_every_kernel_has_a_success_when_the_time_is_over(log: Path) -> None:
    result = search(log, FakeMeasurer(), 400, (SMALL, 1), (LARGE, 1), (ROWS, 1), seconds=1e-6)
    assert "its time was over" in str(result)
    assert result.trials_done < 400
    assert result.without_kernel == ()
    rest = search(log, FakeMeasurer(), result.trials_done + 9, (SMALL, 1), (LARGE, 1), (ROWS, 1), seconds=60.0)
    assert rest.trials_done == 9
    assert "time was over" not in str(rest)


def test_the_kernel_that_weighs_most_gets_most_of_them(log: Path) -> None:
    search(log, FakeMeasurer(), 320, (SMALL, 1), (LARGE, 1))
    assert len(trials_of(log, SMALL)) < len(trials_of(log, LARGE))


def test_a_weight_turns_that_around(log: Path) -> None:
    search(log, FakeMeasurer(), 320, (SMALL, 1000), (LARGE, 1))
    assert len(trials_of(log, SMALL)) > len(trials_of(log, LARGE))


def test_the_log_of_each_is_as_from_tune(log: Path, tmp_path: Path) -> None:
    search(log, FakeMeasurer(), 64, (SMALL, 1), (ROWS, 1))
    trials = trials_of(log, ROWS)
    other = tmp_path / "alone.jsonl"
    autosched.tune(
        ROWS, TARGET, len(trials), log=other, measurer=FakeMeasurer(), strategy="random", cost_model="random"
    )
    alone = trials_of(other, ROWS)
    assert [(r.schedule, r.measurement.latency_s) for r in trials] == [
        (r.schedule, r.measurement.latency_s) for r in alone
    ]
    assert [r.provenance.trial for r in trials] == list(range(len(trials)))


def test_a_second_call_asks_nothing_of_a_measurer(log: Path) -> None:
    first = search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 2))
    before = log.read_bytes()
    second = search(log, cast(FakeMeasurer, object()), 64, (SMALL, 1), (LARGE, 2))
    assert (second.trials_done, second.trials_known) == (0, 64)
    assert second.weighted_s == first.weighted_s
    assert log.read_bytes() == before


def test_tune_goes_on_with_what_was_tuned_together(log: Path) -> None:
    search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1))
    known = len(trials_of(log, SMALL))
    result = autosched.tune(
        SMALL, TARGET, known + 5, log=log, measurer=FakeMeasurer(), strategy="random", cost_model="random"
    )
    assert (result.trials_known, result.trials_done) == (known, 5)


def test_batches_of_several_searches_are_under_way_at_once(log: Path) -> None:
    class Slow(FakeMeasurer):
        """Keeps everything until three batches are under way, or none is left to come."""

        def __init__(self) -> None:
            super().__init__(overlaps=True)
            self.kept: list[tuple[Future[Measurement], Measurement]] = []
            self.together: set[str] = set()

        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            self.together.add(workload.key)
            futures: list[Future[Measurement]] = [Future() for _ in schedules]
            self.kept += zip(futures, (self._one(workload, s) for s in schedules), strict=True)
            if len(self.kept) == 48:
                for future, measurement in self.kept:
                    future.set_result(measurement)
            return futures

    measurer = Slow()
    search(log, measurer, 48, (SMALL, 1), (LARGE, 1), (ROWS, 1))
    assert len(measurer.together) == 3


def test_a_kernel_whose_inputs_do_not_fit_takes_no_other_along(log: Path) -> None:
    result = search(log, FakeMeasurer(unfit=[LARGE]), 64, (SMALL, 1), (LARGE, 1))
    small, large = result.results
    assert isinstance(small, autosched.TuneResult)
    assert isinstance(large, autosched.TuneResult)
    assert (small.trials_done, large.trials_done, large.best, large.ending) == (64, 0, None, "unfit")


def test_a_kernel_of_which_every_trial_fails_is_given_up(log: Path) -> None:
    result = search(log, FakeMeasurer(broken=[LARGE]), 200, (SMALL, 1), (LARGE, 1))
    assert len(trials_of(log, LARGE)) == 48
    assert len(trials_of(log, SMALL)) == 152
    assert "no kernel" in str(result)


def test_what_has_no_schedule_is_left_out_and_named(log: Path) -> None:
    # The second fold is of sums that the first one folds along the other axis.
    i, j, x = Axis("i", 4), Axis("j", 8), Access("x", (axis_index("j"), axis_index("i")))
    sums = Stage("sums", (i,), x, Reduction("sum", (j,)))
    weighted = Stage("out", (j,), mul(x, Access("sums", (axis_index("i"),))), Reduction("sum", (i,)))
    nothing = Workload("weighted_sums", (Tensor("x", (8, 4), "float32"),), (sums, weighted))
    result = search(log, FakeMeasurer(), 32, (nothing, 1), (SMALL, 1))
    assert result.results[0] is None
    assert [label for label, _ in result.refused] == [nothing.label]
    assert nothing.label in str(result)
    assert result.trials_done == 32


def test_the_sum_says_what_it_leaves_out(log: Path) -> None:
    result = search(log, FakeMeasurer(broken=[LARGE]), 200, (SMALL, 1), (LARGE, 1))
    assert result.without_kernel == (LARGE.label,)
    assert f"weighted, without {LARGE.label}: no kernel (" in str(result)


def test_when_none_succeeds_the_result_says_so_of_each(log: Path) -> None:
    result = search(log, FakeMeasurer(broken=[SMALL, LARGE]), 200, (SMALL, 1), (LARGE, 1))
    assert result.without_kernel == (SMALL.label, LARGE.label)
    assert (result.weighted_s, result.trials_done) == (0.0, 96)


def test_what_is_given_twice_is_tuned_once_and_counts_twice(log: Path) -> None:
    result = search(log, FakeMeasurer(), 32, (SMALL, 1), (SMALL, 2))
    first, second = result.results
    assert first is second
    assert [s.weight for s in result.spent] == [3.0]
    assert result.trials_done == 32


def test_a_torn_line_of_the_log_costs_its_trial_alone(log: Path) -> None:
    search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1))
    lines, latencies = log.read_text().splitlines(), [r.measurement.latency_s for r in TuningLog(log)]
    # The slowest is in no finals, which would tell of it too.
    slowest = latencies.index(max(latencies))
    lines[slowest] = lines[slowest][:40]
    log.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="line"):
        result = search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1))
    assert (result.trials_known, result.trials_done) == (63, 1)


def test_the_first_batch_of_a_resumed_search_is_that_of_the_first_run(log: Path) -> None:
    first = search(log, FakeMeasurer(), 96, (SMALL, 1), (LARGE, 1))
    second = search(log, FakeMeasurer(), 160, (SMALL, 1), (LARGE, 1))
    assert [s.first_s for s in second.spent] == [s.first_s for s in first.spent]
    trials = [r.measurement.latency_s for r in trials_of(log, SMALL)[:16]]
    assert min(trials) in [s.first_s for s in first.spent]


class Once(Random):
    """Has nothing more to propose for one workload after a batch."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> None:
        super().__init__(space, cost_model, rng)
        self._over = False

    def ask(self, count: int) -> list[Schedule]:
        asked = [] if self._over else super().ask(count)
        self._over = self._space.workload.key == SMALL.key
        return asked


def test_a_search_that_has_nothing_left_to_propose_leaves_its_turn_to_others(log: Path) -> None:
    result = search(log, FakeMeasurer(overlaps=True), 96, (SMALL, 100), (LARGE, 1), strategy=Once)
    assert [s.result.ending for s in result.spent] == ["exhausted", "trials"]
    assert [sum(turn.trials for turn in s.turns) for s in result.spent] == [16, 80]


def test_a_measurer_that_breaks_keeps_what_was_measured(log: Path) -> None:
    class Breaks(FakeMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            if len(self.submitted) >= 32:
                raise TargetUnavailableError("the device fell off the bus")
            return super().submit(workload, schedules)

    with pytest.raises(TargetUnavailableError, match="fell off"):
        search(log, Breaks(), 96, (SMALL, 1), (LARGE, 1))
    assert len(list(TuningLog(log))) == 32


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_ctrl_c_ends_all_searches_and_keeps_what_was_measured(log: Path) -> None:
    class Interrupted(FakeMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            futures = super().submit(workload, schedules)
            if workload.key == LARGE.key:
                signal.raise_signal(signal.SIGINT)
            return futures

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = search(log, Interrupted(), 200, (SMALL, 1), (LARGE, 1), (ROWS, 1))
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted
    assert [s.result.trials_done for s in result.spent] == [16, 16, 0]
    assert "run it again to go on" in str(result)
    assert search(log, FakeMeasurer(), 200, (SMALL, 1), (LARGE, 1), (ROWS, 1)).trials_done == 168


def test_every_turn_of_the_table_says_why_it_was_given(log: Path) -> None:
    result = search(log, FakeMeasurer(), 160, (SMALL, 1), (LARGE, 1))
    assert sum(len(s.turns) for s in result.spent) == len(result.report.split("\n\n")[0].splitlines()) - 1
    assert {turn.why for s in result.spent for turn in s.turns} >= {"first", "improving"}
    assert "1 first" in str(result)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "at least one"),
        ((("matmul", 1),), "expected an operator such as"),
        (((SMALL, 0),), "positive number"),
        (((SMALL, -1),), "positive number"),
        (((SMALL, float("inf")),), "positive number"),
        (((SMALL, float("nan")),), "positive number"),
        (((SMALL, True),), "positive number"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_written(log: Path, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(log, FakeMeasurer(), 32, *given)
    assert not log.exists()


@pytest.mark.parametrize("ops", [None, SMALL, "gemm", {SMALL: 2.0}], ids=["none", "one", "text", "mapping"])
def test_what_are_not_several_operators_is_refused(log: Path, ops: Any) -> None:
    with pytest.raises(InputError, match=r"expected several operators, as \[\(operator, weight\), …\]"):
        autosched.tune_many(ops, TARGET, 32, log=log, measurer=FakeMeasurer())


def test_progress_counts_the_trials_of_all_together(log: Path) -> None:
    seen: list[autosched.Progress] = []
    search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1), on_progress=seen.append)
    trials = [p.trials for p in seen if p.phase == "search"]
    assert trials == sorted(trials)
    assert (trials[0], trials[-1], seen[-1].wanted) == (16, 64, 64) or (trials[0], trials[-1]) == (1, 64)
