"""The search loop, with a measurer that makes up latencies: what is measured, logged, resumed and called best."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import Progress
from autosched.backends import spaces
from autosched.machine.policies import Policy
from autosched.measuring import LostTrialError
from autosched.strategies.random import Random
from cost_models import CostModel
from made_up_search import OP, TARGET, FakeMeasurer, search
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
    ops,
)
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, call, div, sub
from tuning_logs import Measurement, TuningLog, TuningRecord


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def test_the_wanted_number_of_distinct_schedules_is_measured_and_each_trial_logged_once(log: Path) -> None:
    measurer = FakeMeasurer()
    result = search(log, measurer, 40)
    trials = [r for r in TuningLog(log) if not r.provenance.finals]
    assert result.trials_done == len(trials) == len(set(measurer.measured)) == 40
    assert [r.provenance.trial for r in trials] == list(range(40))
    assert result.ending == "trials"


def test_a_second_search_on_the_same_log_measures_nothing_and_says_so(log: Path) -> None:
    first = search(log, FakeMeasurer(), 40)
    before = log.read_bytes()
    measurer = FakeMeasurer()
    second = search(log, measurer, 40)
    assert measurer.measured == measurer.remeasured == []
    assert (second.ending, second.trials_done, second.trials_known) == ("known", 0, 40)
    assert second.best == first.best
    assert log.read_bytes() == before
    assert "known from the log" in str(second)


def test_a_search_whose_time_is_over_has_a_kernel_says_so_and_resumes(log: Path) -> None:
    stopped = search(log, FakeMeasurer(), 200, seconds=1e-6)
    assert stopped.ending == "time"
    assert stopped.best is not None
    assert 0 < stopped.trials_done < 200
    rest = search(log, FakeMeasurer(), 200)
    assert rest.ending == "trials"
    assert rest.trials_done == 200 - stopped.trials_done
    for wrong in (0, -1.0, True, "60", float("inf")):
        with pytest.raises(InputError, match="expected a finite number above 0"):
            search(log, FakeMeasurer(), 200, seconds=wrong)


def test_asking_for_more_trials_measures_only_the_difference(log: Path) -> None:
    first, second = FakeMeasurer(), FakeMeasurer()
    search(log, first, 30)
    result = search(log, second, 50)
    assert (result.trials_known, result.trials_done) == (30, 20)
    assert len(second.measured) == 20
    assert not set(first.measured) & set(second.measured)


class SlowMeasurer(FakeMeasurer):
    """Answers only when it is told to, as compilers finish: in any order."""

    def __init__(self, overlaps: bool = False) -> None:
        super().__init__(overlaps)
        self.open: dict[Schedule, Future[Measurement]] = {}
        self.over = False
        self.cancelled = 0

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        if self.over:
            raise OSError("the test is over")
        self.measured.extend(schedules)
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        self.open |= dict(zip(schedules, futures, strict=True))
        # Last: the tests wait for it.
        self.batches += 1
        return futures

    def end(self) -> None:
        """Have a search that still runs end, so that a test which failed does not hang."""
        self.over = True
        for future in self.open.values():
            future.set_exception(OSError("the test is over"))
        self.open.clear()

    def answer(self, *schedules: Schedule) -> None:
        for schedule in schedules:
            self.open.pop(schedule).set_result(self.one(schedule))

    def cancel(self) -> None:
        self.cancelled += len(self.open)
        for future in self.open.values():
            future.cancel()
        self.open.clear()


@contextmanager
def searching(log: Path, measurer: SlowMeasurer, trials: int, **rest: object) -> Iterator[Future[autosched.TuneResult]]:
    """A search in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(search, log, measurer, trials, **rest)  # type: ignore[arg-type]
        finally:
            measurer.end()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_trial_is_in_the_log_as_soon_as_it_is_measured_in_the_order_of_their_ends(log: Path) -> None:
    measurer = SlowMeasurer()
    with searching(log, measurer, 16) as result:
        wait_until(lambda: measurer.batches == 1)
        first, second, third, *others = measurer.measured
        for schedule in (third, first):
            measurer.answer(schedule)
            wait_until(lambda last=schedule: [r.schedule for r in TuningLog(log)][-1:] == [last])  # type: ignore[misc]
        measurer.answer(*others, second)
        result.result()
    trials = [r for r in TuningLog(log) if not r.provenance.finals]
    assert [r.schedule for r in trials] == [third, first, *others, second]
    assert [r.provenance.trial for r in trials] == list(range(16))


