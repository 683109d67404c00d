"""Timing of calls on a device: with cold caches, with hot ones, in a CUDA graph, or as within a model.

Cold (L2 flush): before every timed call a buffer twice as large as the L2 is overwritten, so that operands come from
memory. On a CPU that is the L2 of every core in use, and operands come from the L3 where they fit: it is shared, with
strangers in a cloud, and so large that flushing it would take longer than the calls. Hot: the call is repeated on the
present contents of the caches. Graph: hot as well, and launched from a CUDA graph of many calls, which leaves the cost
of a launch out. Model: cold, but that the activations are read after the flush and before the call: as within a model,
where the kernel before has just written them, and the weights come from memory.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol

import torch

from autosched.machine.deadline import NEVER, Deadline
from autosched.machine.element_types import sum_of_bits
from autosched.machine.policies import Policy, check_timing
from search_spaces import Target

Run = Callable[[], object]
FlushPolicy = Literal["cold", "hot"]

# Sweeping a cache's size once does not flush it: pages are scattered over its sets, the L2 of a large GPU is hashed and
# in two parts, and neither evicts strictly the oldest line. Twice does.
_SWEEPS = 2
# A hot sample is at least this long: the clock and the call from Python take about 0.2 µs.
_SHORTEST_SAMPLE_S = 50e-6
# L2 flushes queued before the first timed launch of a GPU: the host gets ahead of the device, so that gaps between
# launches are not measured. About 0.5 ms of work; where the host fell behind, on a busy machine or with calls of many
# launches, 2 ms, then 8 ms. With hot caches, where no flush delays the device between launches, one more for every
# launch.
_LEADS = (16, 64, 256)
# Length of a graph: starting it takes some 5 µs, which are then 1 %, and events resolve 0.5 µs.
_GRAPH_S = 0.5e-3
# Least latency of a launch: the device needs about 1 µs to start the smallest kernel.
_SHORTEST_LAUNCH_S = 1e-6


def _nothing() -> None:
    """No preparation before a call."""


class Timer(Protocol):
    """Times calls one after the other on one device."""

    @property
    def slowdown(self) -> float:
        """Slowdown of the device, against its best, while the last sample was taken; 1 is undisturbed."""
        ...

    def sample(self, runs: Sequence[Run]) -> list[float]:
        """Seconds of each call, in the order given. The calls must have run before: nothing is initialised now."""
        ...


class NeighbourProbe:
    """Probe for slowdowns of this core: a neighbour on the same physical core, or a lower clock.

    Cores of a virtual machine are often threads of one physical core, shared with strangers: arithmetic then takes up
    to twice as long, for seconds at a time. A short calculation whose operands stay in the caches is timed against its
    best time so far: a matrix product for workloads that consist of one, exponentials for others.

    `share` is the part of the slowdown that reaches a kernel, as an exponent: all of it for products, less than half
    for kernels that mostly wait for memory: with a busy neighbour, exponentials in the cache took 1.60 times as long,
    softmax 1.27 times and gelu 1.17 times, which is 1.60 to the power of 0.5 and 0.3.
    """

    # Times within this factor of the best count as undisturbed: clocks alone differ by as much.
    SLACK = 1.15
    _SIZE = 128
    _SHARE_OF_STREAMS = 0.4

    def __init__(self, products: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(self._SIZE, self._SIZE, generator=generator) for _ in range(2))
        out = torch.empty(self._SIZE, self._SIZE)
        self._call: Run = (lambda: torch.mm(a, b, out=out)) if products else (lambda: torch.exp(a, out=out))
        self.share = 1.0 if products else self._SHARE_OF_STREAMS
        self._best_s = min(_seconds(self._call, 1) for _ in range(100))

    def slowdown(self) -> float:
        # Median of three: the first may find its operands evicted from the caches.
        taken = statistics.median(_seconds(self._call, 1) for _ in range(3))
        self._best_s = min(self._best_s, taken)
        return taken / self._best_s


class CpuTimer:
    """Wall time. A sample with hot caches is the mean of as many calls as make it 50 µs long.

    With a `probe`, a sample during which the core was disturbed is repeated. Waiting for a quiet moment may take a
    third of all time, and up to 0.5 s at once; if the core is still disturbed then, the smallest sample counts: a
    disturbance only slows. `l2_bytes` is that of all cores in use, which are flushed together. `before` and `after` are
    called, untimed, before and after every flush.
    """

    _MOST_PATIENCE_S = 0.5
    _PATIENCE_PER_SECOND = 0.5

    def __init__(
        self,
        l2_bytes: int,
        policy: FlushPolicy,
        probe: NeighbourProbe | None = None,
        before: Run = _nothing,
        after: Run = _nothing,
    ) -> None:
        self._swept = torch.zeros(_SWEEPS * l2_bytes // 4, dtype=torch.int32) if policy == "cold" else None
        self._probe = probe
        self._before, self._after = before, after
        self._patience_s = self._MOST_PATIENCE_S
        self._patient_at = time.perf_counter()
        self.slowdown = 1.0

    def sample(self, runs: Sequence[Run]) -> list[float]:
        if self._probe is None:
            return [self._once(run) for run in runs]
        taken = [self._undisturbed(run, self._probe) for run in runs]
        latencies = [seconds for seconds, _ in taken]
        corrected = [seconds / slowdown for seconds, slowdown in taken]
        self.slowdown = statistics.median(latencies) / statistics.median(corrected) if taken else 1.0
        return latencies

    def _undisturbed(self, run: Run, probe: NeighbourProbe) -> tuple[float, float]:
        """Seconds of a call, and its slowdown by disturbances of the core."""
        begin = time.perf_counter()
        earned = (begin - self._patient_at) * self._PATIENCE_PER_SECOND
        self._patience_s = min(self._patience_s + earned, self._MOST_PATIENCE_S)
        taken, retried = (math.inf, 1.0), begin
        try:
            while True:
                before, out_of_patience = probe.slowdown(), retried - begin >= self._patience_s
                if before <= probe.SLACK or out_of_patience:
                    seconds = self._once(run)
                    slowdown = (before + probe.slowdown()) / 2
                    taken = min(taken, (seconds, slowdown**probe.share))
                    if slowdown <= probe.SLACK:
                        return seconds, 1.0
                    if out_of_patience:
                        return taken
                retried = time.perf_counter()
        finally:
            self._patience_s -= retried - begin
            self._patient_at = time.perf_counter()

    def _once(self, run: Run) -> float:
        return self._hot(run) if self._swept is None else self._cold(run, self._swept)

    def _cold(self, run: Run, swept: torch.Tensor) -> float:
        self._before()
        swept.add_(1)
        self._after()
        return _seconds(run, 1)

    @staticmethod
    def _hot(run: Run) -> float:
        return mean_seconds(partial(_seconds, run), _SHORTEST_SAMPLE_S)


class GpuTimer:
    """Time between two CUDA events around each call; all calls are queued, then the device is waited for once.

    `before` and `after` are queued, untimed, before and after every flush.
    """

    slowdown = 1.0

    def __init__(self, l2_bytes: int, policy: FlushPolicy, before: Run = _nothing, after: Run = _nothing) -> None:
        self._swept = torch.zeros(_SWEEPS * l2_bytes // 4, dtype=torch.int32, device="cuda")
        self._policy = policy
        self._before, self._after = before, after

    def sample(self, runs: Sequence[Run]) -> list[float]:
        latencies: list[float] = []
        for lead in _LEADS:
            latencies, ahead = self._queued(runs, lead)
            if ahead:
                break
        return latencies

    def _queued(self, runs: Sequence[Run], lead: int) -> tuple[list[float], bool]:
        """Seconds of each call after so many flushes; True if the host queued each before the device came to it."""
        pairs = [(_event(), _event()) for _ in runs]
        ahead = True
        for _ in range(lead if self._policy == "cold" else lead + len(runs)):
            self._swept.zero_()
        for run, (start, end) in zip(runs, pairs, strict=True):
            if self._policy == "cold":
                self._before()
                self._swept.zero_()
                self._after()
            else:
                run()
            start.record()
            run()
            ahead &= not start.query()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e-3 for start, end in pairs], ahead


class GraphTimer:
    """Time of a CUDA graph of many calls, divided by their number.

    A graph reads and writes the tensors of the captured calls: it is captured anew for every sample, which takes about
    a millisecond, so that a call is timed on its present tensors.
    """

    slowdown = 1.0

    def __init__(self, l2_bytes: int) -> None:
        self._hot = GpuTimer(l2_bytes, "hot")
        # One for all captures: libraries keep a workspace for every stream that they ever saw. PyTorch leaves streams
        # and events without types.
        self._side = torch.cuda.Stream()

    def sample(self, runs: Sequence[Run]) -> list[float]:
        distinct = list(dict.fromkeys(runs))
        launches = dict(zip(distinct, map(graph_launches, self._hot.sample(distinct)), strict=True))
        graphs = {run: self._captured(run, launches[run]) for run in distinct}
        taken = self._hot.sample([graphs[run].replay for run in runs])
        return [seconds / launches[run] for run, seconds in zip(runs, taken, strict=True)]

    def _captured(self, run: Run, launches: int) -> torch.cuda.CUDAGraph:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            # Per-stream initialisation, such as the workspace of cuBLAS, must not happen while capturing.
            run()
            # Not through `torch.cuda.graph`, which first gives all cached memory back to the device.
            graph.capture_begin()
            try:
                for _ in range(launches):
                    run()
            finally:
                graph.capture_end()
        current.wait_stream(self._side)
        return graph


class WatchedTimer:
    """A timer that keeps the slowdown of every sample it takes."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self.slowdowns: list[float] = []

    @property
    def slowdown(self) -> float:
        return self._timer.slowdown

    def sample(self, runs: Sequence[Run]) -> list[float]:
        latencies = self._timer.sample(runs)
        self.slowdowns.append(self._timer.slowdown)
        return latencies


