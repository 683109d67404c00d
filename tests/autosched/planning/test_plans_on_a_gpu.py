"""Compiled graphs on a GPU: launched one by one, and as CUDA graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autosched.torch_compile import direct_writes, graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Mode, Options
from autosched.tracing import TracedFunction, TracedKernel
from needed import needs_gpu
from search_spaces import Target
from untuned import untuned_kernels

pytestmark = [pytest.mark.gpu, needs_gpu]
ROWS, WIDTH, HIDDEN = 64, 64, 128
CLOSE = {"rtol": 2e-2, "atol": 2e-2}
MODES: tuple[Mode, ...] = ("default", "reduce-overhead")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return made


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(4))).half().cuda().requires_grad_(False)


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """Kernels by the key of a workload."""
    return {}


@pytest.fixture
def graphs_launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for every launch of a CUDA graph of ours."""
    from autosched.backends.gpu.graph import CudaGraph

    usual, found = CudaGraph.__call__, []

    def counted(graph: CudaGraph, addresses: Any) -> None:
        usual(graph, addresses)
        assert not graph._refused
        found.append(1)

    monkeypatch.setattr(CudaGraph, "__call__", counted)
    return found


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    def kernels(traced: TracedFunction, target: Target, log: object, strict: bool = False) -> TracedKernel:
        traced = traced.for_target(target)
        known.update(untuned_kernels([w for w in traced.workloads if w.key not in known], target))
        return TracedKernel(traced, known)

    def compiled(model: Callable[..., Any], mode: Mode) -> Callable[..., Any]:
        made: Callable[..., Any] = torch.compile(model, backend=backend_of(Options(mode, strict=True), lambda _: None))
        return made

    monkeypatch.setattr(graph_compiler, "replay", kernels)
    torch.compiler.reset()
    with torch.no_grad():
        yield compiled


def given() -> Tensor:
    return torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.float16)


@pytest.mark.parametrize("mode", MODES)
def test_calls_are_right_and_their_results_stay(
    model: nn.Sequential, compiled: Callable[..., Any], mode: Mode, graphs_launched: list[int]
) -> None:
    called = compiled(model, mode)
    inputs = [given() for _ in range(5)]
    found = [called(x) for x in inputs]
    for x, made in zip(inputs, found, strict=True):
        torch.testing.assert_close(made, model(x), **CLOSE)
    assert len(graphs_launched) == (5 if mode == "reduce-overhead" else 0)


@pytest.mark.parametrize("mode", MODES)
def test_calls_on_several_streams_are_right(model: nn.Sequential, compiled: Callable[..., Any], mode: Mode) -> None:
    called = compiled(model, mode)
    called(given())

    for _ in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                x = given()
                torch.testing.assert_close(called(x), model(x), **CLOSE)


