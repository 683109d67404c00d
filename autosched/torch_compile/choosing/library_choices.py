"""Kernels of a segment in whose place a library's one call is faster.

Each is timed against the library's call by itself, and then the segment with all calls that are faster beyond noise
against the segment without: a call between launches costs more than a launch.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from autosched.baselines.library_calls import LibraryCall, is_as_precise
from autosched.checking.random_inputs import random_inputs
from autosched.kernels.kernel import Kernel
from autosched.kernels.library_check import why_no_library
from autosched.machine.timing import interleaved, timer_for
from autosched.torch_compile.choosing.place import Place, latencies_of_cuts, noted, ratios_of, right
from autosched.torch_compile.graphs import on_data
from autosched.tracing import TracedKernel
from search_spaces import AutoschedError, Workload
from tuning_logs.alternative import Alternative
from tuning_logs.text import first_line

# As many as makers of segments are timed in: the interval of the median ratio is some percent wide.
_ROUNDS = 20
_SEED = 0
_log = logging.getLogger(__name__)


def usable_ratios(kernel: TracedKernel) -> dict[str, float]:
    """The ratios of calls that records have in the place of kernels and that are right, by the keys of workloads."""
    found: dict[str, float] = {}
    for workload, each, call in kernel.replaceable:
        choice = each.record.measurement.library
        if choice is not None and choice.taken and choice.name == call.name and _is_usable(workload, each, call):
            found[workload.key] = choice.ratio
    return found


def with_libraries(kernel: TracedKernel, place: Place) -> TracedKernel:
    """The segment with the libraries' calls that are faster in place, noted in the records of all that were timed."""
    timed = {w.key: choice for w, k, call in kernel.replaceable if (choice := _compared(w, k, call)) is not None}
    found = _with_calls(kernel, place, {key: choice.ratio for key, choice in timed.items() if choice.is_faster})
    known = {key: kernel.by_key[key] for key in timed}
    choices = {key: replace(choice, taken=found.calls_of(key) > 0) for key, choice in timed.items()}
    made = {key: noted(k, replace(k.record.measurement, library=choices[key])) for key, k in known.items()}
    return found.with_kernels(made)


def _with_calls(kernel: TracedKernel, place: Place, faster: Mapping[str, float]) -> TracedKernel:
    """A segment with calls in the place of these workloads' kernels, if it is faster than without, beyond noise.

    `faster`: latencies of kernels by those of the calls, by the keys of workloads. With all calls another cut may be
    the fastest; if it is not, those of this cut may still be faster.
    """
    ratios = {**ratios_of(kernel), **faster}
    fastest = latencies_of_cuts(kernel, ratios)[0][1]
    cuts = [fastest] if fastest is kernel.traced else [fastest, kernel.traced]
    for cut in cuts if faster else ():
        made = right(kernel.with_library(ratios, cut))
        if made is None or made.by_library.keys() == kernel.by_library.keys():
            continue
        found = place.timed("calls of libraries", kernel, made)
        if found is not None and found.taken:
            return made
    return kernel


def _is_usable(workload: Workload, kernel: Kernel, call: LibraryCall) -> bool:
    latency_s = kernel.record.measurement.latency_s
    return (
        is_as_precise(workload, kernel.target, call)
        and why_no_library(workload, kernel.target, call, latency_s) is None
    )


def _compared(workload: Workload, kernel: Kernel, call: LibraryCall) -> Alternative | None:
    """The comparison of a kernel with a library's call; None where there is a choice already, or no such call here."""
    if kernel.record.measurement.library is not None or not is_as_precise(workload, kernel.target, call):
        return None
    called = kernel.called_as(workload)
    try:
        with on_data(), torch.no_grad():
            samples = _samples(called, call, random_inputs(workload, _SEED, kernel.device))
    except (AutoschedError, RuntimeError) as error:
        # What a library does not support, it refuses by a RuntimeError.
        _log.info("%s is not timed by %s: %s: %s", workload.label, call.name, type(error).__name__, first_line(error))
        return None
    found = Alternative.timed(call.name, *samples)
    assert found is not None
    usable = not found.is_faster or why_no_library(workload, kernel.target, call, statistics.median(samples[1])) is None
    return found if usable else None


def _samples(kernel: Kernel, call: LibraryCall, inputs: Sequence[Tensor]) -> tuple[list[float], list[float]]:
    """Seconds of the kernel and of the call in interleaved rounds."""
    begins = [0] * len(inputs)
    runs = {"kernel": lambda: kernel(*inputs), "library": lambda: call.compute(inputs, begins)}
    taken = interleaved(runs, _ROUNDS, timer_for(kernel.target, "hot"))
    return taken["kernel"], taken["library"]