def graph_launches(latency_s: float) -> int:
    """Number of calls of that latency for a graph so long that its own start does not count."""
    return max(1, math.ceil(_GRAPH_S / max(latency_s, _SHORTEST_LAUNCH_S)))


def cold_timer(target: Target, before: Run) -> Timer:
    """The timer with cold caches; `before` is called, untimed, ahead of each call."""
    if target.kind == "gpu":
        return GpuTimer(_l2_bytes(), "cold", before)
    return CpuTimer(target.l2_bytes * target.threads, "cold", before=before)


def timer_for(
    target: Target,
    policy: Policy,
    *,
    products: bool = False,
    activations: Callable[[], Iterable[torch.Tensor]] = tuple,
    patient: bool = True,
) -> Timer:
    """The timer of a target on this machine.

    `products`: for workloads that compute matrix products. `activations`: the present inputs of the calls but for
    weights; the policy "model" reads them before every call. `patient`: on one core of a CPU, it waits for a quiet
    moment.

    Raises:
        InputError: no such policy, or not on such a target.
    """
    check_timing(policy, target)
    if policy == "graph":
        return GraphTimer(_l2_bytes())
    flushed: FlushPolicy = "hot" if policy == "hot" else "cold"
    after = partial(_read, activations) if policy == "model" else _nothing
    if target.kind == "gpu":
        return GpuTimer(_l2_bytes(), flushed, after=after)
    # The probe covers one core only.
    probe = NeighbourProbe(products) if patient and target.threads == 1 else None
    return CpuTimer(target.l2_bytes * target.threads, flushed, probe, after=after)


