"""Models on a CPU whose kernels were tuned for another number of threads: it is said, and not silently Inductor."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import autosched
from autosched.machine import devices
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.torch_compile.threads import ThreadsWarning, warn_where_other_threads
from tuning_logs import TuningLog

MODEL, X = nn.Softmax(-1).eval(), torch.randn(16, 24)
THREADS = torch.get_num_threads()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of the model's kernels, by a target that is only named."""
    path = tmp_path_factory.mktemp("threads") / "log.jsonl"
    with warnings.catch_warnings():
        warnings.simplefilter("error", ThreadsWarning)
        autosched.tune_model(MODEL, X, target="cpu", trials=3, log=path)
    return path


def compiled(log: Path) -> GraphReport:
    torch.compiler.reset()
    reports: list[GraphReport] = []
    with torch.no_grad():
        made = torch.compile(MODEL, backend=backend_of(Options(log=str(log)), reports.append))
        torch.testing.assert_close(made(X), MODEL(X))
    return reports[0]


def with_threads(log: Path, to: Path, threads: int) -> Path:
    """The same records as if they were measured with so many threads."""
    records = (replace(r, target=replace(r.target, threads=threads, num_sms=threads)) for r in TuningLog(log))
    TuningLog(to).append(*records)
    return to


def test_a_model_tuned_for_the_named_cpu_is_compiled_with_its_kernels(log: Path) -> None:
    assert {r.target.threads for r in TuningLog(log)} == {THREADS}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ThreadsWarning)
        assert compiled(log).by == "autosched"


def test_records_for_another_number_of_threads_are_named(log: Path, tmp_path: Path) -> None:
    other = with_threads(log, tmp_path / "other.jsonl", THREADS + 1)
    with pytest.warns(ThreadsWarning, match=rf"PyTorch has {THREADS} thread.*set_num_threads\({THREADS + 1}\)"):
        report = compiled(other)
    assert f"tuned for {THREADS + 1} threads" in report.why


def test_without_records_for_any_nothing_is_said_of_threads(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ThreadsWarning)
        assert "no successful record" in compiled(tmp_path / "empty.jsonl").why


def test_tuning_for_other_threads_than_models_have_is_a_warning() -> None:
    target = devices.cpu_target()
    with pytest.warns(ThreadsWarning, match="tuned for 1 thread;.* here 3 threads"):
        warn_where_other_threads(target, replace(target, threads=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_where_other_threads(target, target)
