"""Timing: order, repeats and caches."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autosched
import best_spaces
from autosched.machine.deadline import Deadline
from autosched.machine.devices import cpu_target, gpu_target
from autosched.machine.policies import Policy, check_timing, policy_text
from autosched.machine.timing import (
    CpuTimer,
    GraphTimer,
    NeighbourProbe,
    Run,
    Timer,
    WatchedTimer,
    activations_of,
    graph_launches,
    interleaved,
    timer_for,
)
from autosched.measuring import LocalMeasurer
from search_spaces import InputError, Target, ops, target_named
from search_spaces.workloads.stages import Tensor
from tuning_logs import TuningLog

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class FakeTimer:
    """Calls everything and says that every call took as long as it is late in the sequence."""

    def __init__(self) -> None:
        self.calls = 0

    def sample(self, runs: Sequence[Run]) -> list[float]:
        found = []
        for run in runs:
            run()
            self.calls += 1
            found.append(float(self.calls))
        return found


def test_interleaving_calls_each_once_before_and_starts_every_round_with_another() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    found = interleaved(calls, 4, FakeTimer())
    assert "".join(order) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert found == {"a": [1.0, 6.0, 8.0, 10.0], "b": [2.0, 4.0, 9.0, 11.0], "c": [3.0, 5.0, 7.0, 12.0]}


def test_after_a_deadline_there_are_few_rounds() -> None:
    timer, calls = FakeTimer(), {"a": lambda: None, "b": lambda: None}
    deadline = Deadline(9.5, lambda: float(timer.calls))
    assert [len(taken) for taken in interleaved(calls, 20, timer, deadline, 3).values()] == [5, 5]
    assert [len(taken) for taken in interleaved(calls, 20, timer, deadline, 3).values()] == [3, 3]


def test_interleaving_nothing_gives_nothing() -> None:
    assert interleaved({}, 3, FakeTimer()) == {}


@pytest.mark.parametrize("policy", ["cold", "hot"])
def test_a_sleep_takes_as_long_as_it_sleeps(policy: Policy) -> None:
    timer = timer_for(cpu_target(), policy)
    found = timer.sample([lambda: time.sleep(2e-3), lambda: time.sleep(5e-3)])
    assert found[0] >= 2e-3
    assert 5e-3 <= found[1] < 1.0


def test_a_hot_sample_of_a_tiny_call_is_the_mean_of_many() -> None:
    # Of several, since other processes may have the core during one.
    samples = []
    for _ in range(5):
        calls: list[int] = []
        (found,) = CpuTimer(2**20, "hot").sample([partial(calls.append, 1)])
        samples.append((len(calls), found))
    assert max(n for n, _ in samples) > 20
    assert min(seconds for _, seconds in samples) < 20e-6


def test_a_cold_sample_is_a_single_call() -> None:
    calls = []
    CpuTimer(2**20, "cold").sample([lambda: calls.append(1)])
    assert len(calls) == 1


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("policy", ["cold", "hot", "model"])
def test_the_time_of_a_copy_on_a_gpu_is_that_of_its_bytes_and_of_nothing_else(policy: Policy) -> None:
    """Launches from Python take longer than these 4 MiB take to copy; the device must not be seen waiting for them."""
    target = gpu_target()
    source = torch.ones(2**20, device="cuda")
    copy = torch.empty_like(source)
    copy.copy_(source)
    found = statistics.median(timer_for(target, policy).sample([lambda: copy.copy_(source)] * 50))
    least_s = 2 * source.nbytes / target.memory_bytes_per_s
    assert (0 if policy == "hot" else 0.9 * least_s) < found < least_s + 8e-6


def test_an_unknown_policy_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(
        InputError, match=r"unknown timing policy 'cool'; did you mean 'cold'\? \(allowed: cold, graph, hot, model\)"
    ):
        timer_for(cpu_target(), "cool")  # type: ignore[arg-type]  # no policy, on purpose


def test_a_cold_sample_sweeps_twice_the_l2_of_every_core_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's threads share a sweep, so that each empties the L2 of its own core only in part."""
    two = dataclasses.replace(cpu_target(), threads=2)
    swept: list[int] = []
    original = torch.Tensor.add_
    monkeypatch.setattr(torch.Tensor, "add_", lambda x, y: swept.append(x.nbytes) or original(x, y))
    timer_for(two, "cold").sample([lambda: None])
    assert swept == [2 * 2 * two.l2_bytes]


