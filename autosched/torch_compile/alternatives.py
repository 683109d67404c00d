"""Alternatives to the kernels of a segment that are faster in place: timed once, noted in the log, and taken.

Rivals of its kernels come first, then calls of libraries in their place, and then another cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.kernels.kernel import Kernel
from autosched.torch_compile.kernel_choices import Rivals, taken_cut, with_cut, with_rivals
from autosched.torch_compile.library_choices import usable_ratios, with_libraries
from autosched.torch_compile.place import Place, latencies_of_cuts, right
from autosched.tracing import TracedKernel
from tuning_logs import TuningRecord

# Part of the time for rivals, of which each takes about a second to load and to time; comparisons with libraries take
# milliseconds, and gain more where a search ended early.
_RIVALS = 0.5


def with_chosen(kernel: TracedKernel) -> TracedKernel:
    """The kernels, in the cut, and with the libraries' calls, that their records name and that are right here."""
    known = [each.record.measurement.alternatives.values() for each in kernel.by_key.values()]
    if not any(alternative.taken for alternatives in known for alternative in alternatives):
        return kernel
    ratios = usable_ratios(kernel)
    cut = taken_cut(kernel, latencies_of_cuts(kernel, ratios)[0][1])
    return kernel if not ratios and cut is kernel.traced else right(kernel.with_library(ratios, cut)) or kernel


@dataclass(frozen=True)
class Chosen:
    """A segment with the alternatives that are taken.

    `kernels`: those with new records, by the keys of workloads; `replaced`: the records of those that are not launched.
    """

    kernel: TracedKernel
    kernels: Mapping[str, Kernel]
    replaced: tuple[TuningRecord, ...]


def chosen(kernel: TracedKernel, place: Place, rivals: Rivals) -> Chosen:
    """Choose among the alternatives for every workload, in any cut, whose record has none yet."""
    found, replaced = with_rivals(kernel, place.part(_RIVALS), rivals)
    found = with_cut(with_libraries(found, place), place)
    kernels = {key: k for key, k in found.by_key.items() if k.record is not kernel.by_key[key].record}
    return Chosen(found, kernels, tuple(replaced))
