"""Calls of PyTorch as CUDA graphs, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autosched.planning.captured_call import CapturedCall, GpuRecorder
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from needed import needs_gpu

pytestmark = [pytest.mark.gpu, needs_gpu]
# Launches enough that a graph is the faster.
STEPS = 40


class Recorder(GpuRecorder):
    """Counts launches of graphs."""

    replays = 0

    def record(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        results, replay = super().record(run)

        def counted() -> None:
            self.replays += 1
            replay()

        return results, counted


def steps(x: Tensor, weight: Tensor) -> list[Tensor]:
    for _ in range(STEPS):
        x = (x @ weight).relu() + 0.5
    return [x, x.t()]


def given() -> Tensor:
    return torch.randn(16, 16, device="cuda")


@pytest.fixture
def weight() -> Tensor:
    return torch.randn(16, 16, device="cuda") / 8


def captured(run: Callable[..., Any] = steps) -> tuple[CapturedCall, Recorder]:
    recorder = Recorder(torch.device("cuda", torch.cuda.current_device()))
    return CapturedCall(run, recorder._device, recorder), recorder


def test_results_are_right_and_stay_while_inputs_move_and_weights_change(weight: Tensor) -> None:
    call, recorder = captured()
    inputs = [given() for _ in range(8)]
    found = []
    for number, x in enumerate(inputs):
        found.append((call(x, weight), steps(x, weight)))
        if number == 5:
            weight.mul_(0.5)
    for made, expected in found:
        torch.testing.assert_close(made, expected)
    assert recorder.replays
    assert not call.refused


def test_calls_on_several_streams_and_in_several_threads_are_right(weight: Tensor) -> None:
    call, _ = captured()
    for _ in range(3):
        call(given(), weight)

    def many(_: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                x = given()
                torch.testing.assert_close(call(x, weight), steps(x, weight))

    torch.cuda.synchronize()
    many(0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(many, range(8)))


def test_a_graph_of_the_callers_captures_a_call(weight: Tensor) -> None:
    (call, _), x = captured(), given()
    for _ in range(3):
        call(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = call(x, weight)
    for _ in range(3):
        x.copy_(given())
        graph.replay()
        torch.testing.assert_close(made, steps(x, weight))


def test_random_numbers_are_other_ones_at_every_call_and_follow_the_seed() -> None:
    def noisy(x: Tensor) -> list[Tensor]:
        for _ in range(STEPS):
            x = F.dropout(x, 0.1) + 1
        return [x]

    (call, recorder), x = captured(noisy), given()
    for _ in range(2):
        call(x)
    torch.manual_seed(7)
    first, second = call(x)[0], call(x)[0]
    assert recorder.replays
    assert not torch.equal(first, second)
    torch.manual_seed(7)
    torch.testing.assert_close([first, second], [noisy(x)[0], noisy(x)[0]])


def test_what_cannot_be_captured_goes_on_without_and_leaves_pytorch_as_it_was() -> None:
    def waits(x: Tensor) -> list[Tensor]:
        return [torch.rand_like(x) * 0 + x * (x.sum().item() > 0)]

    (call, _), x = captured(waits), given().abs()
    for _ in range(4):
        torch.testing.assert_close(call(x)[0], x)
    assert call.refused
    torch.testing.assert_close(torch.rand(8, device="cuda").isfinite().all().item(), True)
    fine, recorder = captured()
    for _ in range(3):
        y = given()
        torch.testing.assert_close(fine(x, y), steps(x, y))
    assert recorder.replays


def test_memory_does_not_grow(weight: Tensor) -> None:
    call, _ = captured()
    x = given()
    for _ in range(3):
        call(x, weight)
    before = torch.cuda.memory_allocated()
    for _ in range(200):
        call(x, weight)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("trained", [False, True])
def test_a_model_left_to_inductor_is_right_in_the_mode_reduce_overhead(trained: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    layers = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.GELU())]
    model = nn.Sequential(*layers).cuda().requires_grad_(trained)
    options = Options("reduce-overhead", log=str(tmp_path / "empty.jsonl"))
    called = torch.compile(model, backend=backend_of(options, lambda _: None))
    for _ in range(5):
        x = torch.randn(4, 32, device="cuda")
        made, expected = called(x), model(x)
        torch.testing.assert_close(made, expected, rtol=1e-3, atol=1e-3)
        if trained:
            wanted = [*model.parameters()]
            grads = torch.autograd.grad(made.sum(), wanted), torch.autograd.grad(expected.sum(), wanted)
            torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
            with torch.no_grad():
                for parameter in wanted:
                    parameter.mul_(0.9)