@pytest.mark.parametrize("mode", MODES)
def test_a_thousand_calls_from_four_threads_are_right_and_leave_nothing_behind(
    model: nn.Sequential, compiled: Callable[..., Any], mode: Mode, graphs_launched: list[int]
) -> None:
    called, inputs = compiled(model, mode), [given() for _ in range(8)]
    # Eager's are not computed in the threads, since cuBLAS has a workspace for each of them and each stream.
    expected = [model(x) for x in inputs]
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()

    def many(stream: torch.cuda.Stream, count: int) -> None:
        with torch.no_grad(), torch.cuda.stream(stream):
            for number in range(count):
                at = number % len(inputs)
                torch.testing.assert_close(called(inputs[at]), expected[at], **CLOSE)

    def allocated(count: int) -> int:
        """Bytes after as many calls in every thread."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(many, streams, [count] * 4))
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    called(inputs[0])
    before = allocated(10)
    # A value that stays behind in each call takes 8 MB; calls that meet for the first time may make an arena more.
    assert allocated(250) < before + (1 << 20)
    assert bool(graphs_launched) == (mode == "reduce-overhead")


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_of_the_callers_captures_a_call(model: nn.Sequential, compiled: Callable[..., Any], mode: Mode) -> None:
    called, x = compiled(model, mode), given()
    for _ in range(2):
        called(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = called(x)
    for _ in range(3):
        x.copy_(given())
        graph.replay()
        torch.testing.assert_close(made, model(x), **CLOSE)


@pytest.mark.parametrize("mode", MODES)
def test_changed_weights_count_at_the_next_call(model: nn.Sequential, compiled: Callable[..., Any], mode: Mode) -> None:
    called, x = compiled(model, mode), given()
    for _ in range(3):
        torch.testing.assert_close(called(x), model(x), **CLOSE)
        model[0].down.weight.mul_(0.5)
        model[1].up.weight.data = model[1].up.weight.data.clone()


@pytest.mark.parametrize("mode", MODES)
def test_memory_is_no_more_than_eagers_and_does_not_grow(
    model: nn.Sequential, compiled: Callable[..., Any], mode: Mode
) -> None:
    x = torch.randn(1 << 15, WIDTH, device="cuda", dtype=torch.float16)
    called = compiled(model, mode)

    def peak(call: Callable[[Tensor], Tensor]) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call(x)
        return torch.cuda.max_memory_allocated()

    allowed = 1.1 * peak(model)
    called(x)
    before = torch.cuda.memory_allocated()
    assert peak(called) <= allowed
    for _ in range(200):
        called(x)
    assert torch.cuda.memory_allocated() == before


def test_a_call_that_pytorch_makes_a_part_of_is_right_with_graphs_around_it(
    model: nn.Sequential, compiled: Callable[..., Any], graphs_launched: list[int]
) -> None:
    def sorted_between(x: Tensor) -> Tensor:
        y = F.silu(F.layer_norm(x, (WIDTH,))).softmax(0)
        made: Tensor = F.silu(F.layer_norm(y.sort(-1)[0] @ y.t(), (ROWS,))).softmax(0)
        return made

    called = torch.compile(sorted_between, backend=backend_of(Options("reduce-overhead"), lambda _: None))
    for _ in range(3):
        x = given()
        torch.testing.assert_close(called(x), sorted_between(x), **CLOSE)


class Caching(nn.Module):
    """Attention of one position to those in a cache, and a count of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer("cache", torch.zeros(2, 1, 4, 32, WIDTH // 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        cache, calls = self.get_buffer("cache"), self.get_buffer("calls")
        query, *entries = self.project(x).view(1, 1, 3, 4, WIDTH // 4).transpose(1, 3).unbind(2)
        for each, entry in zip(cache, entries, strict=True):
            each.index_copy_(2, position, entry.transpose(1, 2).reshape(1, 4, 1, WIDTH // 4))
        calls.add_(1)
        mask = torch.arange(32, device=x.device) <= position
        query = query.transpose(1, 2).reshape(1, 4, 1, WIDTH // 4)
        return F.scaled_dot_product_attention(query, cache[0], cache[1], attn_mask=mask[None, None, None])


@pytest.mark.parametrize("mode", MODES)
def test_buffers_are_written_in_place_at_every_call_and_where_they_have_moved(
    compiled: Callable[..., Any], mode: Mode
) -> None:
    ours = Caching().half().cuda().requires_grad_(False)
    eagers, called = copy.deepcopy(ours), compiled(ours, mode)
    for position in range(6):
        if position == 3:
            ours.get_buffer("cache").data = ours.get_buffer("cache").clone()
        x, at = torch.randn(1, 1, WIDTH, device="cuda", dtype=torch.float16), torch.tensor([position], device="cuda")
        torch.testing.assert_close(called(x, at), eagers(x, at), **CLOSE)
        torch.testing.assert_close(ours.state_dict(), eagers.state_dict(), **CLOSE)


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_adds_to_its_input_once_per_call(compiled: Callable[..., Any], mode: Mode) -> None:
    """At sizes that no tile divides."""

    def accumulated(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y * x)
        return y * 2

    called = compiled(accumulated, mode)
    for rows in (1, 127, 1001):
        torch.compiler.reset()
        ours = torch.randn(rows, 333, device="cuda")
        eagers, y = ours.clone(), torch.randn(rows, 333, device="cuda")
        for _ in range(3):
            torch.testing.assert_close(called(ours, y), accumulated(eagers, y))
            torch.testing.assert_close(ours, eagers)


class Caches(nn.Module):
    """Keys and values of one buffer, into which entries are made at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.randn(2, 4, 96, 16, dtype=torch.float16))

    def forward(self, entry: Tensor, position: Tensor) -> Tensor:
        keys, values = self.cache
        keys.index_copy_(1, position, entry)
        values.index_copy_(1, position, entry * 2)
        made: Tensor = keys @ values.mT
        return made


@pytest.mark.parametrize("mode", MODES)
def test_only_entries_of_caches_are_stored(
    compiled: Callable[..., Any], mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    usual = direct_writes.storing_in_place

    def noted(*given: Any) -> Any:
        made.append(usual(*given))
        return made[-1]

    monkeypatch.setattr(direct_writes, "storing_in_place", noted)
    ours = Caches().cuda()
    eagers, called = copy.deepcopy(ours), compiled(ours, mode)
    for at in (0, 95, 40, 40):
        entry, position = torch.randn(4, 1, 16, device="cuda", dtype=torch.float16), torch.tensor([at], device="cuda")
        torch.testing.assert_close(called(entry, position), eagers(entry, position), **CLOSE)
        assert torch.equal(ours.cache.view(torch.int16), eagers.cache.view(torch.int16))
    assert len(made) == 1
    assert made[0] is not None
