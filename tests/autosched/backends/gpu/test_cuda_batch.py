"""Launches laid out together, and as a CUDA graph, with a driver that writes down what it is asked."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from autosched.backends.backend import PlacedLaunch

fake = pytest.importorskip("fake_cuda_driver", reason="needs cuda-bindings")
cuda_launch = pytest.importorskip("autosched.backends.gpu.launch", reason="needs cuda-bindings")
tensor_maps = pytest.importorskip("autosched.backends.gpu.tensor_maps", reason="needs cuda-bindings")
PROGRAM, FIRST, SECOND, CUBINS, MAPPED = fake.PROGRAM, fake.FIRST, fake.SECOND, fake.CUBINS, fake.MAPPED


@pytest.fixture
def driver(monkeypatch):
    return fake.installed(monkeypatch)


def batch_of_two(driver) -> Any:
    """The program twice: on bases 0, 1 and 2, then on 256 bytes into each, with memory of base 3 for workspaces."""
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    size = launcher.workspace_bytes(prepared=False)
    return launcher.batch(
        [PlacedLaunch(launcher, tuple((n, 256 * i) for n in range(3)), (3, size * i)) for i in range(2)]
    )


def bases() -> list[torch.Tensor]:
    return [torch.empty(128), torch.empty(128), torch.empty(128), torch.empty(100_000)]


def test_a_batch_launches_what_its_launches_would_one_after_the_other(driver):
    batch, given = batch_of_two(driver), [t.data_ptr() for t in bases()]
    batch(given)
    launched, cleared = driver.launches[:], driver.cleared[:]
    driver.launches.clear()
    driver.cleared.clear()
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    for i in range(2):
        launcher.launch([address + 256 * i for address in given[:3]])
    for one, other in zip(launched, driver.launches, strict=True):
        assert replace(one, cluster=0, parameters=[]) == replace(other, cluster=0, parameters=[])
    assert [x.parameters[:2] for x in launched[::2]] == [x.parameters[:2] for x in driver.launches[::2]]
    assert [x.parameters[0] for x in launched[1::2]] == [x.parameters[0] for x in driver.launches[1::2]]
    assert [x.parameters[3:] for x in launched] == [x.parameters[3:] for x in driver.launches]
    assert [(size, value) for _, value, size in cleared] == [(256, 0), (512, 0)] * 2
    assert [at for at, _, _ in cleared[::2]] == [given[2], given[2] + 256]


def test_workspaces_of_a_batch_lie_in_the_memory_that_it_is_given(driver):
    batch, given = batch_of_two(driver), bases()
    batch([t.data_ptr() for t in given])
    launched = driver.launches[:2], driver.launches[2:]
    (one, again), (other, _) = ((first.parameters[2], second.parameters[1]) for first, second in launched)
    begin, size = given[3].data_ptr(), batch.launchers[0].workspace_bytes(prepared=False)
    assert begin <= one == again < begin + size <= other < begin + 2 * size


@pytest.mark.parametrize("as_graph", [False, True])
def test_a_launch_with_prepared_constants_runs_the_other_kernels_on_these(driver, as_graph):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    # As if the first kernel prepared the workspace.
    launcher.called, launcher.layout.prepared, launcher.layout.zeroed = (1,), (3,), launcher.layout.zeroed[:1]
    batch = launcher.batch([PlacedLaunch(launcher, ((0, 0), (1, 0), (2, 0)), (3, 0), ((4, 0),))])
    call = batch.graph() if as_graph else batch
    for tensors in ([*bases(), torch.empty(128)], [*bases(), torch.empty(128)]):
        given = [t.data_ptr() for t in tensors]
        driver.launches.clear()
        call(given)
        assert [(x.function, x.parameters[:2]) for x in driver.launches] == [("second", [given[2], given[4]])]


def test_a_batch_is_called_with_new_addresses_and_on_new_streams(driver):
    batch, first, second = batch_of_two(driver), bases(), bases()
    for given, stream in ((first, 0), (second, 0xABC), (first, 0xABC)):
        driver.stream = stream
        batch([t.data_ptr() for t in given])
    assert [x.parameters[0] for x in driver.launches[::4]] == [t[0].data_ptr() for t in (first, second, first)]
    assert [x.stream for x in driver.launches] == [0] * 4 + [0xABC] * 8


def test_a_descriptor_of_a_batch_is_a_map_of_the_tensor_of_the_call(driver):
    driver.parameter_counts["first"] = 8
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (MAPPED,))
    found = []

    def watched(config, function, parameters, extra):
        pointers = (ctypes.c_void_p * 8).from_address(parameters)
        found.append(ctypes.c_uint64.from_address(pointers[1]).value)
        sizes = [ctypes.c_uint64.from_address(p).value for p in pointers[2:6]]
        assert sizes == [4, 16, 24, 1]
        return 0

    driver.launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(watched)
    batch = launcher.batch([PlacedLaunch(launcher, ((0, 0), (1, 0), (2, 0)), (3, 0))])
    calls = [bases(), bases()]
    for given in (*calls, calls[0]):
        batch([t.data_ptr() for t in given])
    assert found == [t[0].data_ptr() for t in (*calls, calls[0])]


def test_a_map_is_looked_up_only_where_its_tensor_has_moved(driver, monkeypatch):
    usual, found = tensor_maps.EncodedMaps.at, []
    monkeypatch.setattr(
        tensor_maps.EncodedMaps, "at", lambda maps, address: found.append(address) or usual(maps, address)
    )
    driver.parameter_counts["first"] = 8
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (MAPPED,))
    batch = launcher.batch([PlacedLaunch(launcher, ((0, 0), (1, 0), (2, 0)), (3, 0))])
    tensors = bases(), bases()
    one, other = ([t.data_ptr() for t in given] for given in tensors)
    batch(one)
    batch([one[0], *other[1:]])
    assert found == [one[0]]
    batch(other)
    assert found == [one[0], other[0]]


def test_a_batch_that_the_driver_refuses_raises_its_words_and_the_next_one_runs(driver):
    batch, given = batch_of_two(driver), [t.data_ptr() for t in bases()]
    driver.failures.append(driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS: said the driver"):
        batch(given)
    assert driver.launches == []
    batch(given)
    assert len(driver.launches) == 4


def test_a_batch_in_a_thread_without_a_context_gets_the_launchers(driver):
    batch, given = batch_of_two(driver), [t.data_ptr() for t in bases()]
    driver.failures.append(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
    batch(given)
    assert (driver.contexts_set, len(driver.launches)) == (1, 4)


def test_threads_may_call_a_batch_at_the_same_time(driver):
    batch, calls = batch_of_two(driver), [bases() for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda given: batch([t.data_ptr() for t in given]), calls))
    found = sorted(tuple(x.parameters[:2]) for x in driver.launches if x.function == "first")
    wanted = [(a.data_ptr() + n, b.data_ptr() + n) for a, b, *_ in calls for n in (0, 256)]
    assert found == sorted(wanted)


def enqueued(driver) -> tuple[list[Any], list[Any]]:
    """Launches and clears since the last time, streams aside."""
    found = [replace(x, stream=0) for x in driver.launches], driver.cleared[:]
    driver.launches.clear()
    driver.cleared.clear()
    return found


def test_a_graph_of_a_batch_launches_what_the_batch_does_wherever_its_bases_are(driver):
    batch = batch_of_two(driver)
    graph = batch.graph()
    tensors = bases(), bases()
    one, other = ([t.data_ptr() for t in given] for given in tensors)
    moved = [one[0], other[1], one[2], one[3]]
    for call, given in enumerate((one, one, other, moved, one)):
        batch(given)
        wanted = enqueued(driver)
        driver.stream = 0xABC
        graph(given)
        assert {x.stream for x in driver.launches} == {0xABC}
        assert enqueued(driver) == wanted
        driver.stream = 0
        assert driver.graphs_launched == call + 1


def test_a_descriptor_of_a_graph_follows_its_tensor(driver):
    driver.parameter_counts["first"] = 8
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (MAPPED,))
    graph = launcher.batch([PlacedLaunch(launcher, ((0, 0), (1, 0), (2, 0)), (3, 0))]).graph()
    calls = [bases(), bases()]
    for given in (*calls, calls[0]):
        graph([t.data_ptr() for t in given])
    # The first word of a map.
    assert [x.parameters[1] for x in driver.launches] == [t[0].data_ptr() for t in (*calls, calls[0])]


def test_a_graph_changes_only_the_nodes_whose_bases_have_moved(driver):
    graph = batch_of_two(driver).graph()
    tensors = bases(), bases()
    one, other = ([t.data_ptr() for t in given] for given in tensors)
    graph(one)
    graph(one)
    assert driver.patched == []
    # The output: it is cleared first, and the second kernel writes it.
    graph([*one[:2], other[2], one[3]])
    assert len(driver.patched) == 4
    graph([other[0], one[1], other[2], one[3]])
    assert len(driver.patched) == 6


def test_a_graph_that_the_driver_refuses_is_launched_as_a_batch_from_then_on(driver, caplog):
    graph, given = batch_of_two(driver).graph(), [t.data_ptr() for t in bases()]
    driver.cuGraphInstantiate = lambda *_: (driver.CUresult.CUDA_ERROR_NOT_SUPPORTED,)
    for _ in range(2):
        graph(given)
    assert (len(driver.launches), driver.graphs_launched) == (8, 0)
    assert driver.graphs_destroyed == 1
    assert [r.getMessage() for r in caplog.records] == [
        "2 launches are no CUDA graph: CUDA_ERROR_NOT_SUPPORTED: said the driver"
    ]


def test_a_node_that_is_refused_raises_and_is_set_again_by_the_next_call(driver):
    batch = batch_of_two(driver)
    graph = batch.graph()
    tensors = bases(), bases()
    one, other = ([t.data_ptr() for t in given] for given in tensors)
    graph(one)
    usual, driver.cuGraphExecKernelNodeSetParams = (
        driver.cuGraphExecKernelNodeSetParams,
        lambda *_: (driver.CUresult.CUDA_ERROR_INVALID_VALUE,),
    )
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE: said the driver"):
        graph(other)
    driver.cuGraphExecKernelNodeSetParams = usual
    enqueued(driver)
    batch(other)
    wanted = enqueued(driver)
    graph(other)
    assert enqueued(driver) == wanted


def test_threads_may_call_a_graph_at_the_same_time(driver):
    graph, calls = batch_of_two(driver).graph(), [bases() for _ in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda given: graph([t.data_ptr() for t in given]), calls))
    found = sorted(tuple(x.parameters[:2]) for x in driver.launches if x.function == "first")
    wanted = [(a.data_ptr() + n, b.data_ptr() + n) for a, b, *_ in calls for n in (0, 256)]
    assert found == sorted(wanted)


@pytest.mark.parametrize(("early", "expected"), [(True, [False, True, False, True]), (False, [False] * 4)])
def test_kernels_begin_early_after_kernels_alone(driver, monkeypatch, early, expected):
    """Not after what sets memory to zero, and not first of all."""
    from autosched.backends.gpu import batch

    kernels = [replace(kernel, waits=True) for kernel in (FIRST, SECOND)]
    launcher, seen = cuda_launch.CudaLauncher(PROGRAM, CUBINS, kernels), []

    def launched(kernel, early):
        seen.append(early)
        return cuda_launch.launch_of(kernel, early)

    monkeypatch.setattr(batch, "launch_of", launched)
    placed = PlacedLaunch(launcher, ((0, 0), (1, 0), (2, 0)), (3, 0), early=early)
    launcher.batch([placed, placed])([t.data_ptr() for t in bases()])
    assert seen == expected
    assert launcher.layout.zeroed
