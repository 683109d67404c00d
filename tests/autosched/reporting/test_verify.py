"""Verification of a log's winners: every verdict, and that a log is only read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from xml.etree import ElementTree

import pytest

import autosched
import faulty_llvm_backend
from autosched import ops
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits, UnfitWorkloadError
from autosched.reporting import verify as verifying
from autosched.reporting.junit import junit_xml
from autosched.reporting.verify import Against, Verified
from autosched.reporting.winners import named, winners
from certified_records import certificate, certified, pairs
from hostile_records import whole_record
from search_spaces import InputError, Schedule, Target, Workload, target_named
from search_spaces.errors import AutoschedError
from tuning_logs import Measurement, OwnKernel, TuningLog, TuningRecord

CPU = devices.cpu_target()
OP = ops.softmax(16, 64)
RECORD = whole_record(OP, CPU)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("verify") / "tuning.jsonl"
    autosched.tune(OP, "cpu", 3, strategy="random", log=log)
    return log


@pytest.fixture
def verified(tmp_path: Path) -> Callable[..., list[Verified]]:
    """Verifies records from a log, without a device unless that is said; the log stays as it is."""

    def run(*records: TuningRecord, against: Against = "recorded", device: bool = False) -> list[Verified]:
        log = tmp_path / "tuning.jsonl"
        log.unlink(missing_ok=True)
        TuningLog(log).append(*records)
        before = log.read_bytes()
        found = autosched.verify(log, against=against, device=device)
        assert log.read_bytes() == before
        return list(found.kernels)

    return run


def test_a_winner_is_rebuilt_checked_and_timed_and_the_log_stays_as_it_was(tuned: Path) -> None:
    before = tuned.read_bytes()
    (found,) = autosched.verify(tuned).kernels
    # A busy machine decides which.
    assert found.verdict in ("same", "faster", "slower", "ambiguous")
    assert found.agreement is not None
    assert (found.agreement.source, found.agreement.binary) == (True, True)
    then = found.record.measurement.certificate
    assert then is not None
    assert found.now is not None
    assert found.now.binary == then.binary
    assert found.now.unix_s > then.unix_s
    assert tuned.read_bytes() == before


def test_without_a_device_a_winner_of_this_version_and_toolchain_is_the_same(tuned: Path) -> None:
    done = autosched.verify(tuned, device=False)
    assert [(k.verdict, k.reason) for k in done.kernels] == [("same", "same source, same binary")]
    assert done.exit_status == 0
    assert str(done) == f"same: {named(done.kernels[0].record)}: same source, same binary\n1 same"


def test_without_a_device_nothing_can_be_timed_against_the_library(tuned: Path) -> None:
    with pytest.raises(InputError, match="against the library kernels are timed"):
        autosched.verify(tuned, device=False, against="library")


def test_a_gpu_need_not_be_here_to_compare_what_is_made_for_it(verified: Callable[..., list[Verified]]) -> None:
    record = whole_record(ops.gelu_scale(4096), target_named("h200"))
    older = dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, certificate=None))
    (found,) = verified(older)
    assert (found.verdict, found.reason) == ("same", "same source, no certificate")
    (timed,) = verified(older, device=True)
    assert timed.verdict == "unfit"
    assert "H200" in timed.reason


def test_other_sources_and_binaries_are_told(tuned: Path, verified: Callable[..., list[Verified]]) -> None:
    (record,) = winners(tuned)
    then = record.measurement.certificate
    assert then is not None
    assert record.measurement.facts is not None
    other = dataclasses.replace(then, binary="0" * 64)
    older = dataclasses.replace(other, versions=(("llvmlite", "0.1"),))
    stale = dataclasses.replace(record.measurement.facts, source="0" * 16)
    for given, verdict, reason in (
        (certified(record, other), "ambiguous", "same source, another binary by the same toolchain"),
        (certified(record, older), "same", "same source, another binary by another toolchain: llvmlite 0.1 -> "),
        (
            dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, facts=stale)),
            "ambiguous",
            "stale: this version makes another source of its schedule",
        ),
        (
            dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, facts=None)),
            "ambiguous",
            "the record does not tell its source",
        ),
    ):
        found = verified(given)[0]
        assert (found.verdict, found.reason[: len(reason)]) == (verdict, reason)


def test_what_cannot_be_made_is_broken_and_what_this_machine_lacks_is_unfit(
    verified: Callable[..., list[Verified]],
) -> None:
    schedule = RECORD.schedule
    unknown = dataclasses.replace(RECORD, schedule=Schedule("no such sketch", schedule.values, backend="llvm"))
    foreign = dataclasses.replace(RECORD, schedule=dataclasses.replace(schedule, backend="of another package"))
    own = dataclasses.replace(RECORD, subject=OwnKernel("k", "f" * 16))
    untimed = dataclasses.replace(RECORD, provenance=dataclasses.replace(RECORD.provenance, policy="graph"))
    found = [kernel for record in (unknown, foreign, own, untimed) for kernel in verified(record)]
    assert [k.verdict for k in found] == ["broken", "unfit", "unfit", "unfit"]
    reasons = ("no longer in the search space", "is not installed", "a kernel of your own", "CUDA graphs")
    assert [r in k.reason for r, k in zip(reasons, found, strict=True)] == [True] * 4


def test_a_cpu_with_more_threads_than_there_are_is_not_here(verified: Callable[..., list[Verified]]) -> None:
    larger = dataclasses.replace(RECORD, target=dataclasses.replace(CPU, threads=2**12))
    (found,) = verified(larger, device=True)
    assert found.verdict == "unfit"
    assert "4096 threads, but this process may use" in found.reason


def test_a_kernel_that_hangs_or_crashes_is_broken_and_the_others_are_verified(
    verified: Callable[..., list[Verified]], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = (faulty_llvm_backend.NEVER_ENDS, faulty_llvm_backend.CRASHES, faulty_llvm_backend.WRITES_PAST_ITS_OUTPUT)
    limits = TrialLimits(run_timeout_s=2.0, compile_workers=1)
    with LocalMeasurer(CPU, limits=limits, backend=faulty_llvm_backend.LOCATION) as measurer:
        monkeypatch.setattr(verifying, "local_measurer", lambda target: measurer)
        found = verified(*(whole_record(ops.softmax(rows, 16), CPU) for rows in (*faults, 16)), device=True)
    assert [k.verdict for k in found[:3]] == ["broken"] * 3
    for kernel, status in zip(found, ("run_timeout", "run_crash", "out_of_bounds_write"), strict=False):
        assert kernel.reason.startswith(f"{status}: ")
    assert found[3].verdict != "broken"


class Answering:
    """A measurer with one answer, or an error."""

    def __init__(self, answer: list[Measurement] | AutoschedError | None) -> None:
        self._answer = answer

    def reserved(self, target: Target) -> AbstractContextManager[None]:
        return nullcontext()

    def remeasure(
        self, op: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: str, seed: int
    ) -> list[Measurement] | None:
        assert (len(schedules), policy, seed) == (1, "cold", RECORD.provenance.seed)
        if isinstance(self._answer, AutoschedError):
            raise self._answer
        return self._answer


@pytest.fixture
def judged(
    verified: Callable[..., list[Verified]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Verified]]:
    """Verifies one record with a measurer that gives this answer."""

    def run(
        record: TuningRecord, answer: list[Measurement] | AutoschedError | None, against: Against = "recorded"
    ) -> Verified:
        monkeypatch.setattr(verifying, "local_measurer", lambda target: Answering(answer))
        return verified(record, device=True, against=against)[0]

    return run


def recorded(speedup: float | None, latency_s: float = 1e-5) -> TuningRecord:
    """A record with so many times the speed of the library, in all of 30 rounds; None: there is no library."""
    rounds = (latency_s,) * 30
    library_s = () if speedup is None else (speedup * latency_s,) * 30
    measurement = Measurement("ok", rounds, library_s=library_s, beside_library_s=rounds if library_s else ())
    return dataclasses.replace(RECORD, measurement=measurement)


def now(speedup: float | None, latency_s: float = 1e-5) -> list[Measurement]:
    """The measurement of such a kernel, found now."""
    library = None if speedup is None else pairs("library", speedup, speedup - 0.01, speedup + 0.01)
    given = certificate(library=library, itself=pairs("itself", 1.0, 0.99, 1.01))
    return [dataclasses.replace(recorded(speedup, latency_s).measurement, certificate=given)]


def test_the_speedup_of_now_is_compared_with_the_recorded_one_or_with_the_library(
    judged: Callable[..., Verified],
) -> None:
    # Slower by the clock, but so was the library.
    assert judged(recorded(1.5), now(1.5, latency_s=2e-5)).verdict == "same"
    slower = judged(recorded(1.5), now(1.3))
    assert (slower.verdict, slower.reason.startswith("1.30x (1.29–1.31) the library, recorded 1.50x")) == (
        "slower",
        True,
    )
    assert slower.to_json()["recorded_speedup"] == [1.5, 1.5, 1.5]
    assert judged(recorded(1.5), now(1.7)).verdict == "faster"
    assert judged(recorded(1.5), now(1.3), "library").verdict == "faster"
    assert judged(recorded(1.5), now(0.9), "library").verdict == "slower"
    assert judged(recorded(1.5), now(None), "library").verdict == "unfit"


def test_where_the_library_lacks_the_operator_latencies_are_compared(judged: Callable[..., Verified]) -> None:
    assert judged(recorded(None), now(None)).verdict == "same"
    assert judged(recorded(None), now(1.5, latency_s=2e-5)).verdict == "slower"
    few = judged(dataclasses.replace(RECORD, measurement=Measurement("ok", (1e-5,) * 3)), now(None))
    assert few.verdict == "ambiguous"
    assert "in too few rounds" in few.reason


def test_another_card_than_the_recorded_one_is_told(judged: Callable[..., Verified]) -> None:
    (made,) = now(1.5)
    given = made.certificate
    assert given is not None
    other = dataclasses.replace(given, device=dataclasses.replace(given.device, uuid="GPU-2"))
    assert "another card" not in judged(certified(recorded(1.5), given), now(1.5)).reason
    assert judged(certified(recorded(1.5), other), now(1.5)).reason.endswith("; another card")


def test_what_cannot_be_timed_is_broken_and_what_does_not_fit_is_unfit(judged: Callable[..., Verified]) -> None:
    assert judged(recorded(1.5), None).verdict == "broken"
    wrong = judged(recorded(1.5), [Measurement("wrong_result", detail="made up")])
    assert (wrong.verdict, wrong.reason) == ("broken", "wrong_result: made up")
    assert judged(recorded(1.5), UnfitWorkloadError("too large")).verdict == "unfit"
    assert judged(recorded(1.5), [Measurement("out_of_memory", detail="made up")]).verdict == "unfit"


def test_the_exit_status_tells_what_became_of_all() -> None:
    def status(*verdicts: verifying.Verdict) -> int:
        return verifying.Verification(tuple(Verified(RECORD, verdict, "") for verdict in verdicts)).exit_status

    assert status("same", "faster", "ambiguous", "unfit") == 0
    assert status("same", "slower") == status("broken") == 1
    assert status() == status("unfit", "unfit") == 2


def test_a_junit_file_has_a_case_for_each_and_survives_any_text() -> None:
    verdicts: tuple[verifying.Verdict, ...] = ("same", "slower", "broken", "unfit", "ambiguous", "faster")
    record = dataclasses.replace(RECORD, schedule=dataclasses.replace(RECORD.schedule, backend="\x01"))
    rows = tuple(Verified(record, verdict, "<a> & \x1b[2J\x00") for verdict in verdicts)
    suite = ElementTree.fromstring(junit_xml(verifying.Verification(rows)))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "1",
        "errors": "1",
        "skipped": "2",
    }
    assert [case[0].tag for case in suite] == ["system-out", "failure", "error", "skipped", "skipped", "system-out"]
    assert suite[1][0].get("message") == "slower: <a> & \\x1b[2J\\x00"
    assert (suite[0].get("classname"), suite[0].get("name")) == ("\\x01", named(record))


def test_kernels_are_selected_by_part_of_their_name_or_by_their_key(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    wide = whole_record(ops.softmax(8, 128), CPU)
    failed = dataclasses.replace(
        whole_record(ops.softmax(8, 32), CPU), measurement=Measurement("run_crash", detail="made up")
    )
    TuningLog(log).append(RECORD, wide, failed)
    assert [r.subject for r in winners(log)] == [OP, wide.subject]
    assert winners(log, ["columns=128"]) == winners(log, [wide.subject.key, "no such"]) == [wide]
    assert winners(log, ["softmax"]) == [RECORD, wide]
    assert winners(log, ["softmax columns"]) == []
    with pytest.raises(InputError, match="expected a list"):
        winners(log, "softmax")
    with pytest.raises(InputError, match="no such log"):
        autosched.verify(tmp_path / "misspelt.jsonl")
