"""Alternatives to the kernels of a segment that are faster in place: timed once, noted in the log, and taken.

Rivals of its kernels come first, then calls of libraries in their place, then another cut, and then early launches.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from autosched.kernels.kernel import Kernel
from autosched.machine.deadline import Deadline
from autosched.replaying.replay import log_paths
from autosched.replaying.rivals import rivals_of
from autosched.torch_compile.choosing.early_launches import with_early_launches
from autosched.torch_compile.choosing.kernel_choices import Rivals, taken_cut, with_cut, with_rivals
from autosched.torch_compile.choosing.library_choices import usable_ratios, with_libraries
from autosched.torch_compile.choosing.place import Place, latencies_of_cuts, right
from autosched.torch_compile.fallback import Call
from autosched.torch_compile.graphs import on_data, why_failed
from autosched.torch_compile.kernel_cache import note
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import Segment
from autosched.tracing import TracedKernel
from search_spaces import LogError
from tuning_logs import TuningRecord

# Part of the time for rivals, of which each takes about a second to load and to time; comparisons with libraries take
# milliseconds, and gain more where a search ended early.
_RIVALS = 0.5
_log = logging.getLogger(__name__)


def with_alternatives(
    kind: Kind,
    segments: Sequence[Segment],
    kernels: Mapping[str, TracedKernel | str],
    alone: Callable[[Segment, TracedKernel], Call],
    log: str | os.PathLike[str] | None,
    deadline: Deadline,
) -> Mapping[str, TracedKernel | str]:
    """The kernels of a graph's segments, or alternatives where these are faster, noted in the log, until the deadline.

    `alone`: a segment by its kernels, launched as the whole graph is.
    """
    made, new, replaced = dict(kernels), dict[str, Kernel](), list[TuningRecord]()
    rivals = partial(rivals_of, paths=log_paths(log))
    for number, segment in enumerate(segments):
        share = deadline.part(1 / (len(segments) - number))
        if not isinstance(kernel := kernels[segment.key], TracedKernel) or share.over:
            continue
        try:
            # What is chosen for one segment is for all. Kernels have tensors that the graph closes over.
            with on_data():
                known = with_chosen(kernel.with_kernels(new)) if new else kernel
                found = chosen(known, Place(partial(alone, segment), share), rivals)
        except Exception as error:
            # A user's model runs all the same, by the kernels as they are.
            _log.info("no alternative to %s: %s", kernel.traced.label, why_failed(kind, error))
            continue
        made[segment.key] = found.kernel
        new |= found.kernels
        replaced += found.replaced
    if not new:
        return made
    with on_data():
        made = {key: k.with_kernels(new) if isinstance(k, TracedKernel) else k for key, k in made.items()}
    try:
        functions = [k for k in made.values() if isinstance(k, TracedKernel)]
        note(functions, [*replaced, *(k.record for k in new.values())], log)
    except LogError as error:
        # The next process chooses again.
        _log.warning("choices of alternatives are not in the log: %s", error)
    return made


def with_chosen(kernel: TracedKernel) -> TracedKernel:
    """The kernels, in the cut, and with the libraries' calls, that their records name and that are right here."""
    known = [each.record.measurement.alternatives for each in kernel.by_key.values()]
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
    found = with_early_launches(with_cut(with_libraries(found, place), place), place)
    kernels = {key: k for key, k in found.by_key.items() if k.record is not kernel.by_key[key].record}
    return Chosen(found, kernels, tuple(replaced))
