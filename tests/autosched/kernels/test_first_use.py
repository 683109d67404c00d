"""No kernel computes on a caller's tensors before it was checked: when it is, where, and what becomes of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autosched
import best_spaces
import faulty_llvm_backend as faulty
from autosched import DynamicFunction, backends, ops, trace
from autosched.kernels import adapted_kernel, checked_kernels, first_use
from autosched.kernels.checked_kernels import CheckedKernels
from autosched.kernels.kernel import load_kernel
from autosched.machine.devices import cpu_target, gpu_target
from autosched.measuring import LocalMeasurer
from autosched.tracing import DynamicKernel, TracedKernel, loaded
from needed import needs_gpu
from search_spaces import AutoschedError, Target
from tuning_logs import TuningLog, TuningRecord
from untuned import untuned_kernels, untuned_record

COLUMNS = 40


@pytest.fixture(autouse=True)
def user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user for whom nothing was ever checked."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults in what is loaded here, and in what is put to trial apart."""
    monkeypatch.setattr(backends, "named", lambda name: faulty.FaultyLlvmBackend())
    monkeypatch.setattr(first_use, "DEFAULT_BACKEND", faulty.LOCATION)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where kernels were checked since the test began: "here" or "apart"."""
    done: list[str] = []

    def noted(where: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            done.append(where)
            return function(*arguments, **keywords)

        return call

    monkeypatch.setattr(first_use, "check_once", noted("here", first_use.check_once))
    monkeypatch.setattr(first_use, "LocalMeasurer", noted("apart", LocalMeasurer))
    return done


def record_of(rows: int) -> TuningRecord:
    """As if a trial had found a kernel of so many rows right."""
    op, target = ops.softmax(rows, COLUMNS), cpu_target()
    schedule = best_spaces.build(op, target).sample(np.random.default_rng(0))
    return untuned_record(schedule, op, target)


def of_other_code(record: TuningRecord) -> TuningRecord:
    """The record when this version of autosched makes another kernel of its schedule."""
    assert record.measurement.facts is not None
    facts = dataclasses.replace(record.measurement.facts, source="0" * 16)
    return dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, facts=facts))


@pytest.mark.usefixtures("planted")
def test_replay_refuses_a_kernel_that_writes_past_its_output(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    TuningLog(log).append(record_of(faulty.WRITES_PAST_ITS_OUTPUT))
    for _ in range(2):
        with pytest.raises(AutoschedError, match=r"out_of_bounds_write.*outside its output: after it.*[Tt]une again"):
            autosched.replay(ops.softmax(faulty.WRITES_PAST_ITS_OUTPUT, COLUMNS), "cpu", log=log)


@pytest.mark.usefixtures("planted")
def test_a_traced_function_with_a_kernel_that_writes_past_its_output_is_refused(tmp_path: Path) -> None:
    traced = trace(lambda x: torch.softmax(x, 1), torch.randn(faulty.WRITES_PAST_ITS_OUTPUT, COLUMNS))
    space = best_spaces.build(traced.workloads[0], cpu_target())
    TuningLog(tmp_path / "t.jsonl").append(
        untuned_record(space.sample(np.random.default_rng(0)), space.workload, space.target)
    )
    with pytest.raises(AutoschedError, match="out_of_bounds_write"):
        autosched.replay(traced, "cpu", log=tmp_path / "t.jsonl")


@pytest.mark.usefixtures("planted")
def test_code_that_no_trial_has_run_may_crash_without_harm() -> None:
    with pytest.raises(AutoschedError, match="run_crash: SIGSEGV"):
        load_kernel(of_other_code(record_of(faulty.CRASHES)))


def test_a_kernel_is_checked_once_for_all_processes_of_a_user(checks: list[str], user_data: Path) -> None:
    kernel = load_kernel(record_of(6))
    load_kernel(record_of(6))
    assert checks == ["here"]
    checked_kernels._of.cache_clear()
    load_kernel(record_of(6))
    assert checks == ["here"]
    (user_data / "autosched" / "checked.jsonl").unlink()
    checked_kernels._of.cache_clear()
    load_kernel(record_of(6))
    assert checks == ["here", "here"]
    assert torch.allclose(kernel(x := torch.randn(6, COLUMNS)), torch.softmax(x, 1), atol=1e-6)


def test_other_versions_and_other_code_are_checked_anew(checks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernel(record_of(6))
    load_kernel(record_of(7))
    monkeypatch.setattr(checked_kernels, "environment", lambda target: (("torch", "99.0"),))
    load_kernel(record_of(6))
    assert checks == ["here"] * 3


def test_code_that_no_trial_has_run_is_put_to_trial_apart_once(checks: list[str]) -> None:
    stale = of_other_code(record_of(6))
    load_kernel(stale)
    load_kernel(stale)
    load_kernel(record_of(6))
    assert checks == ["apart"]


def test_what_this_process_has_tuned_needs_no_check(checks: list[str], tmp_path: Path) -> None:
    op, log = ops.softmax(6, COLUMNS), tmp_path / "tuning.jsonl"
    result = autosched.tune(op, "cpu", 3, strategy="random", log=log)
    assert result.kernel.source == autosched.replay(op, "cpu", log=log).source
    assert checks == []


def test_what_cannot_be_written_down_is_known_to_this_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    known = CheckedKernels(tmp_path / "file" / "checked.jsonl")
    known.add("0" * 32, 1e-6, "a kernel")
    assert known.latency_s("0" * 32) == 1e-6


def test_lines_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "checked.jsonl"
    CheckedKernels(path).add("a", 1e-6, "a kernel")
    path.write_bytes(b'{"checked": "torn\n\xff\n[]\n' + path.read_bytes())
    assert CheckedKernels(path).latency_s("a") == 1e-6


def test_a_kernel_that_is_known_has_one_line(tmp_path: Path) -> None:
    path = tmp_path / "checked.jsonl"
    known = CheckedKernels(path)
    for latency_s in (1e-6, 2e-6):
        known.add("a", latency_s, "a kernel")
    assert known.latency_s("a") == CheckedKernels(path).latency_s("a") == 1e-6
    assert len(path.read_text().splitlines()) == 1


# Sizes that change


@functools.cache
def traced_softmax(allow_fallback: bool) -> DynamicFunction:
    return trace(
        lambda x: torch.softmax(x, 1),
        torch.randn(8, COLUMNS),
        dynamic={"x": 0},
        sizes=(1, 64),
        points=(8, 64),
        allow_fallback=allow_fallback,
    )


def dynamic_softmax(allow_fallback: bool = False) -> DynamicKernel:
    traced = traced_softmax(allow_fallback)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    assert isinstance(kernel, DynamicKernel)
    return kernel


@pytest.fixture
def two_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are tried at a size that was not tuned."""
    monkeypatch.setattr(adapted_kernel, "_MOST_TRIED", 2)


