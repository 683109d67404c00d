"""Records of kernels that the user wrote: filed, ranked and read like others, and never taken for workloads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

import autosched
from autosched.cli.commands import app
from autosched.tuning.learning import lessons
from log_records import A100, H200, SMALL, record
from search_spaces import InputError, Schedule
from tuning_logs import Measurement, OwnKernel, Provenance, TuningLog, TuningRecord
from tuning_logs import log as log_module

KERNEL = OwnKernel("scale_kernel", "f" * 16, (("n", 1024), ("mode", "fast")), (("x", "float16"), ("y", "float16")))


def of(n: int, block: int, latency_s: float | None = 1e-5, **changes: str) -> TuningRecord:
    kernel = dataclasses.replace(KERNEL, values=(("n", n), ("mode", "fast")), **changes)
    schedule = Schedule("own", (("BLOCK", block), ("num_warps", 4)), backend="triton")
    measurement = Measurement("ok", (latency_s,)) if latency_s else Measurement("load_error", detail="shared memory")
    return TuningRecord(kernel, H200, schedule, measurement, Provenance("", "cold", 1.0, 0, 0))


@pytest.fixture(params=[False, True], ids=["held", "indexed"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningLog:
    if request.param:
        monkeypatch.setattr(log_module, "INDEX_FROM_BYTES", 0)
    return TuningLog(tmp_path / "own.jsonl")


def test_a_record_of_an_own_kernel_is_read_as_it_was_written(log: TuningLog) -> None:
    log.append(of(1024, 64), of(1024, 128, None))
    assert list(TuningLog(log.path)) == [of(1024, 64), of(1024, 128, None)]


def test_another_source_or_type_or_value_is_another_key() -> None:
    others = [of(1024, 64, fingerprint="e" * 16), of(512, 64)]
    others.append(dataclasses.replace(of(1024, 64), subject=dataclasses.replace(KERNEL, types=(("x", "float32"),))))
    assert len({r.key for r in [of(1024, 64), *others]}) == 4


def test_the_best_configuration_is_the_best_record(log: TuningLog) -> None:
    log.append(of(1024, 64, 2e-5), of(1024, 128, 1e-5), of(2048, 256, 1e-6))
    best = log.best(KERNEL, H200)
    assert best is not None
    assert best.schedule.knobs["BLOCK"] == 128


def test_records_of_the_nearest_values_come_first_and_those_of_other_kernels_never(log: TuningLog) -> None:
    log.append(of(65536, 1), of(2048, 2), of(1024, 3, fingerprint="e" * 16), record())
    assert [r.schedule.knobs["BLOCK"] for r in log.nearest(KERNEL, A100, 10)] == [2, 1]


def test_a_workload_never_meets_records_of_own_kernels(log: TuningLog) -> None:
    log.append(of(1024, 64), record())
    assert len(log.nearest(SMALL, H200, 10)) == 1
    assert len(lessons([log.path], SMALL, H200, "cold").records) == 1


def test_asking_an_own_kernel_for_its_workload_says_what_it_is() -> None:
    with pytest.raises(InputError, match="scale_kernel n=1024 mode=fast float16 is a kernel of your own"):
        _ = of(1024, 64).workload


def test_the_log_commands_show_own_kernels_and_export_leaves_them(log: TuningLog, tmp_path: Path) -> None:
    log.append(of(1024, 64), of(1024, 128, None))
    shown = CliRunner().invoke(app, ["log", "show", "--log", str(log.path)]).output
    assert "scale_kernel n=1024 mode=fast float16" in shown
    assert "1 load_error" in shown
    best = CliRunner().invoke(app, ["log", "best", "--log", str(log.path)]).output
    assert "triton: own BLOCK=64 num_warps=4" in best
    assert "stale" not in best
    refused = CliRunner().invoke(app, ["log", "export", "--log", str(log.path), "--to", str(tmp_path / "out")])
    assert refused.exit_code != 0
    assert "kernels of your own, which stay in the log and are replayed by a call: scale_kernel" in str(
        refused.output
    ) + str(refused.exception)
    assert not (tmp_path / "out").exists()


def test_a_kernel_of_ones_own_cannot_be_replayed_by_name(log: TuningLog) -> None:
    with pytest.raises(InputError, match="got OwnKernel; expected an operator"):
        autosched.replay(KERNEL, "h200", log=log.path)  # type: ignore[call-overload]
