"""Kernels of a segment in whose place a library's one call is faster: timed once, noted in the log, and taken.

Each is timed against the library's call by itself, and then the segment with all calls that are faster beyond noise
against the segment without: a call between launches costs more than a launch.
"""

from __future__ import annotations

import logging
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from autosched.baselines.library_calls import LibraryCall, is_as_precise
from autosched.checking.random_inputs import random_inputs
from autosched.kernels.kernel import Kernel
from autosched.kernels.library_check import why_no_library
from autosched.machine.timing import interleaved, timer_for
from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.others import Call
from autosched.torch_compile.timing_parts import rounds_of_segment
from autosched.tracing import TracedKernel, UncheckedWarning
from search_spaces import AutoschedError, Workload
from tuning_logs import TuningRecord
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.library_choice import LibraryChoice
from tuning_logs.text import first_line

# As many as makers of segments are timed in: the interval of the median ratio is some percent wide.
_ROUNDS = 20
_SEED = 0
_log = logging.getLogger(__name__)


def with_chosen(kernel: TracedKernel) -> TracedKernel:
    """The kernels, but for those in whose place records have a library's call that is right here."""
    ratios: dict[str, float] = {}
    choices = [each.record.measurement.library for each in kernel.by_key.values()]
    if not any(choice is not None and choice.taken for choice in choices):
        return kernel
    for workload, each, call in kernel.replaceable:
        choice = each.record.measurement.library
        if choice is not None and choice.taken and choice.name == call.name and _is_usable(workload, each, call):
            ratios[workload.key] = choice.ratio
    return (_right(_with_calls(kernel, ratios)) if ratios else None) or kernel


@dataclass(frozen=True)
class Chosen:
    """A segment's kernels with the calls that are taken; `records`: those to be noted, by the keys of workloads."""

    kernel: TracedKernel
    records: Mapping[str, TuningRecord]


def chosen(kernel: TracedKernel, alone: Callable[[TracedKernel], Call]) -> Chosen:
    """Choose between kernel and library for every workload, in any cut, whose record has no choice yet.

    `alone`: the segment as it is called with such kernels.
    """
    timed = {w.key: (k, choice) for w, k, call in kernel.replaceable if (choice := _compared(w, k, call)) is not None}
    faster = {key: choice.ratio for key, (_, choice) in timed.items() if choice.is_faster}
    own = {w.key for w in kernel.traced.workloads}
    # With all calls another cut may be the fastest; if it is not, those of this cut may still be faster.
    tried = [faster, {key: ratio for key, ratio in faster.items() if key in own}]
    found = next((made for each in tried if (made := _faster(kernel, alone, each)) is not None), None)
    called = {w.key for w in found.traced.workloads if found.calls_of(w.key)} if found is not None else set()
    records = {}
    for key, (each, choice) in timed.items():
        measured = replace(each.record.measurement, library=replace(choice, taken=key in called))
        records[key] = replace(each.record, measurement=measured)
    return Chosen((found or kernel).noted(records), records)


def _faster(
    kernel: TracedKernel, alone: Callable[[TracedKernel], Call], ratios: Mapping[str, float]
) -> TracedKernel | None:
    """A segment with calls in the place of these workloads' kernels, if it is faster than without, beyond noise."""
    made = _right(_with_calls(kernel, ratios)) if ratios else None
    if made is None or not made.by_library:
        return None
    rounds = rounds_of_segment(kernel, {"before": alone(kernel), "after": alone(made)})
    if isinstance(rounds, str):
        _log.info("%s is not timed with calls of libraries: %s", kernel.traced.label, rounds)
        return None
    interval = ratio_interval(rounds["before"], rounds["after"])
    return made if interval is not None and interval.low > 1 else None


def _with_calls(kernel: TracedKernel, ratios: Mapping[str, float]) -> TracedKernel:
    """Calls in the place of these workloads' kernels and of those before, in the cut that should then be the fastest.

    `ratios`: latencies of kernels by those of the calls, by the keys of workloads.
    """
    known = {key: each.record.measurement for key, each in kernel.by_key.items()}
    before = {key: m.library.ratio for key, m in known.items() if key in kernel.library and m.library is not None}
    ratios = {**before, **ratios}
    seconds = {key: m.latency_s / ratios.get(key, 1.0) for key, m in known.items()}
    return kernel.with_library(ratios, min(kernel.cuts, key=lambda cut: cut.latency_s(seconds)))


def _right(kernel: TracedKernel) -> TracedKernel | None:
    """Itself, if it computes the function: another cut may never have been compared with it here."""
    try:
        with warnings.catch_warnings():
            # What cannot be compared was said of the cut before.
            warnings.simplefilter("ignore", UncheckedWarning)
            kernel.ensure_right()
    except AutoschedError as error:
        _log.info("%s is not computed in another cut: %s", kernel.traced.label, first_line(error))
        return None
    return kernel


def _is_usable(workload: Workload, kernel: Kernel, call: LibraryCall) -> bool:
    latency_s = kernel.record.measurement.latency_s
    return (
        is_as_precise(workload, kernel.target, call)
        and why_no_library(workload, kernel.target, call, latency_s) is None
    )


def _compared(workload: Workload, kernel: Kernel, call: LibraryCall) -> LibraryChoice | None:
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
    ratio, interval = paired_ratio(*samples), ratio_interval(*samples)
    assert interval is not None
    found = LibraryChoice(call.name, ratio, interval.low, interval.high, taken=False)
    usable = not found.is_faster or why_no_library(workload, kernel.target, call, statistics.median(samples[1])) is None
    return found if usable else None


def _samples(kernel: Kernel, call: LibraryCall, inputs: Sequence[Tensor]) -> tuple[list[float], list[float]]:
    """Seconds of the kernel and of the call in interleaved rounds."""
    begins = [0] * len(inputs)
    runs = {"kernel": lambda: kernel(*inputs), "library": lambda: call.compute(inputs, begins)}
    taken = interleaved(runs, _ROUNDS, timer_for(kernel.target, "hot"))
    return taken["kernel"], taken["library"]
