"""Calls of libraries in the place of kernels of compiled models: chosen by time, kept in the log, reported."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.torch_compile import graph_compiler, kernel_cache
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.choosing.alternatives import Chosen, chosen, with_chosen
from autosched.torch_compile.choosing.place import Place
from autosched.torch_compile.fallback import Call
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing import loaded as loaded_of
from search_spaces import Target
from slow_kernels import slow
from tuning_logs import Measurement, TuningLog
from tuning_logs.alternative import Alternative
from untuned import untuned_kernels

TARGET = devices.cpu_target(torch.get_num_threads())
FASTER = Alternative("MKL", 2.0, 1.8, 2.2, taken=True)


def two_products(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.softmax(x @ w, -1) @ v


def perceptron(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.gelu(x @ w) @ v


def kernels_of(function: Callable[..., Any], *inputs: Tensor) -> TracedKernel:
    traced = autosched.trace(function, *inputs).for_target(TARGET)
    return TracedKernel(traced, untuned_kernels(traced.workloads, TARGET))


def with_choice(kernel: Kernel, choice: Alternative) -> Kernel:
    return kernel.noted(replace(kernel.record, measurement=replace(kernel.record.measurement, library=choice)))


@pytest.fixture(scope="module")
def product() -> TracedKernel:
    """A product whose kernel is slow."""
    found = kernels_of(lambda x, w: x @ w, torch.empty(16, 24), torch.empty(24, 32))
    return TracedKernel(found.traced, {key: slow(kernel) for key, kernel in found.by_key.items()})


def called(kernel: TracedKernel) -> Call:
    return lambda *inputs: [kernel.computed(*inputs)]


def chosen_of(kernel: TracedKernel, launched: Callable[[TracedKernel], Call] = called) -> Chosen:
    """The choice among kernels and libraries' calls: there are no other kernels."""
    return chosen(kernel, Place(launched), lambda _: ())


@pytest.mark.parametrize(
    ("function", "inputs", "calls"),
    [
        (two_products, (torch.randn(8, 16), torch.randn(16, 12), torch.randn(12, 20)), 2),
        # Parts of one tensor are written where they lie.
        (lambda x, w, v: torch.cat([x @ w, x @ v], -1), [torch.randn(4, 8), torch.randn(8, 4), torch.randn(8, 12)], 0),
        (lambda x, w: (x @ w).view(2, -1, 4).transpose(0, 1), (torch.randn(8, 8), torch.randn(8, 8)), 1),
        (lambda x, w: (x @ w) @ w, (torch.randn(8, 8), torch.randn(8, 8)), 2),
        (lambda x, w: F.linear(x, w).relu() + x[..., :1], (torch.randn(2, 3, 8), torch.randn(5, 8)), 0),
    ],
)
def test_a_function_is_the_same_by_a_library(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], calls: int
) -> None:
    kernels = kernels_of(function, *inputs)
    made = kernels.with_library({w.key for w in kernels.traced.workloads}, kernels.traced)
    assert len(made.by_library) >= calls
    got, expected = made(*inputs), kernels(*inputs)
    torch.testing.assert_close(got, function(*inputs), rtol=1e-4, atol=1e-4)
    assert got.stride() == expected.stride()


def test_a_library_that_is_faster_takes_the_place_of_a_kernel(product: TracedKernel) -> None:
    found = chosen_of(product)
    ((choice,),) = [[k.record.measurement.library] for k in found.kernels.values()]
    assert choice is not None
    assert choice.taken
    assert choice.ratio > 2
    assert len(found.kernel.by_library) == 1


def test_with_a_library_another_cut_may_be_the_fastest() -> None:
    inputs = torch.randn(64, 16), torch.randn(16, 64), torch.randn(64, 16)
    # For a target there are only the cuts that are worth measuring.
    cut = autosched.trace(perceptron, *inputs)
    (whole,), (hidden, product) = (each.workloads for each in cut.cuts)
    kernels = untuned_kernels([whole, hidden, product], TARGET)
    # As logs have it: one kernel takes less time than two.
    for key, seconds in ((whole.key, 1.5e-3), (hidden.key, 1e-3), (product.key, 1e-3)):
        kernels[key] = kernels[key].noted(replace(kernels[key].record, measurement=Measurement("ok", (seconds,))))
    fused = loaded_of(cut, {key: each if key == hidden.key else slow(each) for key, each in kernels.items()})
    assert isinstance(fused, TracedKernel)
    assert fused.traced.workloads == (whole,)
    found = chosen_of(fused)
    assert found.kernel.calls_of(product.key) == 1
    torch.testing.assert_close(found.kernel(*inputs), perceptron(*inputs), rtol=1e-4, atol=1e-4)
    assert with_chosen(fused.with_kernels(found.kernels)).traced is found.kernel.traced


