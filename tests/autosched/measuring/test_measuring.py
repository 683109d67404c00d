"""Measuring on this machine, with a backend that can be told to go wrong in every way there is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fake_backend
from autosched.backends import spaces
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits
from fake_backend import schedule
from needed import needs_gpu
from search_spaces import InputError, Schedule, ops
from waiting import eventually

DOUBLING = fake_backend.doubling()
LIMITS = TrialLimits(compile_timeout_s=2.0, run_timeout_s=2.0, compile_workers=1)


def local_measurer(limits: TrialLimits = LIMITS, backend: str = fake_backend.LOCATION) -> LocalMeasurer:
    return LocalMeasurer(devices.cpu_target(), limits=limits, backend=backend)


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with local_measurer() as measurer:
        yield measurer


def test_failures_after_compiling_keep_what_the_compiler_said(measurer: LocalMeasurer) -> None:
    for found in measurer.measure(
        DOUBLING, [schedule(b) for b in ("is fine", "does not fit", "crashes", "yields NaN")]
    ):
        assert found.facts is not None
        assert found.facts.registers == 7


def test_a_correct_candidate_has_its_error_recorded_and_a_broken_one_too(measurer: LocalMeasurer) -> None:
    fine, broken = measurer.measure(DOUBLING, [schedule("is fine"), schedule("computes something else")])
    assert fine.max_error is not None
    assert broken.max_error is not None
    assert fine.max_error <= 1 < broken.max_error


def test_a_trial_says_what_loading_checking_and_timing_took_of_it(measurer: LocalMeasurer) -> None:
    (found,) = measurer.measure(DOUBLING, [schedule("runs in ms:11")])
    assert found.load_s > 0
    assert found.check_s >= 0.01
    assert found.timing_s >= sum(found.latencies_s) >= 0.02
    assert found.seconds >= found.load_s + found.check_s + found.timing_s - 1e-6


def test_measurements_come_in_the_order_of_the_schedules(measurer: LocalMeasurer) -> None:
    durations = [20, 1, 10]
    found = [min(m.latencies_s) for m in measurer.measure(DOUBLING, [schedule(f"runs in ms:{d}") for d in durations])]
    assert found[1] < found[2] < found[0]


def test_a_candidate_much_slower_than_the_best_is_abandoned_after_two_repeats(measurer: LocalMeasurer) -> None:
    fast, slow = measurer.measure(DOUBLING, [schedule("runs in ms:1.5"), schedule("runs in ms:25")])
    assert len(fast.latencies_s) >= 2
    assert len(slow.latencies_s) == 2
    assert slow.latency_s >= 0.025
    assert slow.timing == "short"


def test_a_candidate_that_takes_far_longer_than_the_best_is_called_once(measurer: LocalMeasurer) -> None:
    fast, slow = measurer.measure(DOUBLING, [schedule("runs in ms:1.25"), schedule("runs in ms:300")])
    assert len(fast.latencies_s) >= 2
    assert (slow.status, slow.timing, len(slow.latencies_s)) == ("ok", "short", 1)
    assert 0.3 <= slow.latency_s <= slow.timing_s


def test_a_short_candidate_is_judged_by_samples_taken_when_it_is_warm() -> None:
    # What disturbs its few samples makes it slower, too: a busy machine does that now and then, and not every time.
    for attempt in range(3):
        candidates = [schedule("warms up in calls:0", attempt), schedule("warms up in calls:3", attempt)]
        with local_measurer() as measurer:
            warm, warming_up = measurer.measure(DOUBLING, candidates)
        assert warm.ok
        if warming_up.timing == "full":
            break
    assert warming_up.timing == "full"
    assert warming_up.latencies_s[0] < 0.3e-3


def test_the_winner_of_finals_is_timed_in_turn_with_the_library_and_nobody_else() -> None:
    space = spaces.build(ops.softmax(16, 64), devices.cpu_target())
    candidates = [space.sample(np.random.default_rng(seed)) for seed in range(3)]
    with LocalMeasurer(space.target, limits=TrialLimits(compile_workers=1)) as measurer:
        found = measurer.remeasure(space.workload, candidates, rounds=6)
    assert found is not None
    beside = [m for m in found if m.library_s]
    assert len(beside) == 1
    assert len(beside[0].library_s) == len(beside[0].beside_library_s) == len(beside[0].paired_s) == 2 * 6
    assert beside[0].paired_s != beside[0].latencies_s


def test_candidates_compile_in_parallel() -> None:
    with local_measurer(TrialLimits(compile_workers=2)) as measurer:
        measurer.measure(DOUBLING, [schedule("compiles in ms:100", i) for i in range(2)])
        begin = time.perf_counter()
        measurer.measure(DOUBLING, [schedule("compiles in ms:500", i) for i in range(4)])
        # Half of it, were there nothing else; a busy machine adds its own.
        assert time.perf_counter() - begin < 0.9 * 4 * 0.5


def test_remeasuring_gives_one_latency_per_round_and_keeps_failures(measurer: LocalMeasurer) -> None:
    found = measurer.remeasure(
        DOUBLING, [schedule("runs in ms:2"), schedule("does not fit"), schedule("runs in ms:1")], rounds=8
    )
    assert found is not None
    slow, failed, fast = found
    assert failed.status == "load_error"
    assert len(slow.latencies_s) % 8 == len(fast.latencies_s) % 8 == 0
    assert min(slow.latencies_s) > min(fast.latencies_s)


def test_finalists_are_not_compiled_again(measurer: LocalMeasurer) -> None:
    schedules = [schedule("compiles once:a"), schedule("compiles once:b")]
    assert all(m.ok for m in measurer.measure(DOUBLING, schedules))
    found = measurer.remeasure(DOUBLING, schedules, rounds=3)
    assert found is not None
    assert all(m.ok for m in found)


def test_finals_that_cannot_be_held_have_no_result(measurer: LocalMeasurer) -> None:
    assert measurer.remeasure(DOUBLING, [schedule("is fine"), schedule("crashes when loaded again")], rounds=3) is None


def test_nothing_to_remeasure_is_no_error(measurer: LocalMeasurer) -> None:
    assert measurer.measure(DOUBLING, []) == []
    found = measurer.remeasure(DOUBLING, [schedule("does not fit")], rounds=3)
    assert found is not None
    assert [m.status for m in found] == ["load_error"]


def test_a_schedule_without_a_search_space_is_refused(measurer: LocalMeasurer) -> None:
    with pytest.raises(InputError, match="not bound to a search space"):
        measurer.measure(DOUBLING, [schedule("is fine"), Schedule("is fine", ())])
    assert measurer.measure(DOUBLING, [schedule("is fine")])[0].ok


def test_workers_that_die_between_batches_are_replaced(measurer: LocalMeasurer) -> None:
    measurer.measure(DOUBLING, [schedule("is fine:before")])
    pids = measurer.pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not any(_alive(pid) for pid in pids))
    (found,) = measurer.measure(DOUBLING, [schedule("is fine:after")])
    assert (found.status, found.timing == "shared") == ("ok", False)


def test_an_unknown_policy_is_refused_before_anything_is_under_way(measurer: LocalMeasurer) -> None:
    with pytest.raises(InputError, match="unknown timing policy 'warm'"):
        measurer.submit(DOUBLING, [schedule("is fine")], policy="warm")  # type: ignore[arg-type]  # no policy, on purpose


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_that_reports_a_lasting_error_is_given_a_new_process() -> None:
    schedules = [schedule(b) for b in ("is fine", "breaks the device", "is fine", "exits", "is fine")]
    with LocalMeasurer(devices.gpu_target(), backend=fake_backend.LOCATION) as measurer:
        found = measurer.measure(DOUBLING, schedules)
    assert [m.status for m in found] == ["ok", "run_error", "ok", "run_crash", "ok"]


SCRIPT = """
import sys
from autosched.machine import devices
from autosched.measuring import LocalMeasurer
import fake_backend
measurer = LocalMeasurer(devices.cpu_target(), backend=fake_backend.LOCATION)
doubling = fake_backend.doubling()
found = measurer.measure(doubling, [fake_backend.schedule("is fine")])
print(found[0].status, *measurer.pids, flush=True)
measurer.measure(doubling, [fake_backend.schedule("runs forever"), fake_backend.schedule("compiles forever")])
"""


def test_a_script_without_a_main_guard_measures_and_killing_it_leaves_no_worker_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), *sys.path]))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        assert process.stdout is not None
        status, *pids = process.stdout.readline().split()
        assert status == "ok"
        assert len(pids) >= 2
        assert all(_alive(int(pid)) for pid in pids)
        time.sleep(0.3)  # into the jobs that never end
        process.kill()
    assert eventually(lambda: not any(_alive(int(pid)) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
