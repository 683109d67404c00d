"""The search loop, with a measurer that makes up latencies: what is measured, logged, resumed and called best."""

from __future__ import annotations

import json
import signal
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import autosched
import search_spaces
from autosched import Progress
from autosched.measuring import OnDone
from autosched.tuner import tune
from search_spaces import Schedule, Workload, ops
from search_spaces.target import cpu
from tuning_logs import Measurement, TuningLog

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP = ops.matmul(64, 64, 64)


def made_up_latency(schedule: Schedule) -> float:
    """Some microseconds that depend on the schedule alone, exact in the 6 digits of a log."""
    return float(f"{100 + zlib.crc32(schedule.one_line.encode()) % 10_000}e-7")


class FakeMeasurer:
    """Measures nothing: every schedule has a latency of its own; one in five fails to compile."""

    def __init__(self) -> None:
        self.measured: list[Schedule] = []
        self.batches = 0
        self.remeasured: list[Schedule] = []

    def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
        self.batches += 1
        self.measured.extend(schedules)
        measurements = [self.one(s) for s in schedules]
        for number, measurement in enumerate(measurements):
            if on_done is not None:
                on_done(number, measurement)
        return measurements

    def one(self, schedule: Schedule) -> Measurement:
        if zlib.crc32(schedule.one_line.encode()) % 5 == 0:
            return Measurement("compile_error", detail="made up")
        return Measurement("ok", (made_up_latency(schedule),))

    def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement]:
        self.remeasured.extend(schedules)
        return [Measurement("ok", (made_up_latency(s),) * rounds) for s in schedules]

    def close(self) -> None:
        pass


def search(log: Path, measurer: FakeMeasurer, trials: int, op: Workload = OP, **rest: object) -> autosched.TuneResult:
    arguments = {"strategy": "random", "cost_model": "random", **rest}
    return tune(op, TARGET, trials, log=log, measurer=measurer, **arguments)  # type: ignore[arg-type]


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


def test_asking_for_more_trials_measures_only_the_difference(log: Path) -> None:
    first, second = FakeMeasurer(), FakeMeasurer()
    search(log, first, 30)
    result = search(log, second, 50)
    assert (result.trials_known, result.trials_done) == (30, 20)
    assert len(second.measured) == 20
    assert not set(first.measured) & set(second.measured)


def test_a_trial_is_in_the_log_as_soon_as_it_is_measured(log: Path) -> None:
    class Stopped(FakeMeasurer):
        def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
            assert on_done is not None
            # As compilers finish: not in the order proposed.
            for number in (2, 0, 1):
                self.measured.append(schedules[number])
                on_done(number, self.one(schedules[number]))
            raise KeyboardInterrupt

    stopped = Stopped()
    with pytest.raises(KeyboardInterrupt):
        search(log, stopped, 64)
    records = list(TuningLog(log))
    assert [r.schedule for r in records] == stopped.measured
    assert [r.provenance.trial for r in records] == [0, 1, 2]
    result = search(log, FakeMeasurer(), 20)
    assert (result.trials_known, result.trials_done) == (3, 17)
    assert [r.provenance.trial for r in TuningLog(log) if not r.provenance.finals] == list(range(20))


def test_a_measurer_that_tells_nothing_on_the_way_is_logged_all_the_same(log: Path) -> None:
    class Silent(FakeMeasurer):
        def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
            return super().measure(schedules)

    assert search(log, Silent(), 20).trials_done == 20
    assert len([r for r in TuningLog(log) if not r.provenance.finals]) == 20


def test_a_search_that_broke_down_resumes_after_what_it_measured(log: Path) -> None:
    class Breaks(FakeMeasurer):
        def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
            if self.batches == 2:
                raise OSError("the machine is on fire")
            return super().measure(schedules, on_done)

    broken = Breaks()
    with pytest.raises(OSError, match="on fire"):
        search(log, broken, 64)
    resumed = FakeMeasurer()
    result = search(log, resumed, 64)
    assert result.trials_known == len(broken.measured) == 32
    assert not set(broken.measured) & set(resumed.measured)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT as a terminal has it: a process started in the background of a shell inherits it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_ends_the_search_after_the_batch_and_keeps_it(log: Path) -> None:
    class Interrupted(FakeMeasurer):
        def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
            signal.raise_signal(signal.SIGINT)
            return super().measure(schedules, on_done)

    result = search(log, Interrupted(), 64)
    assert (result.ending, result.trials_done) == ("interrupted", 16)
    assert len(list(TuningLog(log))) == 16
    assert "run it again" in str(result)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_the_winner_of_the_finals_is_best_even_when_a_trial_looked_faster(log: Path) -> None:
    class Lucky(FakeMeasurer):
        def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement]:
            super().remeasure(schedules, rounds)
            # In the finals all are slower than they looked, and the order is the reverse.
            return [Measurement("ok", ((20 - i) * 1e-3,) * rounds) for i in range(len(schedules))]

    measurer = Lucky()
    result = search(log, measurer, 40)
    assert len(measurer.remeasured) == 5
    assert result.best is not None
    assert result.best.schedule == measurer.remeasured[-1]
    assert result.best.provenance.finals == 1
    assert search(log, FakeMeasurer(), 40).best == result.best


def test_a_finalist_that_fails_in_the_finals_cannot_win(log: Path) -> None:
    class Flaky(FakeMeasurer):
        def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement]:
            _, *rest = super().remeasure(schedules, rounds)
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
    assert result.trials_done == search_spaces.build(ops.gelu_scale(256), TARGET).size
    assert "whole search space" in str(result)


def test_records_of_another_generator_or_timing_policy_are_not_taken_for_known(log: Path) -> None:
    search(log, FakeMeasurer(), 16)
    assert search(log, FakeMeasurer(), 16, policy="hot").trials_known == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line["provenance"]["generator"] = "another"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert search(log, FakeMeasurer(), 16).trials_known == 0


def test_records_of_other_shapes_warm_start_the_strategy(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(log, FakeMeasurer(), 16, op=ops.matmul(64, 64, 128))
    measurer = FakeMeasurer()
    result = search(log, measurer, 16, strategy="evolutionary")
    assert (result.trials_known, result.trials_done) == (0, 16)


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
        assert "torch" in dict(record.provenance.versions)