def test_a_library_that_is_slower_among_other_steps_does_not(product: TracedKernel) -> None:
    def alone(kernel: TracedKernel) -> Call:
        def call(*inputs: Tensor) -> list[Tensor]:
            time.sleep(5e-3 if kernel.by_library else 0)
            return [kernel.computed(*inputs)]

        return call

    found = chosen_of(product, alone)
    (noted,) = found.kernels.values()
    choice = noted.record.measurement.library
    assert choice is not None
    assert choice.is_faster
    assert not choice.taken
    assert not found.kernel.by_library


@pytest.mark.parametrize("taken", [True, False])
def test_a_choice_of_the_log_is_not_timed_again(product: TracedKernel, taken: bool) -> None:
    (key,) = product.by_key
    known = product.with_kernels({key: with_choice(product.by_key[key], replace(FASTER, taken=taken))})
    assert not chosen_of(known).kernels
    assert len(with_chosen(known).by_library) == taken


def test_a_library_of_less_precision_is_not_called(product: TracedKernel) -> None:
    (key,) = product.by_key
    known = product.with_kernels({key: with_choice(product.by_key[key], FASTER)})
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert not with_chosen(known).by_library
    finally:
        torch.set_float32_matmul_precision(before)


class Layers(nn.Sequential):
    """Layers of one width, whose weights differ."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(*(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)) for _ in range(2)))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Alternative | None]]:
    """In the place of logs: any kernels, whose products have the one choice of the list."""
    choices: list[Alternative | None] = [FASTER]

    def kernels(traced: TracedFunction, target: Target, log: object, strict: bool = False) -> TracedKernel:
        traced = traced.for_target(target)
        made = untuned_kernels(traced.workloads, target)
        (choice,) = choices
        if choice is not None:
            made = {key: with_choice(kernel, choice) for key, kernel in made.items()}
        return TracedKernel(traced, made)

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", kernels)
    torch.compiler.reset()
    with torch.no_grad():
        yield choices


def compiled(model: nn.Module, **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []
    return torch.compile(model, backend=backend_of(Options(**options), reports.append)), reports


@pytest.mark.usefixtures("loaded")
def test_a_model_calls_the_library_that_its_log_names() -> None:
    model, x = Layers().eval(), torch.randn(4, 32)
    made, reports = compiled(model)
    torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5)
    torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)
    (report,) = reports
    assert sum(row.calls * p.times for p in report.parts for row in p.libraries) == 2
    assert "by MKL (2.00)" in str(report)


@pytest.mark.parametrize("choice", [None, replace(FASTER, taken=False)])
def test_a_model_has_kernels_where_its_log_names_no_library(
    loaded: list[Alternative | None], choice: Alternative | None
) -> None:
    loaded[:] = [choice]
    model, x = Layers().eval(), torch.randn(4, 32)
    made, reports = compiled(model)
    torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)
    (report,) = reports
    assert not any(row.calls for p in report.parts for row in p.libraries)
    assert ("not among the other steps" in str(report)) == (choice is not None)


@pytest.mark.usefixtures("loaded")
def test_strict_calls_no_library() -> None:
    model, x = Layers().eval(), torch.randn(4, 32)
    made, reports = compiled(model, strict=True)
    torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)
    (report,) = reports
    assert not any(row.calls for p in report.parts for row in p.libraries)


def test_tuning_notes_a_choice_in_the_log_and_the_next_process_looks_no_kernel_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(kernel_cache, "user_log_path", lambda: tmp_path / "user" / "tuning.jsonl")
    model, x, log = nn.Linear(24, 40).eval(), torch.randn(16, 24), tmp_path / "log.jsonl"
    texts = []
    with torch.no_grad():
        for mode in ("max-autotune-no-cudagraphs", "max-autotune-no-cudagraphs", "default"):
            torch.compiler.reset()
            made, reports = compiled(model, mode=mode, trials=1, log=str(log))
            torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)
            texts.append(log.read_text())
            monkeypatch.setattr(kernel_cache, "from_logs", None)
    assert len(set(texts)) == 1
    choices = [c for r in TuningLog(log) if (c := r.measurement.library) is not None]
    assert [c.name for c in choices] == ["MKL"]
    assert reports[0].kernels == (not choices[0].taken)
