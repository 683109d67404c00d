"""Kernels of a segment in whose place a library's one call is faster: timed once, noted in the log, and taken.

Each is timed against the library's call by itself, and then the segment with all calls that are faster beyond noise
against the segment without: a call between launches costs more than a launch.
"""

from __future__ import annotations

import logging
import statistics
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
from autosched.tracing import TracedKernel
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
    taken = set()
    for workload, each, call in kernel.replaceable:
        choice = each.record.measurement.library
        if choice is not None and choice.taken and choice.name == call.name and _is_usable(workload, each, call):
            taken.add(workload.key)
    return kernel.with_library(taken) if taken else kernel


@dataclass(frozen=True)
class Chosen:
    """A segment's kernels with the calls that are taken; `records`: those to be noted, by the keys of workloads."""

    kernel: TracedKernel
    records: Mapping[str, TuningRecord]


def chosen(kernel: TracedKernel, alone: Callable[[TracedKernel], Call]) -> Chosen:
    """Choose between kernel and library for every workload whose record has no choice yet.

    `alone`: the segment as it is called with such kernels.
    """
    timed = {w.key: (k, choice) for w, k, call in kernel.replaceable if (choice := _compared(w, k, call)) is not None}
    faster = {key for key, (_, choice) in timed.items() if choice.is_faster}
    after = kernel.with_library(faster)
    taken = bool(faster) and _is_faster(kernel, alone(kernel), alone(after))
    records = {}
    for key, (each, choice) in timed.items():
        measured = replace(each.record.measurement, library=replace(choice, taken=taken and choice.is_faster))
        records[key] = replace(each.record, measurement=measured)
    return Chosen((after if taken else kernel).noted(records), records)


def _is_faster(kernel: TracedKernel, before: Call, after: Call) -> bool:
    """True if a segment is faster than before, beyond noise."""
    rounds = rounds_of_segment(kernel, {"before": before, "after": after})
    if isinstance(rounds, str):
        _log.info("%s is not timed with calls of libraries: %s", kernel.traced.label, rounds)
        return False
    interval = ratio_interval(rounds["before"], rounds["after"])
    return interval is not None and interval.low > 1


def _is_usable(workload: Workload, kernel: Kernel, call: LibraryCall) -> bool:
    latency_s = kernel.record.measurement.latency_s
    return is_as_precise(workload, kernel.target) and why_no_library(workload, kernel.target, call, latency_s) is None


def _compared(workload: Workload, kernel: Kernel, call: LibraryCall) -> LibraryChoice | None:
    """The comparison of a kernel with a library's call; None where there is a choice already, or no such call here."""
    if kernel.record.measurement.library is not None or not is_as_precise(workload, kernel.target):
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
