"""Models whose sizes change from call to call."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autosched
from autosched.kernels.tier import Tier
from autosched.torch_compile import sized_compiler, sized_graph, traced_cache
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.torch_compile.sized_graph import SizedGraph, SizePlaces, Sizes
from autosched.tracing.translation.translate import DefectWarning
from search_spaces import InputError

COMPILER = shutil.which("g++")
usual = sized_graph.started


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor takes seconds to compile for a CPU: PyTorch's operators are in its place."""
    monkeypatch.setattr(shutil, "which", lambda _: None)


@pytest.fixture(autouse=True)
def kernels_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sized_compiler, "seconds_of_graph", lambda *_: {})


@pytest.fixture(autouse=True)
def trials_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are made while the model waits."""

    def done(work: Callable[[], None]) -> Thread:
        work()
        return Thread()

    monkeypatch.setattr(sized_graph, "started", done)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()


@pytest.fixture(scope="module")
def log(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the model for a batch of 4, in inference and in training."""
    where = tmp_path_factory.mktemp("logs") / "tuning.jsonl"
    for backward in (False, True):
        autosched.tune_model(model, torch.randn(4, 8), trials=4, log=where, backward=backward)
    return where


def compiled(model: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    torch.compiler.reset()
    reports: list[GraphReport] = []
    return torch.compile(model, backend=backend_of(Options(**options), reports.append), dynamic=True), reports


def made(reports: Sequence[GraphReport]) -> list[tuple[str, Sizes]]:
    return [(r.by, r.sizes) for r in reports]


def test_sizes_have_kernels_by_the_nearest_tuned_schedules(model: nn.Module, log: Path) -> None:
    called, reports = compiled(model, log=log)
    with torch.no_grad():
        for n in (4, 7, 7, 5):
            x = torch.randn(n, 8)
            torch.testing.assert_close(called(x), model(x))
    # The first size at once, another at its second call.
    assert made(reports) == [("eager", ()), ("autosched", (4,)), ("autosched", (7,))]
    assert "inference graph at 7 of 3 operators by autosched" in str(reports[-1])


def test_others_compute_a_size_until_its_kernels_are_known_to_be_right(
    model: nn.Module, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    called, reports = compiled(model, log=log)
    go_on = Event()
    monkeypatch.setattr(sized_graph, "started", lambda work: usual(lambda: go_on.wait() and work()))
    monkeypatch.setattr(sized_compiler, "seconds_of_graph", lambda *_: {})
    with torch.no_grad():
        called(torch.randn(4, 8))
        for _ in range(4):
            x = torch.randn(9, 8)
            torch.testing.assert_close(called(x), model(x))
        assert made(reports)[-1] == ("autosched", (4,))
        go_on.set()
        for thread in (t for t in enumerate_threads() if t.name == "autosched trials"):
            thread.join()
        torch.testing.assert_close(called(x), model(x))
    assert made(reports)[-1] == ("autosched", (9,))


def test_weights_of_all_sizes_are_noticed_when_they_change(model: nn.Module, log: Path) -> None:
    called, reports = compiled(model, log=log)
    with torch.no_grad():
        for n in (4, 6, 6):
            x = torch.randn(n, 8)
            torch.testing.assert_close(called(x), model(x))
        model[0].weight.mul_(2)
        for n in (4, 6):
            x = torch.randn(n, 8)
            torch.testing.assert_close(called(x), model(x))
    assert made(reports) == [("eager", ()), ("autosched", (4,)), ("autosched", (6,))]
    assert [r.parts[0].tier for r in reports] == [Tier.LIBRARY, Tier.EXACT, Tier.OTHER_SHAPE]
    assert ", tier: other shape" in str(reports[-1])


def test_strict_refuses_the_schedules_of_other_sizes(model: nn.Module, log: Path) -> None:
    called, reports = compiled(model, log=log, strict=True)
    with torch.no_grad():
        called(torch.randn(4, 8))
        with pytest.raises(InputError, match=r"strict: .*; the nearest record .* differs in shape: "):
            called(torch.randn(6, 8))
    assert made(reports) == [("autosched", (4,))]


def test_gradients_at_any_sizes_are_those_of_the_model(model: nn.Module, log: Path) -> None:
    called, reports = compiled(model, log=log)
    for n in (4, 6, 6, 3):
        x = torch.randn(n, 8)
        found = torch.autograd.grad(called(x).sum(), tuple(model.parameters()))
        expected = torch.autograd.grad(model(x).sum(), tuple(model.parameters()))
        torch.testing.assert_close(found, expected)
    kernels = Counter((r.kind, r.sizes[0]) for r in reports if r.by == "autosched")
    assert kernels == {(kind, n): 1 for kind in ("forward", "backward") for n in (4, 6)}


def test_sizes_without_records_are_traced_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Any] = []
    usual = traced_cache.traced_or_why
    monkeypatch.setattr(traced_cache, "traced_or_why", lambda *given: traced.append(given) or usual(*given))
    monkeypatch.setattr(traced_cache, "_read", lambda *_: None)
    called, reports = compiled(lambda x: x.cumsum(0).exp(), log=log)
    for n in (3, 5, 3, 5, 3, 5):
        x = torch.randn(n)
        torch.testing.assert_close(called(x), x.cumsum(0).exp())
    assert len(traced) == 2
    assert made(reports) == [("eager", ()), ("eager", (3,)), ("eager", (5,))]
    assert "no successful record" in reports[-1].why


@pytest.mark.parametrize("step", ["traced_problems", "composed"])
def test_a_defect_costs_a_warning_and_the_kernels_only(step: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise ZeroDivisionError("of a rule")

    called, reports = compiled(lambda x: x.exp() * 3, log=log)
    monkeypatch.setattr(sized_compiler, step, failing)
    monkeypatch.setattr(sized_compiler, "computes", lambda _: False)
    with pytest.warns(DefectWarning, match="ZeroDivisionError: of a rule"):
        torch.testing.assert_close(called(torch.ones(3)), torch.ones(3).exp() * 3)
    assert made(reports) == [("eager", ()), ("eager", (3,))]


def test_inputs_are_free_once_they_are_read() -> None:
    graph = SizedGraph(SizePlaces((lambda given: given[0],)), Kernels(lambda _: False), lambda _: ["others"])
    inputs: list[Any] = [3, torch.ones(3)]
    boxed = sized_compiler._of_tensors
    assert boxed(lambda tensors: [tensors.pop()], inputs)[0].shape == (3,)
    assert inputs == []
    assert graph._boxed_call


def test_kernels_slower_than_others_are_not_used(model: nn.Module, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(divided: object, kernels: object, calls: dict[str, Callable[[Tensor], object]]) -> dict[str, float]:
        for call in calls.values():
            call(model[0].weight, model[0].bias, torch.randn(4, 8))
        return {"autosched": 3.0, "eager": 2.0}

    monkeypatch.setattr(sized_compiler, "seconds_of_graph", seconds)
    called, reports = compiled(model, log=log)
    with torch.no_grad():
        x = torch.randn(4, 8)
        torch.testing.assert_close(called(x), model(x))
    assert made(reports) == [("eager", ()), ("eager", (4,))]
    assert "the kernels 3000000.0" in reports[-1].why


def test_the_first_sizes_are_tuned_where_that_is_wanted(tmp_path: Path) -> None:
    called, reports = compiled(lambda x: x * 2 + 1, log=tmp_path / "log.jsonl", mode="max-autotune", trials=1)
    for n in (4, 6, 6):
        assert called(torch.ones(n)).tolist() == [3.0] * n
    assert made(reports) == [("eager", ()), ("autosched", (4,)), ("autosched", (6,))]


def test_a_size_may_have_to_have_kernels(tmp_path: Path) -> None:
    called, _ = compiled(lambda x: x * 2 + 1, log=tmp_path / "log.jsonl", strict=True)
    with pytest.raises(InputError, match=r"strict: 2 operators of the inference graph are left: no successful record"):
        called(torch.ones(4))


def test_strides_may_change_as_well(tmp_path: Path) -> None:
    called, reports = compiled(lambda x: x.exp() * 2, log=tmp_path / "log.jsonl", mode="max-autotune", trials=1)
    for rows, columns in ((4, 6), (4, 9), (5, 9), (4, 9)):
        x = torch.randn(rows, columns)[:, :5]
        found, expected = called(x), x.exp() * 2
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert [r.by for r in reports if r.sizes] == ["autosched"] * 2


def test_numbers_may_change_as_sizes_do(tmp_path: Path) -> None:
    called, reports = compiled(lambda x, n: x * n, log=tmp_path / "log.jsonl", mode="max-autotune", trials=1)
    for n in (2, 3, 0.5, 4, 3, 1.5):
        torch.testing.assert_close(called(torch.ones(3), n), torch.full((3,), float(n)))
    assert (3, 2) in [r.sizes for r in reports]


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_inductor_computes_sizes_without_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: COMPILER)
    called, reports = compiled(lambda x: x.reshape(2, -1).sum(1) * x.shape[0], log=tmp_path / "log.jsonl")
    for n in (4, 6, 8):
        x = torch.randn(n)
        torch.testing.assert_close(called(x), x.reshape(2, -1).sum(1) * n)
    assert made(reports) == [("inductor", ()), ("inductor", (4,))]


class Kernels:
    """Kernels of sizes; `asked`: the sizes for which they were looked for."""

    def __init__(self, refused: Callable[[int], bool]) -> None:
        self.asked: list[int] = []
        self._refused = refused

    def before(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> None:
        return None

    def __call__(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Any:
        self.asked.append(sizes[0])
        return None if self._refused(sizes[0]) else lambda _: ["kernels"]


def sized(refused: Callable[[int], bool] = lambda _: False) -> tuple[Callable[[int], str], list[int]]:
    """A function of a size that says who computes it, and the sizes for which kernels were looked for."""
    kernels = Kernels(refused)
    graph = SizedGraph(SizePlaces((lambda given: given[0],)), kernels, lambda _: ["others"])
    return lambda n: "".join(graph([n])), kernels.asked


def test_sizes_that_grow_cost_a_few_traces_only() -> None:
    call, asked = sized()
    for _ in range(3):
        for n in range(1000):
            call(n)
    assert len(asked) == sized_graph._MOST


def test_sizes_whose_calls_alternate_have_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Work(Thread):
        """Work that is done by the next call."""

        asked = 0

        def is_alive(self) -> bool:
            self.asked += 1
            return self.asked == 1

    class Tried(Kernels):
        def before(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Any:
            return lambda: None

    monkeypatch.setattr(sized_graph, "started", lambda _: Work())
    kernels = Tried(lambda _: False)
    graph = SizedGraph(SizePlaces((lambda given: given[0],)), kernels, lambda _: ["others"])
    assert [graph([n]) for n in (5, 7) * 4][-2:] == [["kernels"]] * 2
    assert kernels.asked == [5, 7]


def test_sizes_called_most_have_kernels() -> None:
    call, asked = sized()
    for n in range(40):
        call(n), call(n)
    for _ in range(20):
        call(100), call(101)
    assert (call(100), call(101), call(39)) == ("kernels", "kernels", "others")
    assert len(asked) == sized_graph._MOST + 2


def test_another_thread_may_add_a_size_while_sizes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    call, _ = sized()
    for n in range(sized_graph._MOST):
        call(n), call(n)
    count = SizedGraph._count

    def added(graph: SizedGraph, sizes: Sizes) -> int:
        graph._calls[-sizes[0] - 1,] = lambda _: ["kernels"]
        return count(graph, sizes)

    monkeypatch.setattr(SizedGraph, "_count", added)
    assert call(100) == "others"


def test_sizes_without_kernels_are_asked_for_once() -> None:
    call, asked = sized(refused=lambda n: n % 2 == 0)
    for repeats in range(1, 12):
        for n in range(repeats, repeats + 20):
            for _ in range(2**repeats):
                assert call(n) in ("others", "kernels")
    refused = [n for n in asked if n % 2 == 0]
    assert len(refused) == len(set(refused))


def test_counts_of_calls_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sized_graph, "_MOST_COUNTED", 16)
    call, _ = sized()
    for n in range(100):
        call(n), call(7)
    assert call(7) == "kernels"
    graph = call.__closure__[0].cell_contents  # type: ignore[attr-defined]
    assert len(graph._counts) <= 17