def test_the_next_batch_is_proposed_while_one_is_measured_where_that_may_overlap(log: Path) -> None:
    measurer = SlowMeasurer(overlaps=True)
    with searching(log, measurer, 48) as result:
        wait_until(lambda: measurer.batches == 2)
        # Of the third batch nothing may be known before the whole of the first has ended.
        measurer.answer(*measurer.measured[1:20])
        wait_until(lambda: len(list(TuningLog(log))) == 19)
        assert measurer.batches == 2
        measurer.answer(measurer.measured[0])
        wait_until(lambda: measurer.batches == 3)
        measurer.answer(*list(measurer.open))
        assert result.result().trials_done == 48
    assert len(set(measurer.measured)) == 48


def test_where_it_may_not_overlap_a_batch_is_proposed_after_the_one_before_has_ended(log: Path) -> None:
    measurer = SlowMeasurer()
    with searching(log, measurer, 32) as result:
        wait_until(lambda: measurer.batches == 1)
        measurer.answer(*measurer.measured[1:])
        wait_until(lambda: len(list(TuningLog(log))) == 15)
        assert measurer.batches == 1
        measurer.answer(measurer.measured[0])
        wait_until(lambda: measurer.batches == 2)
        measurer.answer(*list(measurer.open))
        assert result.result().trials_done == 32


@pytest.mark.parametrize("overlaps", [False, True])
def test_the_same_seed_and_answers_give_the_same_search_whatever_the_order_of_the_ends(
    tmp_path: Path, overlaps: bool
) -> None:
    forward = FakeMeasurer(overlaps)
    search(tmp_path / "a", forward, 64, strategy="evolutionary", cost_model="roofline")
    backward = SlowMeasurer(overlaps)
    with searching(tmp_path / "b", backward, 64, strategy="evolutionary", cost_model="roofline") as result:
        while not result.done():
            backward.answer(*reversed(list(backward.open)))
            time.sleep(0.005)
        result.result()
    assert forward.measured == backward.measured