@pytest.mark.usefixtures("planted", "two_schedules")
@pytest.mark.parametrize("rows", [faulty.WRITES_PAST_ITS_OUTPUT, faulty.CRASHES])
def test_a_size_without_a_right_kernel_is_refused_before_it_is_computed(rows: int) -> None:
    why = "out_of_bounds_write" if rows == faulty.WRITES_PAST_ITS_OUTPUT else "run_crash"
    with pytest.raises(AutoschedError, match=rf"none of 2 schedules passed its check.*{why}"):
        dynamic_softmax()(torch.randn(rows, COLUMNS))


@pytest.mark.usefixtures("planted", "two_schedules")
def test_a_size_without_a_right_kernel_is_left_to_pytorch_where_that_is_allowed() -> None:
    kernel, x = dynamic_softmax(allow_fallback=True), torch.randn(faulty.WRITES_PAST_ITS_OUTPUT, COLUMNS)
    with pytest.warns(UserWarning, match=r"left to PyTorch: .*out_of_bounds_write"):
        assert torch.equal(kernel(x), torch.softmax(x, 1))
    assert torch.equal(kernel(x), torch.softmax(x, 1))


def test_of_several_schedules_the_first_right_one_serves_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "DEFAULT_BACKEND", faulty.LOCATION)
    function, rows = dynamic_softmax(), faulty.IS_WRONG_WHEN_LOADED_FIRST
    kernel, x = function.at(rows), torch.randn(rows, COLUMNS)
    assert isinstance(kernel, TracedKernel)
    torch.testing.assert_close(kernel(x), torch.softmax(x, 1))
    space = best_spaces.build(kernel.kernels[0].workload, cpu_target())
    lenders = [function.at(size).kernels[0].schedule for size in adapted_kernel.in_order_for(rows, (8, 64))]
    first, second, *_ = dict.fromkeys(adapted_kernel._schedules(space, lenders))
    assert kernel.kernels[0].schedule == second != first


def test_a_size_is_put_to_trial_once_for_all_processes_of_a_user(checks: list[str]) -> None:
    x = torch.randn(5, COLUMNS)
    torch.testing.assert_close(dynamic_softmax()(x), torch.softmax(x, 1))
    before = [c for c in checks if c == "apart"]
    checked_kernels._of.cache_clear()
    torch.testing.assert_close(dynamic_softmax()(x), torch.softmax(x, 1))
    assert before == [c for c in checks if c == "apart"] == ["apart"]


def test_a_step_that_does_not_depend_on_the_size_keeps_its_kernel(checks: list[str]) -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2.0, torch.softmax(w, 1)

    w = torch.randn(7, COLUMNS)
    traced = trace(function, torch.randn(8, 4), w, dynamic={"x": 0}, sizes=(1, 9), points=(8,))
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    checks.clear()
    x = torch.randn(3, 4)
    for got, want in zip(kernel(x, w), function(x, w), strict=True):
        torch.testing.assert_close(got, want)
    assert checks == ["apart"]


def check_scores(dtype: torch.dtype, target: Target) -> None:
    """Products of queries and keys, tuned at sizes of whole tiles, are right at others."""

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.t()

    device = "cuda" if target.kind == "gpu" else "cpu"
    example = torch.empty(16, 32, dtype=dtype)
    traced = trace(scores, example, example, dynamic={"q": 0, "k": 0}, sizes=(1, 128), points=(16, 64, 128))
    kernel = loaded(traced, untuned_kernels(traced.workloads, target))
    for size in (17, 1):
        q, k = (torch.randn(size, 32, device=device).to(dtype) for _ in range(2))
        torch.testing.assert_close(kernel(q, k), scores(q, k), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sizes_beside_the_tuned_ones_are_right(dtype: torch.dtype) -> None:
    check_scores(dtype, cpu_target())


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sizes_beside_the_tuned_ones_are_right_on_a_gpu(dtype: torch.dtype) -> None:
    check_scores(dtype, gpu_target())
