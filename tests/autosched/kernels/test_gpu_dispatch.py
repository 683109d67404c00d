"""Calls of a kernel on a GPU: out of graphs, on several streams, by several threads, from another current device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import best_spaces
import search_spaces
from autosched import ops
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from search_spaces import Schedule, SearchSpace
from untuned import untuned_kernel

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
M, N, K = 64, 128, 4096
# Of dots of float16 with a long reduction, in whatever order.
CLOSE = {"rtol": 2e-2, "atol": 0.5}


def _with_workspace(space: SearchSpace) -> Schedule:
    """One whose kernels hand partial sums over in memory, so that two calls at once would spoil each other's."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        schedule = space.sample(rng)
        if any(b.role == "workspace" for b in schedule.program.buffers):
            return schedule
    raise AssertionError("no schedule has a workspace")


@pytest.fixture(scope="module", params=["one kernel", "with a workspace"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    op, target = ops.matmul(M, N, K, dtype="float16"), devices.gpu_target()
    space = best_spaces.build(op, target)
    schedule = space.seeds()[0] if request.param == "one kernel" else _with_workspace(space)
    return untuned_kernel(schedule, op, target)


@pytest.fixture
def operands() -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    generator = torch.Generator("cuda").manual_seed(0)
    yield [
        (
            torch.randn(M, K, generator=generator, device="cuda", dtype=torch.float16),
            torch.randn(K, N, generator=generator, device="cuda", dtype=torch.float16),
        )
        for _ in range(4)
    ]
    torch.cuda.synchronize()


def test_a_graph_replays_a_call_on_what_its_tensors_hold_by_then(kernel, operands):
    a, b = (t.clone() for t in operands[0])
    kernel(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = kernel(a, b)
    for left, right in operands:
        a.copy_(left)
        b.copy_(right)
        graph.replay()
        torch.testing.assert_close(found, left @ right, **CLOSE)


def test_two_graphs_may_run_at_the_same_time(kernel, operands):
    graphs, found, streams = [], [], [torch.cuda.Stream() for _ in operands]
    for a, b in operands:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(50):
                result = kernel(a, b)
        graphs.append(graph)
        found.append(result)
    torch.cuda.synchronize()
    for graph, stream in zip(graphs, streams, strict=True):
        with torch.cuda.stream(stream):
            graph.replay()
    torch.cuda.synchronize()
    for result, (a, b) in zip(found, operands, strict=True):
        torch.testing.assert_close(result, a @ b, **CLOSE)


def test_calls_on_several_streams_do_not_disturb_each_other(kernel, operands):
    streams = [torch.cuda.Stream() for _ in operands]
    found = [torch.empty(M, N, device="cuda", dtype=torch.float16) for _ in operands]
    torch.cuda.synchronize()
    for _ in range(200):
        for stream, (a, b), out in zip(streams, operands, found, strict=True):
            with torch.cuda.stream(stream):
                kernel(a, b, out=out)
    torch.cuda.synchronize()
    for out, (a, b) in zip(found, operands, strict=True):
        torch.testing.assert_close(out, a @ b, **CLOSE)


def test_threads_may_call_at_the_same_time(kernel, operands):
    expected = [a @ b for a, b in operands]
    # None of them goes ahead alone.
    together = threading.Barrier(len(operands))

    def work(number: int) -> list[torch.Tensor]:
        together.wait()
        with torch.cuda.stream(torch.cuda.Stream()):
            found = [kernel(*operands[number]) for _ in range(300)]
            torch.cuda.current_stream().synchronize()
        return found

    torch.cuda.synchronize()
    with ThreadPoolExecutor(len(operands)) as pool:
        for found, wanted in zip(pool.map(work, range(len(operands))), expected, strict=True):
            for result in found:
                torch.testing.assert_close(result, wanted, **CLOSE)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_kernel_runs_where_its_tensors_are_whatever_the_current_device_is(kernel, operands):
    a, b = operands[0]
    with torch.cuda.device(1):
        found = kernel(a, b)
        torch.testing.assert_close(found, a @ b, **CLOSE)
        assert torch.cuda.current_device() == 1
    with pytest.raises(search_spaces.InputError, match=r"a: device cuda:1, expected cuda:0"):
        kernel(a.to("cuda:1"), b.to("cuda:1"))


def test_compiled_code_that_replays_graphs_holds_a_kernel(kernel, operands):
    compiled = torch.compile(lambda a, b: kernel(a, b).relu(), fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        for a, b in operands:
            torch.testing.assert_close(compiled(a, b), (a @ b).relu(), **CLOSE)
    torch.compiler.reset()
