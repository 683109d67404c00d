"""Measurement of a model by several ways: accuracy, time to the first result, memory, launches, time of a call."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from autosched.bench.models.expected import Expected, reference
from autosched.bench.models.names import WayName
from autosched.bench.models.suite import ModelCase
from autosched.bench.models.ways import WayOptions, run_by
from autosched.machine.timing import Run, interleaved, mean_seconds
from autosched.torch_compile.reports import GraphReport
from autosched.torch_compile.user_models import Model
from tuning_logs.text import first_line

Call = Callable[[], Any]
# Calls of a sample take at least this long together: starting and waiting for a device costs some 20 µs.
_SHORTEST_SAMPLE_S = 20e-3
_NO_LIMIT = 1 << 30


@dataclass(frozen=True)
class WayRow:
    """A way, measured: seconds of a call in every round, seconds to the first result, and bytes at the peak of a call.

    `error`: of the results, as a multiple of eager's. `launches`: kernels on a GPU during a call. `reports`: what
    autosched says of every graph. `why_not`: the reason that nothing was timed.
    """

    way: WayName
    latencies_s: tuple[float, ...] = ()
    first_s: float = 0.0
    error: float = 0.0
    peak_bytes: int = 0
    launches: int = 0
    reports: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def median_s(self) -> float:
        return statistics.median(self.latencies_s)


@dataclass(frozen=True)
class ModelRow:
    """A model by all ways, in their order; or the reason that it cannot be made, called or timed."""

    name: str
    ways: tuple[WayRow, ...] = ()
    why_not: str = ""


def measured(case: ModelCase, ways: Sequence[WayName], options: WayOptions, rounds: int) -> ModelRow:
    """The model by every way: each compared with float64, then all of them timed in interleaved rounds."""
    torch.manual_seed(0)
    # What this process compiled before counts against Dynamo's limit; the ways of one model need more than it allows.
    torch.compiler.reset()
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=_NO_LIMIT, accumulated_recompile_limit=_NO_LIMIT):
        try:
            model, inputs = case.made()
            expected = Expected(model(*inputs), reference(model, inputs))
        except Exception as error:
            # Whatever the user's function and model raise.
            return ModelRow(case.name, why_not=_why(error))
        calls: dict[WayName, Call] = {}
        rows = [_prepared(way, model, inputs, options, expected, calls) for way in ways]
        try:
            samples = interleaved({str(way): call for way, call in calls.items()}, rounds, BackToBackTimer())
        except Exception as error:
            return ModelRow(case.name, why_not=f"while it was timed: {_why(error)}")
    return ModelRow(case.name, tuple(_with(row, samples.get(row.way, [])) for row in rows))


def _prepared(
    way: WayName,
    model: Model,
    inputs: list[Any],
    options: WayOptions,
    expected: Expected,
    calls: dict[WayName, Call],
) -> WayRow:
    """The row of a way without its times; `calls` gets its call, unless it fails or is wrong."""
    begin, reports = time.perf_counter(), list[GraphReport]()
    try:
        call = run_by(way, model, inputs, options, reports.append)
        results = call()
        _wait()
        first_s = time.perf_counter() - begin
        error, wrong = expected.error_of(results), expected.why_wrong(results)
        if wrong:
            return WayRow(way, (), first_s, error, reports=tuple(map(str, reports)), why_not=f"wrong results: {wrong}")
        # CUDA graphs of torch.compile are captured at the second call.
        call(), call()
        row = WayRow(way, (), first_s, error, peak_bytes(call), launches(call), tuple(map(str, reports)))
    except Exception as error:
        return WayRow(way, why_not=_why(error))
    calls[way] = call
    return row


def _with(row: WayRow, latencies: Sequence[float]) -> WayRow:
    return dataclasses.replace(row, latencies_s=tuple(latencies))


def _why(error: Exception) -> str:
    """The error in one line; of a backend's, which Dynamo wraps in lines of its own, the backend's own."""
    own = getattr(error, "inner_exception", error)
    return f"{type(own).__name__}: {first_line(own)}"


class BackToBackTimer:
    """Wall time of calls back to back, launches from the host included, as a program that runs a model sees it."""

    slowdown = 1.0

    def sample(self, runs: Sequence[Run]) -> list[float]:
        return [mean_seconds(partial(_seconds, run), _SHORTEST_SAMPLE_S) for run in runs]


def _seconds(run: Run, calls: int) -> float:
    _wait()
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    _wait()
    return time.perf_counter() - begin


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_bytes(call: Call) -> int:
    """Bytes of a GPU that PyTorch has in use at the peak of a call, beyond those before it; 0 on a CPU."""
    if not torch.cuda.is_available():
        return 0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    _wait()
    return torch.cuda.max_memory_allocated() - before


def launches(call: Call) -> int:
    """Kernels that a GPU runs in a call; 0 on a CPU."""
    if not torch.cuda.is_available():
        return 0
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        _wait()
    events = (e for e in profiler.events() or () if e.device_type == DeviceType.CUDA)
    return sum(not e.name.startswith(("Memcpy", "Memset")) for e in events)
