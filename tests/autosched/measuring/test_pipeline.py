"""The way from schedule to measurement: what is shared, pruned, repeated, cancelled, and what breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import pytest

import fake_backend
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits
from autosched.measuring.local.jobs import Task, Trial
from autosched.measuring.local.pipeline import TrialPipeline, why_hopeless
from fake_backend import schedule
from search_spaces import Target, TargetUnavailableError, TileProgram
from search_spaces.devices.target import GPUS
from tuning_logs import CompileFacts, DeviceState

DOUBLING = fake_backend.doubling()
H200 = GPUS["h200"]


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    limits = TrialLimits(compile_workers=1)
    with LocalMeasurer(devices.cpu_target(), limits=limits, backend=fake_backend.LOCATION) as measurer:
        yield measurer


def test_the_same_binary_is_timed_once_within_a_batch_and_later(measurer: LocalMeasurer) -> None:
    first, twin = measurer.measure(DOUBLING, [schedule("runs in ms:1", 0), schedule("runs in ms:1", 1)])
    (later,) = measurer.measure(DOUBLING, [schedule("runs in ms:1", 2)])
    assert [m.timing for m in (first, twin, later)] == ["full", "shared", "shared"]
    assert first.latencies_s == twin.latencies_s == later.latencies_s
    assert twin.seconds == 0


def test_a_failure_is_not_shared_every_candidate_fails_by_itself(measurer: LocalMeasurer) -> None:
    found = measurer.measure(DOUBLING, [schedule("cannot be launched", i) for i in range(3)])
    assert [m.status for m in found] == ["run_error"] * 3
    assert all(m.seconds > 0 for m in found)


def test_finalists_are_timed_each_though_their_binary_is_known(measurer: LocalMeasurer) -> None:
    schedules = [schedule("runs in ms:1", 3), schedule("runs in ms:2", 3)]
    measurer.measure(DOUBLING, schedules)
    found = measurer.remeasure(DOUBLING, schedules, rounds=8)
    assert found is not None
    assert [m.timing for m in found] == ["full", "full"]
    assert [len(m.latencies_s) % 8 for m in found] == [0, 0]


def test_what_no_worker_has_begun_can_be_cancelled_and_the_measurer_goes_on(measurer: LocalMeasurer) -> None:
    futures = measurer.submit(
        DOUBLING, [schedule("compiles in ms:300", 5), *(schedule("runs in ms:3", i) for i in range(5, 9))]
    )
    measurer.cancel()
    cancelled = [f for f in futures if f.cancelled()]
    assert len(cancelled) >= 4
    with pytest.raises(CancelledError):
        cancelled[0].result()
    # The same binaries as those given up, too.
    assert all(m.ok for m in measurer.measure(DOUBLING, [schedule("runs in ms:4"), schedule("runs in ms:3", 9)]))


class Started:
    """A measuring worker's queue that records what it is to begin."""

    def __init__(self) -> None:
        self.tasks: list[Task | None] = []

    def collect(self, ready: object) -> list[object]:
        return []

    def start_next(self, ahead: Task | None) -> None:
        self.tasks.append(ahead)


class Compiling:
    """A compile pool that is always at work."""

    busy = True

    def submit(self, trial: Trial) -> None:
        pass

    def step(self, ready: object) -> list[Trial]:
        return []


@pytest.mark.parametrize(("target", "begun"), [(devices.cpu_target(), 0), (H200, 1)])
def test_the_library_is_not_timed_on_a_cpu_that_compiles(target: Target, begun: int) -> None:
    pool: Any = Compiling()
    runner: Any = Started()
    pipeline = TrialPipeline(target, pool, runner, lambda: None)
    task = Task(DOUBLING, "cold")
    pipeline.submit(Trial(task, schedule("is fine"), TileProgram("doubling", (), ())))
    pipeline.step(())
    assert runner.tasks == [task] * begun


def test_what_is_only_compiled_wants_no_inputs() -> None:
    pool: Any = Compiling()
    runner: Any = Started()
    pipeline = TrialPipeline(H200, pool, runner, lambda: None)
    pipeline.compile(Trial(Task(DOUBLING, "cold"), schedule("is fine"), TileProgram("doubling", (), ())))
    pipeline.step(())
    assert runner.tasks == [None]


class Hot:
    """A device that is too hot for so many trials."""

    def __init__(self, trials: int) -> None:
        self.left = trials

    def state(self) -> DeviceState:
        self.left -= 1
        return DeviceState(1980, 2619, 90, 700.0, ("sw_thermal_slowdown",) if self.left >= 0 else ())

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def heated() -> Iterator[tuple[LocalMeasurer, Hot]]:
    monitor = Hot(0)
    with LocalMeasurer(
        devices.cpu_target(),
        limits=TrialLimits(compile_workers=1),
        backend=fake_backend.LOCATION,
        monitor=monitor,
    ) as measurer:
        yield measurer, monitor


@pytest.mark.parametrize(("hot", "readings", "thermal"), [(0, 1, False), (1, 2, False), (2, 3, False), (9, 3, True)])
def test_a_trial_taken_in_thermal_slowdown_is_repeated_with_a_cap_and_says_so(
    heated: tuple[LocalMeasurer, Hot], hot: int, readings: int, thermal: bool
) -> None:
    measurer, monitor = heated
    monitor.left = hot
    (found,) = measurer.measure(DOUBLING, [schedule(f"is fine:{hot}")])
    assert found.device is not None
    assert found.device.thermal == thermal
    assert hot - monitor.left == readings


def test_a_measurer_that_broke_raises_wherever_it_is_used() -> None:
    broken = LocalMeasurer(devices.cpu_target(), backend="fake_backend:create_broken", limits=TrialLimits())
    with broken:
        with pytest.raises(TargetUnavailableError, match="toolchain is not installed"):
            broken.measure(DOUBLING, [schedule("is fine")])
        with pytest.raises(TargetUnavailableError, match="toolchain is not installed"):
            broken.submit(DOUBLING, [schedule("is fine")])


def test_closing_cancels_what_is_open() -> None:
    measurer = LocalMeasurer(devices.cpu_target(), backend=fake_backend.LOCATION)
    (future,) = measurer.submit(DOUBLING, [schedule("runs forever")])
    measurer.close()
    measurer.close()
    assert future.cancelled()


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (CompileFacts(1.0, 168, 0, 200 * 1024), None),
        (CompileFacts(1.0, 255, 64, 100 * 1024), None),
        (CompileFacts(1.0, 255, 2048, 100 * 1024), "spills 2048 bytes"),
        (CompileFacts(1.0, 168, 0, 300 * 1024), "needs 307200 bytes of shared memory, h200 has 232448"),
        (CompileFacts(1.0), None),
    ],
)
def test_compile_facts_tell_what_need_not_be_run(facts: CompileFacts, reason: str | None) -> None:
    found = why_hopeless(facts, H200)
    assert found is None if reason is None else found is not None and reason in found


def test_the_hash_of_binaries_tells_apart_what_runs_differently() -> None:
    backend = fake_backend.FakeBackend()

    def printed(name: str, by: str = "fake") -> tuple[Task, str]:
        program = TileProgram(name, (), ())
        artefact = replace(backend.compile("source", program, H200), backend=by)
        return Trial(Task(DOUBLING, "cold"), schedule(name), program, artefact=artefact).binary

    assert printed("a") == printed("a")
    assert len({printed("a"), printed("b"), printed("a", by="another")}) == 3
