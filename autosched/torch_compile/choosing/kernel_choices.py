"""Other kernels of the log in a segment, and another cut of it: the finals of a search, in place.

The segment is timed with the rivals of one kernel after the other, from the most expensive one on; at last with the
kernels of another cut, if that takes little longer by the sum of its kernels.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from autosched.kernels.kernel import Kernel
from autosched.replaying.rivals import MARGIN
from autosched.torch_compile.choosing.place import Place, latencies_of_cuts, noted, ratios_of, right
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.identity import wiring
from tuning_logs import TuningRecord
from tuning_logs.alternative import Alternative

_DIGITS = 16

# The rivals of a kernel, loaded one after the other.
Rivals = Callable[[Kernel], Iterable[Kernel]]


def with_rivals(kernel: TracedKernel, place: Place, rivals: Rivals) -> tuple[TracedKernel, list[TuningRecord]]:
    """The segment by its fastest kernels in place, noted in their records; and the records of those that they replace.

    Only of kernels whose records have no rival yet, until the deadline.
    """
    replaced: list[TuningRecord] = []
    launches = Counter(w.key for w in kernel.traced.launched)
    seconds = {key: n * kernel.by_key[key].record.measurement.latency_s for key, n in launches.items()}
    for key in sorted(seconds, key=seconds.__getitem__, reverse=True):
        if place.deadline.over:
            break
        if kernel.by_key[key].record.measurement.rival is None and not kernel.calls_of(key):
            kernel, before = _with_rival(kernel, key, place, rivals)
            replaced += before
    return kernel, replaced


def _with_rival(
    kernel: TracedKernel, key: str, place: Place, rivals: Rivals
) -> tuple[TracedKernel, list[TuningRecord]]:
    own, best, tried = kernel.by_key[key], kernel, list[Alternative]()
    for rival in rivals(own):
        source = rival.record.measurement.source
        assert source is not None
        made = best.with_kernels({key: rival})
        if (found := place.timed(source, best, made)) is not None:
            tried.append(found)
            best = made if found.taken else best
        if place.deadline.over:
            break
    if not tried:
        return kernel, []
    choice = next((c for c in reversed(tried) if c.taken), None) or max(tried, key=lambda c: c.ratio)
    launched, before = (noted(k, replace(k.record.measurement, rival=choice)) for k in (best.by_key[key], own))
    return best.with_kernels({key: launched}), [before.record] if choice.taken else []


def with_cut(kernel: TracedKernel, place: Place) -> TracedKernel:
    """The segment in its fastest cut in place, of two: the fastest by the sum of its kernels, which then has a note of
    the other one, and the present or the next one.
    """
    ratios = ratios_of(kernel)
    (usual_s, usual), *others = latencies_of_cuts(kernel, ratios)
    near = [cut for seconds, cut in others if cut is kernel.traced or seconds <= MARGIN * usual_s]
    if not near or not usual.workloads or place.deadline.over or noted_cut(kernel) is not None:
        return kernel
    other = kernel.traced if kernel.traced in near else near[0]
    first, second = (right(kernel.with_library(ratios, cut)) for cut in (usual, other))
    if first is None or second is None or (found := place.timed(_name(usual, other), first, second)) is None:
        return kernel
    key = usual.workloads[0].key
    known = kernel.by_key[key]
    note = noted(known, known.record.measurement.with_cut(found))
    return (second if found.taken else first).with_kernels({key: note})


def noted_cut(kernel: TracedKernel) -> tuple[Alternative, TracedFunction] | None:
    """The other cut that the log names in addition to the fastest one by the sum of its kernels."""
    return _noted(kernel, latencies_of_cuts(kernel, ratios_of(kernel))[0][1])


def taken_cut(kernel: TracedKernel, usual: TracedFunction) -> TracedFunction:
    """The cut that models launch where this one is the fastest by the sum of its kernels."""
    found = _noted(kernel, usual)
    return found[1] if found is not None and found[0].taken else usual


def _noted(kernel: TracedKernel, usual: TracedFunction) -> tuple[Alternative, TracedFunction] | None:
    notes = kernel.by_key[usual.workloads[0].key].record.measurement.cuts if usual.workloads else ()
    known = {note.name: note for note in notes}
    return next(((known[name], cut) for cut in kernel.cuts if (name := _name(usual, cut)) in known), None)


def _name(usual: TracedFunction, other: TracedFunction) -> str:
    """A digest of both cuts: those of other functions may begin with the same kernel, and two may have equal ones."""
    wired = [[*wiring(cut)] for cut in (usual, other)]
    return hashlib.sha256(repr(wired).encode()).hexdigest()[:_DIGITS]
