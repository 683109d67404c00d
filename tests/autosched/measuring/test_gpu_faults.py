"""The faults of `test_faults.py`, planted in real Triton kernels: on a GPU one may hang the device or poison it.

Without a GPU the kernels are compiled only. With one: `pytest -m gpu tests/autosched/measuring/test_gpu_faults.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from autosched.backends.backend import CompileError
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits
from search_spaces.devices.target import GPUS
from tuning_logs import Measurement, TuningLog

pytest.importorskip("triton")
import faulty_triton_backend
from faulty_triton_backend import FAULTS, schedule
from planted_search import planted_search

# The first kernel that a worker compiles waits for the import of Triton.
DOUBLING = faulty_triton_backend.doubling()
LIMITS = TrialLimits(compile_timeout_s=20.0, run_timeout_s=5.0, compile_workers=4)
NEEDS_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in ("does not compile", "keeps the compiler busy")])
@pytest.mark.parametrize("device", ["a100", "h200"])
def test_every_faulty_kernel_compiles_without_a_gpu(fault: str, device: str) -> None:
    (backend,), program = faulty_triton_backend.create(GPUS[device]), schedule(fault).program
    artefact = backend.compile(backend.render(program, fault, GPUS[device]), program, GPUS[device])
    assert artefact.binaries[0].startswith(b"\x7fELF")


def test_the_kernel_that_does_not_compile_does_not() -> None:
    (backend,), program = faulty_triton_backend.create(GPUS["h200"]), schedule("does not compile").program
    with pytest.raises(CompileError, match=FAULTS["does not compile"][1]):
        backend.compile(backend.render(program, "", GPUS["h200"]), program, GPUS["h200"])


def test_right_kernels_have_binaries_of_their_own() -> None:
    (backend,) = faulty_triton_backend.create(GPUS["h200"])
    programs = [schedule(f"is fine:{number}").program for number in range(3)]
    binaries = {backend.compile(backend.render(p, "", GPUS["h200"]), p, GPUS["h200"]).binaries for p in programs}
    assert len(binaries) == 3


def local_measurer() -> LocalMeasurer:
    return LocalMeasurer(
        devices.gpu_target(),
        limits=LIMITS,
        backend=faulty_triton_backend.LOCATION,
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> TuningLog:
    """The log of one search whose strategy proposes every fault, and after each a kernel that is right."""
    log = TuningLog(tmp_path_factory.mktemp("faults") / "tuning.jsonl")
    pairs = [(schedule(fault), schedule(f"is fine:{number}")) for number, fault in enumerate(FAULTS)]
    schedules = [s for pair in pairs for s in pair]
    with local_measurer() as measurer:
        planted_search(log, DOUBLING, devices.gpu_target(), schedules, measurer)
    return log


@pytest.fixture(scope="module")
def trials(log: TuningLog) -> dict[str, Measurement]:
    """The trials in the log, by what the kernel does."""
    return {r.schedule.sketch: r.measurement for r in log if not r.provenance.finals}


@pytest.fixture
def measurer() -> Iterator[LocalMeasurer]:
    with local_measurer() as measurer:
        yield measurer


class TestOnAGpu:
    pytestmark = NEEDS_A_GPU

    @pytest.mark.parametrize("fault", FAULTS)
    def test_every_fault_gets_its_status_and_reason(self, trials: dict[str, Measurement], fault: str) -> None:
        status, reason = FAULTS[fault]
        assert trials[fault].status == status, trials[fault].detail
        assert reason in trials[fault].detail

    def test_good_candidates_among_the_faults_are_measured_as_ever(self, trials: dict[str, Measurement]) -> None:
        good = [trials[f"is fine:{number}"] for number in range(len(FAULTS))]
        assert [(m.status, m.detail) for m in good] == [("ok", "")] * len(FAULTS)
        assert all(m.timing == "full" for m in good)

    def test_every_trial_is_in_the_log_exactly_once(self, log: TuningLog) -> None:
        found = Counter(r.schedule for r in log if not r.provenance.finals)
        assert len(found) == 2 * len(FAULTS)
        assert set(found.values()) == {1}

    @pytest.mark.parametrize(
        "fault", ["reads an illegal address", "writes to an illegal address", "runs forever", "writes past its output"]
    )
    def test_a_process_that_cannot_be_trusted_any_more_is_replaced(self, measurer: LocalMeasurer, fault: str) -> None:
        assert measurer.measure(DOUBLING, [schedule("is fine:0")])[0].ok
        worker = measurer.pids[0]
        assert measurer.measure(DOUBLING, [schedule(fault)])[0].status == FAULTS[fault][0]
        assert measurer.measure(DOUBLING, [schedule("is fine:1")])[0].ok
        assert measurer.pids[0] != worker

    @pytest.mark.parametrize("fault", ["computes something else", "wants a huge workspace", "changes its input"])
    def test_a_process_that_can_still_be_trusted_is_kept(self, measurer: LocalMeasurer, fault: str) -> None:
        assert measurer.measure(DOUBLING, [schedule("is fine:0")])[0].ok
        worker = measurer.pids[0]
        assert measurer.measure(DOUBLING, [schedule(fault)])[0].status == FAULTS[fault][0]
        assert measurer.measure(DOUBLING, [schedule("is fine:1")])[0].ok
        assert measurer.pids[0] == worker
