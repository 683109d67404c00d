"""Weights of models: in the layouts of kernels, prepared once, and again when they have changed."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import best_spaces
from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction, TracedKernel
from schedule_checks import tried
from search_spaces import Target, Workload
from untuned import untuned_kernel

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
Compiled = Callable[..., tuple[Callable[..., Any], list[GraphReport]]]


@functools.cache
def prepares(w: Workload, target: Target) -> Any:
    """A schedule of the workload that reads its constants in layouts of their own."""
    constant = any(t.constant for t in w.inputs)
    return next(s for s in tried(best_spaces.build(w, target), 400, 0) if bool(s.program.prepared) is constant)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiled]:
    """Compiles a model, with kernels that prepare weights; returns it and its reports."""

    def kernels(traced: TracedFunction, target: Target, log: object, strict: bool = False) -> TracedKernel:
        traced = traced.for_target(target)
        return TracedKernel(traced, {w.key: untuned_kernel(prepares(w, target), w, target) for w in traced.workloads})

    def compiled(model: Callable[..., Any]) -> tuple[Callable[..., Any], list[GraphReport]]:
        reports: list[GraphReport] = []
        return torch.compile(model, backend=backend_of(Options(strict=True), reports.append)), reports

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", kernels)
    torch.compiler.reset()
    with torch.no_grad():
        yield compiled


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The weights that were prepared, one entry for each time."""
    from autosched.kernels.prepared_constants import PreparedConstants

    made, usual = [], PreparedConstants.made

    def counted(constants: PreparedConstants, number: int, *rest: Any) -> Tensor:
        made.append(number)
        return usual(constants, number, *rest)

    monkeypatch.setattr(PreparedConstants, "made", counted)
    return made


def layer() -> nn.Linear:
    return nn.Linear(56, 40)


def test_weights_are_prepared_at_the_first_call_only(compiled: Compiled, prepared: list[int]) -> None:
    model, x = layer(), torch.randn(24, 56)
    called, reports = compiled(model)
    called(x)
    # That of the call, and that of the comparison with PyTorch before it.
    assert len(prepared) == 2
    for _ in range(2):
        torch.testing.assert_close(called(x), model(x), **CLOSE)
    assert len(prepared) == 2
    assert reports[0].prepared_bytes >= model.weight.nbytes
    assert "MB of weights prepared" in str(reports[0])


def exchange(model: nn.Linear) -> None:
    """Other memory at the same address, if the allocator gives it again."""
    model.weight.data = torch.zeros(1)
    model.weight.data = torch.randn(40, 56)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.weight.mul_(3),
        lambda m: m.weight[3:5].zero_(),
        lambda m: m.weight.detach().add_(1),
        exchange,
        lambda m: setattr(m, "weight", nn.Parameter(torch.randn(40, 56))),
        lambda m: setattr(m, "weight", nn.Parameter(m.weight.data)) or m.weight.mul_(2),
        lambda m: m.load_state_dict(layer().state_dict()),
        lambda m: m.load_state_dict(layer().state_dict(), assign=True),
        lambda m: m.half().float(),
        lambda m: m.to("meta").to_empty(device="cpu").load_state_dict(layer().state_dict()),
    ],
    ids=["in place", "part", "detached", "other memory", "other", "same memory", "loaded", "assigned", "to", "emptied"],
)
def test_changed_weights_are_prepared_again(compiled: Compiled, change: Callable[[nn.Linear], Any]) -> None:
    model, x = layer(), torch.randn(24, 56)
    called, _ = compiled(model)
    called(x)
    for _ in range(3):
        change(model)
        torch.testing.assert_close(called(x), model(x), **CLOSE)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_of_an_optimizer_changes_weights(compiled: Compiled, fused: bool) -> None:
    model, x = layer(), torch.randn(24, 56)
    called, _ = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=fused)
    for _ in range(2):
        torch.testing.assert_close(called(x), model(x), **CLOSE)
        with torch.enable_grad():
            model(x).sum().backward()
        optimizer.step()


def test_weights_that_change_before_every_call_are_prepared_as_often(compiled: Compiled, prepared: list[int]) -> None:
    model, x = layer(), torch.randn(24, 56)
    called, _ = compiled(model)
    called(x)
    prepared.clear()
    for count in range(1, 5):
        model.weight.mul_(1.1)
        torch.testing.assert_close(called(x), model(x), **CLOSE)
        assert len(prepared) == count


def test_modules_may_share_weights(compiled: Compiled) -> None:
    first, second, x = layer(), layer(), torch.randn(24, 56)
    second.weight = first.weight
    called, _ = compiled(lambda x: first(x) + second(x))
    torch.testing.assert_close(called(x), first(x) + second(x), **CLOSE)
    first.weight.mul_(2)
    torch.testing.assert_close(called(x), first(x) + second(x), **CLOSE)


def test_weights_that_no_vector_can_read_are_copied_once(compiled: Compiled, prepared: list[int]) -> None:
    """Weights of a memory-mapped file, which begin anywhere."""
    model, x = layer(), torch.randn(24, 56)
    model.weight.data = torch.randn(40 * 56 + 1)[1:].view(40, 56)
    called, _ = compiled(model)
    called(x)
    prepared.clear()
    for _ in range(2):
        torch.testing.assert_close(called(x), model(x), **CLOSE)
    assert not prepared
    model.weight.add_(1)
    torch.testing.assert_close(called(x), model(x), **CLOSE)


def test_parts_of_weights_that_no_vector_can_read_are_prepared_once(compiled: Compiled, prepared: list[int]) -> None:
    model, x = layer(), torch.randn(24, 50)
    model.weight = nn.Parameter(torch.randn(77, 50))
    # Rows of 200 bytes.
    model.forward = lambda x: F.linear(x, model.weight[37:])  # type: ignore[method-assign]
    called, _ = compiled(model)
    called(x)
    prepared.clear()
    for count in range(3):
        torch.testing.assert_close(called(x), model(x), **CLOSE)
        torch.testing.assert_close(called(x), model(x), **CLOSE)
        assert len(prepared) == count
        model.weight.mul_(2)


def test_buffers_that_a_model_changes_are_read_at_every_call(compiled: Compiled) -> None:
    class Growing(nn.Module):
        table: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.randn(40, 56))

        def forward(self, x: Tensor) -> Tensor:
            y = F.linear(x, self.table)
            self.table.add_(1)
            return y

    model, expected, x = Growing(), Growing(), torch.randn(24, 56)
    expected.load_state_dict(model.state_dict())
    called, reports = compiled(model)
    for _ in range(3):
        torch.testing.assert_close(called(x), expected(x), **CLOSE)
    assert reports[0].prepared_bytes == 0


def test_weights_without_a_version_counter_are_read_at_every_call(compiled: Compiled) -> None:
    with torch.inference_mode():
        model, x = layer(), torch.randn(24, 56)
        called, _ = compiled(model)
        for _ in range(2):
            torch.testing.assert_close(called(x), model(x), **CLOSE)
            model.weight.mul_(2)


def test_weights_of_training_are_not_prepared(compiled: Compiled) -> None:
    model, x = layer(), torch.randn(24, 56)
    called, reports = compiled(model)
    with torch.enable_grad():
        called(x).sum().backward()
    assert [(r.kind, r.prepared_bytes) for r in reports] == [("forward", 0), ("backward", 0)]
