"""The place of a segment in its graph, in which alternatives to its kernels are timed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autosched.kernels.kernel import Kernel
from autosched.machine.deadline import NEVER, Deadline
from autosched.torch_compile.choosing.timing_parts import rounds_of_segment
from autosched.torch_compile.fallback import Call
from autosched.tracing import TracedFunction, TracedKernel, UncheckedWarning
from search_spaces import AutoschedError
from tuning_logs import Measurement
from tuning_logs.alternative import Alternative
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """A segment of a graph. `launched`: its call with such kernels, launched as the whole graph is."""

    launched: Callable[[TracedKernel], Call]
    deadline: Deadline = NEVER

    def part(self, part: float) -> Place:
        """The same with a part of the time left."""
        return replace(self, deadline=self.deadline.part(part))

    def timed(self, name: str, kernel: TracedKernel, other: TracedKernel) -> Alternative | None:
        """The comparison of two ways to compute the segment, the other one taken where it is faster beyond noise.

        None where they cannot be timed.
        """
        calls = {"without": self.launched(kernel), "given": self.launched(other)}
        rounds = rounds_of_segment(kernel, calls, self.deadline)
        if isinstance(rounds, str):
            _log.info("%s is not timed with %s: %s", kernel.traced.label, name, rounds)
            return None
        found = Alternative.timed(name, rounds["without"], rounds["given"])
        return None if found is None else replace(found, taken=found.is_faster)


def noted(kernel: Kernel, measurement: Measurement) -> Kernel:
    """The kernel with another measurement in its record."""
    return kernel.noted(replace(kernel.record, measurement=measurement))


def right_or_as_written(kernel: TracedKernel) -> TracedKernel:
    """Itself, or, where rewritten kernels do not compute the function, those of the fastest cut without rewrites."""
    if not kernel.traced.rewrites or right(kernel) is not None:
        return kernel
    return kernel.as_written("its kernels do not compute the function here") or kernel


def right(kernel: TracedKernel) -> TracedKernel | None:
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


def latencies_of_cuts(kernel: TracedKernel, ratios: Mapping[str, float]) -> list[tuple[float, TracedFunction]]:
    """The cuts of a function with the sums of their launches in seconds, fastest first.

    `ratios`: latencies of kernels by those of the libraries' calls in their place, by the keys of workloads.
    """
    seconds = {key: k.record.measurement.latency_s / ratios.get(key, 1.0) for key, k in kernel.by_key.items()}
    return sorted(((cut.latency_s(seconds), cut) for cut in kernel.cuts), key=lambda each: each[0])


def ratios_of(kernel: TracedKernel) -> dict[str, float]:
    """The ratios of the libraries' calls that are taken in the place of its kernels, by the keys of workloads."""
    known = {key: kernel.by_key[key].record.measurement.library for key in kernel.library}
    return {key: choice.ratio for key, choice in known.items() if choice is not None and choice.taken}
