"""The time of searches whose schedules take long: what waits is given up, finals fit in, every kernel has a turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from autosched.machine.deadline import Deadline
from autosched.machine.policies import Policy
from autosched.tuning.many.gradient import Gradient
from autosched.tuning.searching.parts import Finalists, finals_s
from autosched.tuning.searching.preparation import prepare
from autosched.tuning.searching.session import run_all
from search_spaces import Schedule, Workload
from several_searches import LARGE, ROWS, SMALL, TARGET, FakeMeasurer, search, trials_of
from tuning_logs import Measurement, Provenance, TuningRecord
from tuning_logs.text import duration_text

EACH_S = 0.02


class SlowMeasurer(FakeMeasurer):
    """Measures one schedule after the other, each for some time."""

    def __init__(self, each_s: float = EACH_S) -> None:
        super().__init__()
        self.each_s, self.rounds = each_s, 0
        self.waiting: deque[tuple[Workload, Schedule, Future[Measurement]]] = deque()
        self._ended = threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        self.waiting.extend((workload, s, f) for s, f in zip(schedules, futures, strict=True))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        self.rounds = rounds
        return super().remeasure(workload, schedules, rounds)

    def cancel(self) -> None:
        while self.waiting:
            self.waiting.popleft()[2].cancel()

    def close(self) -> None:
        self._ended.set()

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        return Measurement("ok", super()._one(workload, schedule).latencies_s, seconds=self.each_s)

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                workload, schedule, future = self.waiting.popleft()
            except IndexError:
                time.sleep(1e-3)
                continue
            time.sleep(self.each_s)
            future.set_result(self._one(workload, schedule))


@pytest.fixture
def measurer() -> Iterator[SlowMeasurer]:
    made = SlowMeasurer()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def test_a_batch_is_given_up_when_the_time_is_over(log: Path, measurer: SlowMeasurer) -> None:
    measurer.each_s = 0.2
    result = search(log, measurer, 64, (LARGE, 1), seconds=1.0).spent[0].result
    assert result.ending == "time"
    # Of a batch of sixteen; the others are cancelled.
    assert 0 < result.trials_done < 8
    assert not measurer.waiting
    assert result.best is not None


def test_every_kernel_has_a_turn_before_the_time_is_over(log: Path, measurer: SlowMeasurer) -> None:
    search(log, measurer, 400, (SMALL, 1000), (LARGE, 1), (ROWS, 1), seconds=1.5)
    counts = [len(trials_of(log, op)) for op in (SMALL, LARGE, ROWS)]
    assert min(counts) >= 1
    assert sum(counts) < 1.5 / EACH_S


def test_a_kernel_that_had_no_turn_goes_on_until_it_has_a_success(log: Path, measurer: SlowMeasurer) -> None:
    result = search(log, measurer, 400, (SMALL, 1), (LARGE, 1), (ROWS, 1), seconds=1e-3)
    assert result.without_kernel == ()
    # Four are submitted, the first one ends, and with it one that was begun.
    assert result.trials_done <= 3 * 4
    assert not measurer.remeasured


def test_kernels_without_a_success_go_on_side_by_side_after_the_time(
    log: Path, measurer: SlowMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, submit = [0], measurer.submit

    def noted(*given: Any, **named: Any) -> Any:
        futures = submit(*given, **named)
        together.append(len({workload.key for workload, *_ in measurer.waiting}))
        return futures

    monkeypatch.setattr(measurer, "submit", noted)
    measurer.capacity = 192
    # Longer than a proposal takes.
    measurer.each_s = 0.3
    search(log, measurer, 400, (SMALL, 1), (LARGE, 1), (ROWS, 1), seconds=1e-3)
    assert max(together) > 1


def test_after_the_last_deadline_kernels_without_a_success_have_none(log: Path, measurer: SlowMeasurer) -> None:
    made = [prepare(op, TARGET, 400, log=log, measured_elsewhere=True) for op in (SMALL, LARGE, ROWS)]
    begin = time.perf_counter()
    measurer.each_s = 0.5
    run_all(made, Gradient(made, lambda: [1.0] * 3), measurer, Deadline.after(0.1), Deadline.after(0.7))
    assert time.perf_counter() - begin < 3.0
    assert sum(one.known for one in made) <= 3
    assert sum(one.best is None for one in made) >= 1
    assert {one.ending for one in made} == {"time"}


def record(number: int, latency_s: float, seconds: float) -> TuningRecord:
    schedule = Schedule("", (("number", number),))
    measurement = Measurement("ok", (latency_s,), seconds=seconds)
    return TuningRecord(SMALL, TARGET, schedule, measurement, Provenance("", "cold", 0.0, 0, number))


@pytest.mark.parametrize(
    ("latency_s", "seconds", "expected"),
    [(1e-5, 1e9, (16, 15)), (1e-5, 1.0, (8, 15)), (0.1, 30.0, (4, 9)), (0.1, 6.0, (2, 2)), (0.1, 1.0, (0, 0))],
    ids=lambda given: duration_text(given) if isinstance(given, float) else None,
)
def test_finals_have_as_many_schedules_and_rounds_as_there_is_time_for(
    latency_s: float, seconds: float, expected: tuple[int, int]
) -> None:
    records = [record(n, latency_s * (1 + n / 100), 0.1) for n in range(20)]
    chosen, rounds = Finalists().within(seconds, records)
    assert (len(chosen), rounds) == expected
    fastest = sorted(records, key=lambda r: r.measurement.latency_s)[: len(chosen)]
    assert finals_s([r.measurement for r in fastest], rounds) <= seconds
    assert {*chosen} == {r.schedule for r in fastest}
