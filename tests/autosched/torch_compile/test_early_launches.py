"""Kernels of a compiled graph that begin while the one before them ends, where that is measured to be faster.

On a CPU, whose kernels are the same in either order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched.kernels.kernel import Kernel
from autosched.torch_compile import early_launches, graph_compiler, kernel_cache, timing_parts
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedKernel
from untuned import untuned_replay

WIDTH = 16


def two_kernels(x: Tensor, weight: Tensor) -> Tensor:
    return F.softmax(F.layer_norm(x, (WIDTH,)) @ weight, -1) @ weight


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Any kernels, as if the device had such launches; and a cache of the test's own."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "tune", lambda *_, **__: SimpleNamespace(results=()))
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    monkeypatch.setattr(kernel_cache, "may_begin_early", lambda kernel: True)
    monkeypatch.setattr(kernel_cache, "user_log_path", lambda: tmp_path / "user" / "tuning.jsonl")
    torch.compiler.reset()
    with torch.no_grad():
        yield


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Kernel, ...]]:
    """The kernels of every plan."""
    found: list[tuple[Kernel, ...]] = []
    usual = graph_compiler.composed

    def composed(divided: Any, parts: Any, *rest: Any) -> Any:
        found.append(tuple(k for _, call in parts if isinstance(call, TracedKernel) for k in call.kernels))
        return usual(divided, parts, *rest)

    monkeypatch.setattr(graph_compiler, "composed", composed)
    return found


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The seconds of every name, 1 where nothing else is said."""
    seconds: dict[str, float] = {}
    every = lambda runs, *_: {name: [seconds.get(name, 1.0) * 1e-6] for name in runs}  # noqa: E731
    monkeypatch.setattr(timing_parts, "interleaved", every)
    return seconds


def compiled(mode: str = "max-autotune") -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []
    backend = backend_of(Options(mode, strict=True), reports.append)  # type: ignore[arg-type]
    return torch.compile(two_kernels, backend=backend), reports


def check(called: Callable[..., Any]) -> None:
    x, weight = torch.randn(4, WIDTH), torch.randn(WIDTH, WIDTH)
    torch.testing.assert_close(called(x, weight), two_kernels(x, weight), rtol=1e-4, atol=1e-4)


def early(kernel: Kernel) -> bool:
    return all(k.launch.dependent for k in kernel.schedule.program.kernels)


@pytest.mark.parametrize(("seconds", "order"), [(0.5, "early"), (2.0, "in order")])
def test_the_faster_order_of_launches_is_kept_and_reported(
    seconds: float, order: str, timed: dict[str, float], launched: list[tuple[Kernel, ...]]
) -> None:
    timed["early"] = seconds
    called, reports = compiled()
    check(called)
    assert len(launched[-1]) >= 2
    assert [early(kernel) for kernel in launched[-1]] == [order == "early"] * len(launched[-1])
    assert reports[0].orders == (("in order", 1e-6), ("early", seconds * 1e-6))
    assert f"launched {order} (µs: in order 1.0, early {seconds})" in str(reports[0])


def test_nothing_is_compiled_again_where_nothing_is_timed(launched: list[tuple[Kernel, ...]]) -> None:
    called, reports = compiled("reduce-overhead")
    check(called)
    assert not any(early(kernel) for kernels in launched for kernel in kernels)
    assert not reports[0].orders


@pytest.mark.parametrize(("seconds", "order"), [(0.5, "early"), (2.0, "in order")])
def test_where_nothing_is_timed_the_order_is_the_one_that_was_faster(
    seconds: float, order: str, timed: dict[str, float], launched: list[tuple[Kernel, ...]]
) -> None:
    timed["early"] = seconds
    check(compiled()[0])
    torch.compiler.reset()
    called, reports = compiled("reduce-overhead")
    check(called)
    assert [early(kernel) for kernel in launched[-1]] == [order == "early"] * len(launched[-1])
    assert ("launched early" in str(reports[0])) == (order == "early")
    torch.compiler.reset()
    # Not as a CUDA graph: of that nothing was timed.
    check(compiled("default")[0])
    assert not any(map(early, launched[-1]))


def test_another_process_compiles_them_no_more(timed: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    timed["early"] = 0.5
    check(compiled()[0])
    asked: list[int] = []
    monkeypatch.setattr(kernel_cache, "compiled_early", lambda kernels: asked.append(len(kernels)) or [])
    torch.compiler.reset()
    called, reports = compiled()
    check(called)
    assert asked == [0]
    assert "launched early" in str(reports[0])


def test_what_cannot_be_compiled_again_follows_on_the_end_of_what_is_before(
    timed: dict[str, float], launched: list[tuple[Kernel, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = kernel_cache.compiled_early
    monkeypatch.setattr(kernel_cache, "compiled_early", lambda kernels: [None, *usual(kernels[1:])])
    timed["early"] = 0.5
    check(compiled()[0])
    assert [early(kernel) for kernel in launched[-1]].count(False) == 1


def test_a_failure_leaves_the_kernels_as_they_are(
    timed: dict[str, float], launched: list[tuple[Kernel, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(kernels: Any) -> Any:
        raise RuntimeError("no processes")

    monkeypatch.setattr(early_launches, "early_kernels", failing)
    called, reports = compiled()
    check(called)
    assert not any(map(early, launched[-1]))
    assert not reports[0].orders