def test_what_was_measured_before_the_measurer_broke_is_in_the_log(log: Path) -> None:
    class Breaks(SlowMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            futures = super().submit(workload, schedules)
            self.answer(*schedules[:7])
            for future in self.open.values():
                future.set_exception(TargetUnavailableError("the device fell off the bus"))
            return futures

    measurer = Breaks()
    with pytest.raises(TargetUnavailableError, match="fell off the bus"):
        search(log, measurer, 16)
    assert [r.schedule for r in TuningLog(log)] == measurer.measured[:7]


def test_a_search_that_broke_down_resumes_after_what_it_measured(log: Path) -> None:
    class Breaks(FakeMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            if self.batches == 2:
                raise OSError("the machine is on fire")
            return super().submit(workload, schedules)

    broken = Breaks()
    with pytest.raises(OSError, match="on fire"):
        search(log, broken, 64)
    resumed = FakeMeasurer()
    result = search(log, resumed, 64)
    assert result.trials_known == len(broken.measured) == 32
    assert not set(broken.measured) & set(resumed.measured)


class Losing(FakeMeasurer):
    """Loses the machines that have some of the schedules: each once, or for good."""

    def __init__(self, for_good: bool) -> None:
        super().__init__()
        self.for_good = for_good
        self.given: Counter[Schedule] = Counter()

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures = super().submit(workload, schedules)
        self.given.update(schedules)
        for number, schedule in enumerate(schedules):
            if zlib.crc32(schedule.one_line.encode()) % 3 == 0 and (self.for_good or self.given[schedule] == 1):
                futures[number] = Future()
                futures[number].set_exception(LostTrialError("the machine is gone"))
        return futures


def test_what_was_lost_with_a_machine_is_given_again_and_measured(log: Path) -> None:
    measurer = Losing(for_good=False)
    result = search(log, measurer, 40)
    assert result.trials_done == 40 == len(measurer.given)
    assert {*measurer.given.values()} == {1, 2}
    assert result.lost == 0


def test_what_is_lost_for_good_is_told_and_others_are_measured_in_its_place(log: Path) -> None:
    measurer = Losing(for_good=True)
    result = search(log, measurer, 40)
    assert result.trials_done == 40 == len({r.schedule for r in TuningLog(log)})
    assert result.lost > 0
    assert f"lost by the measurer, and not in the log: {result.lost} schedules" in result.report


@pytest.mark.parametrize(("capacity", "batches"), [(64, [16, 16]), (10, [10, 10]), (960, [80, 80, 80])])
def test_batches_are_as_large_as_the_measurer_can_take(log: Path, capacity: int, batches: list[int]) -> None:
    sizes: list[int] = []

    class Counting(FakeMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            sizes.append(len(schedules))
            return super().submit(workload, schedules)

    measurer = Counting()
    measurer.capacity = capacity
    search(log, measurer, sum(batches))
    assert sizes == batches


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT as a terminal has it: a process started in the background of a shell inherits it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_gives_up_what_waits_keeps_what_ended_and_reports(log: Path) -> None:
    class Interrupted(SlowMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            futures = super().submit(workload, schedules)
            signal.raise_signal(signal.SIGINT)
            self.answer(*schedules[:10])
            return futures

    measurer = Interrupted()
    result = search(log, measurer, 64)
    assert (result.ending, result.trials_done, measurer.cancelled) == ("interrupted", 10, 6)
    assert [r.schedule for r in TuningLog(log)] == measurer.measured[:10]
    assert "run it again" in str(result)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    resumed = FakeMeasurer()
    assert search(log, resumed, 64).trials_done == 54
    assert not set(measurer.measured[:10]) & set(resumed.measured)


def test_the_winner_of_the_finals_is_best_even_when_a_trial_looked_faster(log: Path) -> None:
    class Lucky(FakeMeasurer):
        def remeasure(
            self,
            workload: Workload,
            schedules: Sequence[Schedule],
            rounds: int,
            *,
            policy: Policy = "cold",
            seed: int = 0,
        ) -> list[Measurement]:
            super().remeasure(workload, schedules, rounds)
            # In the finals all are slower than they looked, and the order is the reverse.
            return [Measurement("ok", ((40 - i) * 1e-3,) * rounds) for i in range(len(schedules))]

    measurer = Lucky()
    result = search(log, measurer, 40)
    assert len(measurer.remeasured) == 16
    assert result.best is not None
    assert result.best.schedule == measurer.remeasured[-1]
    assert result.best.provenance.finals
    assert search(log, FakeMeasurer(), 40).best == result.best


def test_a_finalist_that_fails_in_the_finals_cannot_win(log: Path) -> None:
    class Flaky(FakeMeasurer):
        def remeasure(
            self,
            workload: Workload,
            schedules: Sequence[Schedule],
            rounds: int,
            *,
            policy: Policy = "cold",
            seed: int = 0,
        ) -> list[Measurement]:
            _, *rest = super().remeasure(workload, schedules, rounds)
            return [Measurement("wrong_result", detail="only sometimes right"), *rest]

    measurer = Flaky()
    result = search(log, measurer, 40)
    assert result.best is not None
    assert result.best.schedule != measurer.remeasured[0]


def test_failed_trials_are_counted_by_status_and_logged(log: Path) -> None:
    measurer = FakeMeasurer()
    result = search(log, measurer, 40)
    failed = sum(not measurer.one(s).ok for s in measurer.measured)
    assert result.failures == (("compile_error", failed),)
    assert sum(r.measurement.status == "compile_error" for r in TuningLog(log)) == failed


def test_a_search_in_which_everything_fails_has_no_kernel_and_says_why(log: Path) -> None:
    class Hopeless(FakeMeasurer):
        def one(self, schedule: Schedule) -> Measurement:
            return Measurement("run_crash", detail="made up")

    result = search(log, Hopeless(), 16)
    assert result.best is None
    with pytest.raises(autosched.AutoschedError, match="16 run_crash"):
        _ = result.kernel
    again = search(log, Hopeless(), 16)
    assert (again.trials_done, again.failures) == (0, ())
    with pytest.raises(autosched.AutoschedError, match="16 run_crash"):
        _ = again.kernel


def test_a_search_space_smaller_than_the_trials_is_exhausted(log: Path) -> None:
    result = search(log, FakeMeasurer(), 10_000, op=ops.gelu_scale(256))
    assert result.ending == "exhausted"
    assert result.trials_done == spaces.build(ops.gelu_scale(256), TARGET).size
    assert "whole search space" in str(result)


def test_records_of_another_timing_policy_are_not_taken_for_known(log: Path) -> None:
    search(log, FakeMeasurer(), 16)
    assert search(log, FakeMeasurer(), 16, policy="hot").trials_known == 0


class Listening(Random):
    """Random search that keeps what it is told of other shapes, devices and versions."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> None:
        super().__init__(space, cost_model, rng)
        self.elsewhere: list[TuningRecord] = []

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        super().tell(records, elsewhere=elsewhere)
        if elsewhere:
            self.elsewhere += records


def test_records_of_other_shapes_are_told_to_the_strategy_and_known_of_none(log: Path) -> None:
    other, made = ops.matmul(64, 64, 128), []

    def listening(space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> Listening:
        made.append(Listening(space, cost_model, rng))
        return made[-1]

    search(log, FakeMeasurer(), 16, op=other)
    result = search(log, FakeMeasurer(), 16, strategy=listening)
    assert (result.trials_known, result.trials_done) == (0, 16)
    succeeded = {r.schedule for r in TuningLog(log).records(other, TARGET) if r.measurement.ok}
    assert len(succeeded) > 8
    assert {r.schedule for r in made[0].elsewhere if r.workload == other} == succeeded


def test_the_same_seed_proposes_the_same_schedules(tmp_path: Path) -> None:
    runs = [FakeMeasurer(), FakeMeasurer(), FakeMeasurer()]
    for number, (run, seed) in enumerate(zip(runs, (7, 7, 8), strict=True)):
        search(tmp_path / f"{number}.jsonl", run, 32, seed=seed)
    assert runs[0].measured == runs[1].measured
    assert runs[0].measured != runs[2].measured


def test_progress_is_told_after_every_trial_and_before_the_finals(log: Path) -> None:
    seen: list[Progress] = []
    search(log, FakeMeasurer(), 40, on_progress=seen.append)
    assert [p.trials for p in seen] == [*range(1, 41), 40]
    assert [p.phase for p in seen] == ["search"] * 40 + ["finals"]
    assert all(p.wanted == 40 for p in seen)
    assert seen[-1].best_s == min(r.measurement.latency_s for r in TuningLog(log) if r.measurement.ok)
    assert seen[-1].failures[0][0] == "compile_error"


def test_every_record_says_where_it_comes_from(log: Path) -> None:
    search(log, FakeMeasurer(), 16, seed=3)
    for record in TuningLog(log):
        assert record.key == (OP.key, TARGET.key)
        assert record.provenance.seed == 3
        assert record.provenance.policy == "cold"
        assert record.provenance.unix_s > 0
        assert record.provenance.versions == FakeMeasurer.environment


# Workloads that compute the same


def softmax_of_more_rows(outer: int, inner: int, columns: int) -> Workload:
    """What `ops.softmax` of outer * inner rows computes, with other names and one axis more."""
    i, j, k = Axis("i", outer), Axis("j", inner), Axis("k", columns)
    rows, at = (axis_index("i"), axis_index("j")), (axis_index("i"), axis_index("j"), axis_index("k"))
    x, shifted = Access("given", at), Access("shifted", at)
    stages = (
        Stage("largest", (i, j), x, Reduction("max", (k,))),
        Stage("shifted", (i, j, k), call("exp", sub(x, Access("largest", rows)))),
        Stage("sums", (i, j), shifted, Reduction("sum", (k,))),
        Stage("made", (i, j, k), div(shifted, Access("sums", rows))),
    )
    return Workload("attention", (Tensor("given", (outer, inner, columns), "float32"),), stages)


def test_a_search_goes_on_under_another_name(log: Path) -> None:
    one, measurer = ops.softmax(24, 64), FakeMeasurer()
    search(log, measurer, 6, one)
    again = search(log, measurer, 8, dataclasses.replace(one, name="mine"))
    assert (again.trials_known, again.trials_done) == (6, 2)


def test_a_search_counts_what_was_measured_in_whatever_loops_it_was_written(log: Path) -> None:
    flat, deep = ops.softmax(24, 64), softmax_of_more_rows(4, 6, 64)
    search(log, FakeMeasurer(), 20, flat)
    result = search(log, FakeMeasurer(), 20, deep)
    assert (result.trials_known, result.trials_done) == (20, 0)


def test_a_log_keeps_all_records_of_workloads_that_have_one_key(log: Path) -> None:
    flat, deep = ops.softmax(24, 64), softmax_of_more_rows(4, 6, 64)
    for op, trials in ((flat, 5), (deep, 10)):
        search(log, FakeMeasurer(), trials, op)
    records = TuningLog(log).records(deep)
    assert len(records) == len(list(TuningLog(log)))
    assert {r.workload.name for r in records} == {"softmax", "attention"}
