"""Models under torch.compile with the backend "autosched"."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

import autosched
from autosched.torch_compile import graph_compiler, graphs, tune_model
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.choosing import timing_parts
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction
from autosched.tracing.translation.translate import DefectWarning
from search_spaces import InputError, Target

COMPILER = shutil.which("g++")


@pytest.fixture(scope="module", autouse=True)
def no_compiler(module_patch: pytest.MonkeyPatch) -> None:
    """Inductor takes seconds to compile for a CPU: PyTorch's operators are in its place."""
    module_patch.setattr(shutil, "which", lambda _: None)


@pytest.fixture(scope="module")
def module_patch() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("logs") / "tuning.jsonl")


def compiled(model: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    torch.compiler.reset()
    reports: list[GraphReport] = []
    return torch.compile(model, backend=backend_of(Options(**options), reports.append)), reports


class Block(nn.Module):
    """A linear layer whose buffer counts its calls."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.add_(1)
        y = F.relu(self.linear(x))
        return y, y.mT


def test_a_model_is_computed_by_kernels_of_a_log(log: str) -> None:
    model, x = Block().eval(), torch.randn(4, 8)
    with torch.no_grad():
        first, reports = compiled(model, log=log)
        first(x)
        assert [(r.kind, r.by) for r in reports] == [("inference", "eager")]
        assert "no successful record" in reports[0].why
        tuning, _ = compiled(model, log=log, mode="max-autotune", trials=1)
        tuning(x)
        again, reports = compiled(model, log=log, strict=True)
        y, turned = again(x)
    assert [(r.kind, r.by, r.left) for r in reports] == [("inference", "autosched", ())]
    assert reports[0].kernels > 0
    torch.testing.assert_close(y, F.relu(model.linear(x)))
    assert turned.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert model.calls == 3
    with torch.no_grad():
        model.linear.weight.mul_(2)
        torch.testing.assert_close(again(x)[0], F.relu(model.linear(x)))


def test_gradients_are_those_of_the_model(log: str) -> None:
    model, x = nn.Linear(8, 4), torch.randn(4, 8)

    def loss(x: Tensor) -> Tensor:
        return model(x).tanh().sum()

    called, reports = compiled(loss, log=log, mode="max-autotune", trials=1, strict=True)
    called(x).backward()
    found = model.weight.grad
    model.weight.grad = None
    loss(x).backward()
    assert [(r.kind, r.by) for r in reports] == [("forward", "autosched"), ("backward", "autosched")]
    torch.testing.assert_close(found, model.weight.grad)


def test_the_fastest_candidate_is_chosen(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"autosched": [3.0, 1.0, 3.0], "eager": [2.0, 2.0, 2.0]}
    monkeypatch.setattr(timing_parts, "interleaved", lambda *_: seconds)
    called, reports = compiled(lambda x: x * 2 + 1, log=log, mode="max-autotune", trials=1)
    assert called(torch.ones(4)).tolist() == [3.0] * 4
    assert [(r.by, r.why) for r in reports] == [("eager", "it takes 2000000.0 µs, the kernels 3000000.0")]
    called, reports = compiled(lambda x: x * 2 + 1, log=log, mode="max-autotune", trials=1, strict=True)
    called(torch.ones(4))
    assert [r.by for r in reports] == ["autosched"]


def test_a_segment_is_timed_as_the_graph_launches_it(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    composed, made = graph_compiler.composed, []
    monkeypatch.setattr(graph_compiler, "composed", lambda *given: made.append(given) or composed(*given))
    timed: list[int] = []

    def first_result(runs: dict[str, Callable[[], Any]], *_: Any) -> dict[str, list[float]]:
        runs["autosched"]()
        timed.append(len(made))
        return {name: [1.0] for name in runs}

    monkeypatch.setattr(timing_parts, "interleaved", first_result)
    called, _ = compiled(lambda x: x * 2 + 1, log=log, mode="max-autotune", trials=1)
    assert called(torch.ones(4)).tolist() == [3.0] * 4
    # The segment alone before the first comparison, with CUDA graphs where there is a GPU; the graph after it.
    assert timed == [1]
    assert [graphs for _, _, graphs, _ in made] == [True, True]


def test_what_cannot_be_timed_is_left_to_others(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(timing_parts, "interleaved", failing)
    called, reports = compiled(lambda x: x * 5, log=log, mode="max-autotune", trials=1)
    assert called(torch.ones(2)).tolist() == [5.0, 5.0]
    why = "the kernels cannot be timed: OutOfMemoryError: no memory; no C++ compiler is here"
    assert [(r.by, r.why) for r in reports] == [("eager", why)]


def test_inductor_compiles_what_has_no_kernel(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def standalone_compile(graph: Any, inputs: list[Any], **how: Any) -> Callable[..., Any]:
        given.append((tuple(inputs[0].shape), how))
        return graph.forward

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr("torch._inductor.standalone_compile", standalone_compile)
    called, reports = compiled(lambda x: x * 7, log=log)
    assert called(torch.ones(2)).tolist() == [7.0, 7.0]
    assert [r.by for r in reports] == ["inductor"]
    assert given == [((2,), {"dynamic_shapes": "from_example_inputs"})]


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_inductor_compiles_graphs_with_constants(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: COMPILER)
    called, reports = compiled(lambda x: x * torch.tensor([1.0, 2.0, 3.0]), log=log)
    assert called(torch.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert [r.by for r in reports] == ["inductor"]


def test_what_inductor_refuses_is_left_to_pytorch(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise NotImplementedError("run_and_save_rng_state")

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr("torch._inductor.standalone_compile", refused)
    called, reports = compiled(lambda x: x * 9, log=log)
    assert called(torch.ones(2)).tolist() == [9.0, 9.0]
    assert reports[0].by == "eager"
    assert reports[0].why.endswith("; Inductor fails: NotImplementedError: run_and_save_rng_state")


def attention(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("model", "x", "why"),
    [
        (lambda x: x.exp() + torch.rand(3), torch.eye(3), "random"),
        (lambda x: torch.linalg.cholesky(x) + 1, torch.eye(3), "effects"),
        (lambda x: x * 2, torch.ones(3, device="meta"), "its inputs are on meta; expected the CPU"),
        (lambda x: x.to("meta") * 2, torch.ones(3), "it has tensors on .*meta"),
        # The advice to callers of `trace` does not help here.
        (lambda x: torch.special.i1(x), torch.ones(3), r"special_i1.* no rule computes it; without strict"),
        # Of PyTorch's and our own lines a user learns nothing.
        (nn.GELU(), torch.ones(3, dtype=torch.float64), r"mul.Tensor is not supported: an operand is float64"),
    ],
    ids=["random numbers", "errors", "elsewhere", "moved", "without a rule", "in a module"],
)
def test_a_model_may_have_to_be_computed_by_kernels_alone(
    log: str, model: Callable[..., Any], x: Tensor, why: str
) -> None:
    called, _ = compiled(model, log=log, strict=True)
    with pytest.raises(BackendCompilerFailed, match=rf"strict: \d+ operators of the \w+ graph are left: .*{why}"):
        called(x)


def test_a_reason_comes_once_with_the_first_operators_that_it_has(log: str) -> None:
    model = nn.Sequential(nn.GELU(), nn.Tanh(), nn.ReLU())
    found = str(autosched.explain(model, torch.ones(3, dtype=torch.float64), options={"log": log}))
    assert found.count("float64") == 1
    assert "aten.gelu.default, aten.tanh.default, aten.relu.default: an operand is float64; expected" in found


def test_a_model_that_dynamo_skips_is_explained(log: str) -> None:
    assert "autosched.compile does without Dynamo" in str(autosched.explain(lambda x: 2, torch.ones(3)))


def test_what_computes_a_model_is_explained(log: str) -> None:
    found = autosched.explain(lambda x: x.exp() + 2, torch.randn(3), options={"log": log})
    assert found.kernels == 0
    assert "inference graph of 2 operators by eager: no successful record" in str(found)


@pytest.mark.parametrize(
    "step",
    [(graph_compiler, "traced_problems"), (graphs, "trace_function"), (graph_compiler, "replay")],
    ids=["segments", "cut", "kernels"],
)
def test_a_defect_costs_a_warning_and_the_kernels_only(step: Any, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of a rule")

    monkeypatch.setattr(*step, failing)
    called, reports = compiled(lambda x: x * 3, log=log)
    with pytest.warns(DefectWarning, match="ZeroDivisionError: of a rule; this is a defect"):
        assert called(torch.ones(2)).tolist() == [3.0, 3.0]
    assert reports[0].by == "eager"


@pytest.mark.parametrize("backward", [False, True], ids=["inference", "training"])
def test_a_model_is_tuned_once_and_then_compiled_without_a_search(tmp_path: Path, backward: bool) -> None:
    linear, x, where = nn.Linear(8, 8), torch.randn(4, 8), tmp_path / "log.jsonl"

    def model(x: Tensor) -> Tensor:
        return linear(x).tanh()

    result = autosched.tune_model(model, x, trials=4, log=where, backward=backward)
    assert not result.without_kernel
    assert all(p.grad is None for p in linear.parameters())
    called, reports = compiled(model, log=where, strict=True)
    with torch.set_grad_enabled(backward):
        made = called(x)
    if backward:
        made.sum().backward()
    assert [r.kind for r in reports] == (["forward", "backward"] if backward else ["inference"])
    assert {r.by for r in reports} == {"autosched"}


def test_the_time_of_tuning_is_that_of_searches_finals_and_comparisons_together(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(n, n + 64), nn.GELU()) for n in range(64, 384, 64))).eval()
    x = torch.randn(256, 64)
    with torch.no_grad():
        called, reports = compiled(model, log=str(tmp_path / "log.jsonl"), mode="max-autotune", trials=500, seconds=3.0)
        begin = time.perf_counter()
        torch.testing.assert_close(called(x), model(x))
    # What is being measured ends, and the makers are timed in a few rounds; 500 trials of five kernels take minutes.
    assert time.perf_counter() - begin < 30.0
    assert [r.kind for r in reports] == ["inference"]


def test_attention_is_tuned_as_it_is_compiled(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, looked_up = set[str](), set[str]()

    def no_search(problems: Any, target: Target, *_: Any, **__: Any) -> SimpleNamespace:
        tuned.update(w.key for traced, _ in problems for w in traced.for_target(target).workloads)
        return SimpleNamespace(interrupted=True)

    def no_record(traced: TracedFunction, target: Target, **__: Any) -> None:
        looked_up.update(w.key for w in traced.for_target(target).workloads)
        raise InputError("no record")

    monkeypatch.setattr(tune_model, "tune_many", no_search)
    monkeypatch.setattr(graph_compiler, "replay", no_record)
    x = torch.ones(1, 2, 4, 8)
    tune_model.tune_model(attention, x)
    called, _ = compiled(attention, log=log)
    called(x)
    assert tuned == looked_up


def test_a_model_without_a_kernel_cannot_be_tuned() -> None:
    with pytest.raises(InputError, match=r"no graph of .*cholesky_ex has a kernel: inference: no operator"):
        autosched.tune_model(torch.linalg.cholesky_ex, torch.eye(3), target="cpu", trials=1)
    with pytest.raises(InputError, match="no result depends on a tensor that requires a gradient"):
        autosched.tune_model(torch.tanh, torch.ones(3), target="cpu", trials=1, backward=True)


def test_a_model_may_be_explained_more_often_than_dynamo_compiles_one(log: str) -> None:
    def in_two_graphs(x: Tensor) -> Tensor:
        y = x.tanh()
        torch._dynamo.graph_break()
        return y.exp()

    for _ in range(torch._dynamo.config.recompile_limit + 1):
        found = autosched.explain(in_two_graphs, torch.randn(3), options={"log": log})
        assert len(found.graphs) == 2
        assert "graph break" in str(found).splitlines()[-1]
