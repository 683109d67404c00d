"""Every way in which a candidate can go wrong becomes one failed trial with a status of its own, and the run goes on.

On a CPU, with a backend that plants the faults; `test_gpu_faults.py` plants them in real kernels.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

import fake_backend
from autosched.machine import devices, memory
from autosched.measuring import LocalMeasurer, TrialLimits
from autosched.measuring.local.worker_process import Lost, how_it_ended
from fake_backend import schedule
from planted_search import FAULTS, planted_search
from tuning_logs import Measurement, TuningLog

DOUBLING = fake_backend.doubling()
LIMITS = TrialLimits(compile_timeout_s=2.0, run_timeout_s=2.0, compile_workers=1)


def local_measurer(limits: TrialLimits = LIMITS, backend: str = fake_backend.LOCATION) -> LocalMeasurer:
    return LocalMeasurer(devices.cpu_target(), limits=limits, backend=backend)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> TuningLog:
    """The log of one search whose strategy proposes every fault, and after each a kernel that is right."""
    log = TuningLog(tmp_path_factory.mktemp("faults") / "tuning.jsonl")
    with local_measurer() as measurer:
        pairs = [(schedule(fault), schedule(f"is fine:{number}")) for number, fault in enumerate(FAULTS)]
        planted_search(log, DOUBLING, devices.cpu_target(), [s for pair in pairs for s in pair], measurer)
    return log


@pytest.fixture(scope="module")
def trials(log: TuningLog) -> dict[str, Measurement]:
    """The trials in the log, by what the kernel does."""
    return {r.schedule.sketch: r.measurement for r in log if not r.provenance.finals}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_gets_its_status_and_reason(trials: dict[str, Measurement], fault: str) -> None:
    status, reason = FAULTS[fault]
    assert trials[fault].status == status
    assert reason in trials[fault].detail
    assert "\n" not in trials[fault].detail


@pytest.mark.parametrize("fault", FAULTS)
def test_a_good_candidate_after_a_fault_is_measured_as_ever(trials: dict[str, Measurement], fault: str) -> None:
    after = trials[f"is fine:{list(FAULTS).index(fault)}"]
    assert (after.status, after.detail) == ("ok", "")
    assert after.timing != "shared"


def test_every_trial_is_in_the_log_exactly_once(log: TuningLog) -> None:
    found = Counter(r.schedule for r in log if not r.provenance.finals)
    assert len(found) == 2 * len(FAULTS)
    assert set(found.values()) == {1}


def test_what_spoils_the_reference_does_not_condemn_the_next_candidate() -> None:
    with local_measurer() as measurer:
        found = measurer.measure(DOUBLING, [schedule("spoils the reference in the end"), schedule("is fine")])
    assert [m.status for m in found] == ["ok", "ok"]


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    """With patience, so that nothing ends but what is killed."""
    with local_measurer(TrialLimits(compile_workers=1)) as measurer:
        measurer.measure(DOUBLING, [schedule("is fine")])
        yield measurer


@pytest.mark.parametrize(("worker", "job"), [(0, "runs in ms:1000"), (1, "compiles in ms:1000")])
def test_a_worker_killed_in_mid_job_does_not_condemn_its_candidate(
    measurer: LocalMeasurer, worker: int, job: str
) -> None:
    victim = measurer.pids[worker]
    killer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
    killer.start()
    found = measurer.measure(DOUBLING, [schedule(job), schedule(f"is fine:after {worker}")])
    killer.join()
    assert victim not in measurer.pids
    assert [m.status for m in found] == ["ok", "ok"]


def test_a_candidate_whose_worker_is_killed_twice_is_given_up(measurer: LocalMeasurer) -> None:
    futures = measurer.submit(DOUBLING, [schedule("compiles in ms:3000")])
    killed: set[int] = set()
    end = time.monotonic() + 20
    while len(killed) < 2 and time.monotonic() < end:
        time.sleep(0.3)
        for pid in set(measurer.pids[1:]) - killed:
            time.sleep(0.3)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    assert futures[0].result(timeout=20).status == "compile_crash"
    (after,) = measurer.measure(DOUBLING, [schedule("is fine:after both")])
    assert (after.status, after.timing == "shared") == ("ok", False)


def test_workers_killed_while_they_start_are_started_again() -> None:
    with local_measurer(TrialLimits(compile_workers=1), "fake_backend:create_slowly") as measurer:
        futures = measurer.submit(DOUBLING, [schedule("is fine")])
        while len(starting := measurer.pids) < 2:
            time.sleep(0.01)
        for pid in starting:
            os.kill(pid, signal.SIGKILL)
        assert futures[0].result(timeout=60).ok
        assert not set(starting) & set(measurer.pids)


@pytest.mark.parametrize(
    ("exit_code", "words", "oom_kills", "how"),
    [
        (-signal.SIGSEGV, "", 0, "crash"),
        (3, "LLVM ERROR: out of patience", 0, "crash"),
        (None, "", 0, "crash"),
        (-signal.SIGKILL, "", 0, "killed"),
        (-signal.SIGKILL, "", 1, "memory"),
        (-signal.SIGABRT, "LLVM ERROR: out of memory", 0, "memory"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'", 0, "memory"),
        (255, "ptxas fatal   : Memory allocation failure", 0, "memory"),
    ],
)
def test_how_a_worker_ended_is_told_from_its_exit_code_and_last_words(
    exit_code: int | None, words: str, oom_kills: int, how: str
) -> None:
    assert how_it_ended(exit_code, words, oom_kills) == how


def test_running_out_of_memory_has_one_status_whoever_did() -> None:
    assert Lost("memory", "").status("compile") == Lost("memory", "").status("measure") == "out_of_memory"
    assert Lost("crash", "").status("compile") == "compile_crash"
    assert Lost("timeout", "").status("measure") == "run_timeout"


def test_a_limit_on_memory_holds_inside_it_only() -> None:
    with memory.limited(2**26):
        with pytest.raises(OSError, match="Cannot allocate memory"):
            mmap.mmap(-1, 2**28)
        assert len(mmap.mmap(-1, 2**20)) == 2**20
    assert len(mmap.mmap(-1, 2**28)) == 2**28


def test_all_workers_at_their_limits_leave_a_quarter_of_the_machine() -> None:
    workers = 7
    assert workers * memory.compiler_bytes(workers) + memory.trial_bytes() <= 0.75 * memory.machine_bytes()


def test_running_out_of_memory_is_recognised_through_what_it_caused() -> None:
    refused = ValueError("no workspace")
    refused.__cause__ = MemoryError()
    assert memory.ran_out(refused)
    assert memory.ran_out(RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"))
    assert not memory.ran_out(RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"))