class Operand(Protocol):
    """A tensor as a workload, or a traced function, declares it."""

    @property
    def constant(self) -> bool:
        """True of weights."""
        ...


def activations_of(operands: Sequence[Operand], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors whose operands are no weights."""
    return [tensor for operand, tensor in zip(operands, tensors, strict=True) if not operand.constant]


def _read(tensors: Callable[[], Iterable[torch.Tensor]]) -> None:
    """Load tensors into the caches."""
    for tensor in tensors():
        # Not every element type has sums.
        sum_of_bits(tensor)


def _l2_bytes() -> int:
    """As the device reports it: for a card in several versions, or partitioned (MIG), the target has the usual one."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


def interleaved(
    callables: Mapping[str, Run], rounds: int, timer: Timer, deadline: Deadline = NEVER, least: int = 1
) -> dict[str, list[float]]:
    """Seconds of every call in each of `rounds` interleaved rounds, by name; after the deadline in `least` of them.

    Every round times each of them once, starting with another one each time, so that slow drifts (clocks, power,
    neighbours) affect all alike. Each is called once before, untimed.
    """
    names = list(callables)
    for run in callables.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        if number >= least and deadline.over:
            break
        first = number % max(1, len(names))
        order = names[first:] + names[:first]
        for name, taken in zip(order, timer.sample([callables[n] for n in order]), strict=True):
            seconds[name].append(taken)
    return seconds


def mean_seconds(seconds: Callable[[int], float], shortest_s: float) -> float:
    """Mean latency of as many calls as take `shortest_s` together; `seconds` times so many."""
    calls = 1
    while (taken := seconds(calls)) < shortest_s:
        # A fifth more than seem needed: the calls before also warmed the caches.
        calls = max(2 * calls, math.ceil(1.2 * calls * shortest_s / max(taken, 1e-7)))
    return taken / calls


def _event() -> torch.cuda.Event:
    # Without types, as streams are.
    return torch.cuda.Event(enable_timing=True)


def _seconds(run: Run, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) * 1e-9