def test_graphs_are_refused_on_a_cpu_and_named_as_allowed_on_a_gpu() -> None:
    with pytest.raises(InputError, match=r"'graph' launches CUDA graphs, got a CPU .*; allowed: cold, hot"):
        check_timing("graph", cpu_target())
    check_timing("graph", target_named("h200"))
    with pytest.raises(InputError, match="unknown timing policy 'graf'; did you mean 'graph'"):
        check_timing("graf", target_named("h200"))


def test_policies_read_as_words() -> None:
    assert [policy_text(p) for p in ("cold", "hot", "graph", "model")] == [
        "cold caches",
        "hot caches",
        "hot caches in a CUDA graph",
        "activations in the caches and weights in memory",
    ]


class Operation(TorchDispatchMode):
    """Notes every operator with the data of its first argument, and computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.overloadpacket.__name__, args[0].data_ptr()))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.bool])
def test_as_within_a_model_activations_are_read_after_the_flush_and_weights_are_not(dtype: torch.dtype) -> None:
    operands = [Tensor("x", (8,), "float32"), Tensor("w", (8,), "float32", constant=True)]
    x, w = torch.zeros(8, dtype=dtype), torch.zeros(8)
    timer = timer_for(cpu_target(), "model", activations=lambda: activations_of(operands, [x, w]))
    with Operation() as noted:
        timer.sample([lambda: x.clone()])
    last = [(name, pointer) for name, pointer in noted.seen if name in ("add_", "sum", "clone")][-3:]
    assert [name for name, _ in last] == ["add_", "sum", "clone"]
    assert last[1][1] == x.data_ptr()
    assert w.data_ptr() not in {pointer for _, pointer in noted.seen}


def test_a_search_times_as_within_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def noted(target: Target, policy: Policy, *, products: bool, activations: Callable[[], Sequence[Any]]) -> Timer:
        seen.append([policy, *(str(tuple(x.shape)) for x in activations())])
        return timer_for(target, policy, products=products, activations=activations)

    monkeypatch.setattr("autosched.comparing.compare.timer_for", noted)
    weight, log = torch.randn(16, 8), tmp_path / "log.jsonl"
    traced = autosched.trace(lambda x: x @ weight, torch.randn(4, 16))
    result = autosched.tune(traced, "cpu", trials=1, log=log, policy="model")
    autosched.compare_kernel(result.kernel, policy="model", rounds=1, baselines=())
    assert {r.provenance.policy for r in TuningLog(log)} == {"model"}
    assert seen == [["model", "(4, 16)"]]


@pytest.mark.parametrize("latency_s", [0.0, 1e-6, 2e-6, 175e-6, 1e-2])
def test_a_graph_is_long_beside_its_own_start_and_never_much_longer_than_a_call(latency_s: float) -> None:
    launches = graph_launches(latency_s)
    assert 1 <= launches <= 501
    if latency_s:
        assert 0.5e-3 <= launches * latency_s <= 0.5e-3 + latency_s


def test_the_slowdown_of_every_round_is_kept() -> None:
    class Slowing(FakeTimer):
        @property
        def slowdown(self) -> float:
            return 1.0 + self.calls

    watched = WatchedTimer(Slowing())
    interleaved({"a": lambda: None, "b": lambda: None}, 3, watched)
    assert watched.slowdowns == [3.0, 5.0, 7.0]


@pytest.mark.gpu
@needs_gpu
def test_a_launch_out_of_a_graph_takes_no_longer_than_a_hot_one() -> None:
    x = torch.ones(2**16, device="cuda")
    calls: list[int] = []

    def run() -> None:
        calls.append(1)
        x.mul_(1.0)

    def median(timer: Timer) -> float:
        return statistics.median(timer.sample([run] * 20))

    run()
    hot = median(timer_for(gpu_target(), "hot"))
    calls.clear()
    graph = median(timer_for(gpu_target(), "graph"))
    assert 0.2e-6 < graph < hot
    # Captured once for all samples, and not called again to replay.
    assert 50 < len(calls) <= 510


@pytest.mark.gpu
@needs_gpu
def test_a_graph_runs_what_was_captured_as_often_as_it_says() -> None:
    x = torch.zeros(64, device="cuda")
    timer = GraphTimer(gpu_target().l2_bytes)
    x.add_(1)
    x.zero_()
    timer.sample([lambda: x.add_(1)])
    # Two replays, one of them untimed, of the same number of calls; before them two hot calls and one to set up.
    assert (int(x[0]) - 3) % 2 == 0
    assert int(x[0]) > 100


@pytest.mark.gpu
@needs_gpu
def test_every_contender_of_a_comparison_can_be_captured(tmp_path: Path) -> None:
    op, log = ops.matmul(256, 256, 256, dtype="bfloat16", epilogue="bias_gelu"), tmp_path / "log.jsonl"
    result = autosched.tune(op, trials=8, log=log, policy="graph")
    assert result.best is not None
    assert result.best.provenance.policy == "graph"
    table = autosched.compare(op, log=log, policy="graph", rounds=8)
    measured = [row for row in table.rows if row.predicted_s is None and not row.note.startswith("not")]
    assert all(len(row.latencies_s) == 8 for row in measured)
    graph, cold = table.rows[0].median_s, autosched.compare_kernel(autosched.replay(op, log=log, policy="graph"))
    assert graph < 2 * cold.rows[0].median_s


needs_affinity = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)


def allowed_cores(pid: int | str) -> set[str]:
    """The lists of cores that the threads of a process may run on."""
    found = set()
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        found.add(lines["Cpus_allowed_list"])
    return found


@needs_affinity
def test_every_thread_of_the_measuring_worker_stays_on_the_core_that_is_measured() -> None:
    op = ops.softmax(32, 32)
    space = best_spaces.build(op, cpu_target())
    with LocalMeasurer(cpu_target()) as measurer:
        (measurement,) = measurer.measure(op, [space.sample(np.random.default_rng(0))])
        worker = measurer.pids[0]
        assert measurement.ok
        assert len(list(Path(f"/proc/{worker}/task").iterdir())) >= 1
        assert allowed_cores(worker) == {str(max(os.sched_getaffinity(0)))}


THREADED = """
import dataclasses, os, sys
from pathlib import Path
os.sched_setaffinity(0, {int(sys.argv[1])})
import best_spaces
import torch
from autosched import backends
from autosched.backends.build import build
from autosched.machine.devices import cpu_target
from search_spaces import ops
target = dataclasses.replace(cpu_target(), threads=3)
space = best_spaces.build(ops.gelu_scale(2**16), target)
schedule = next(s for s in space if s.program.kernels[0].grid.tiles >= 3)
(backend,) = backends.for_target(target)
launcher = backend.load(build(schedule.program, schedule.one_line, target, backend), schedule.program)
before = len(list(Path("/proc/self/task").iterdir()))
launcher([torch.ones(2**16), torch.empty(2**16)])
threads = list(Path("/proc/self/task").iterdir())
assert len(threads) > before, "the kernel ran on the calling thread alone"
masks = [line for t in threads for line in (t / "status").read_text().splitlines() if "Cpus_allowed_list" in line]
print({m.split()[1] for m in masks})
"""


@needs_affinity
def test_the_threads_of_a_kernel_inherit_the_cores_of_the_one_that_calls_it() -> None:
    core = max(os.sched_getaffinity(0))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", THREADED, str(core)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str({str(core)}), done.stderr


class Beside(NeighbourProbe):
    """A probe on a core whose neighbour is always busy."""

    def slowdown(self) -> float:
        return 2.0


@pytest.mark.parametrize(("products", "slowdown"), [(True, 2.0), (False, 2.0**0.4)])
def test_products_feel_all_of_a_busy_neighbour_and_streams_a_part_of_it(products: bool, slowdown: float) -> None:
    timer = CpuTimer(2**20, "cold", Beside(products))
    timer.sample([lambda: None])
    assert timer.slowdown == pytest.approx(slowdown)
