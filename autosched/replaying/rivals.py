"""Rivals of the best kernel of a log: others of the same search, of which one may be faster within a model.

A search times each kernel by itself, with cold caches. Within a model its operands may lie in the L2, its neighbours
overlap with it, and the clocks are others: what is some percent slower alone may then be faster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from autosched.backends.reproduction import Reproduction
from autosched.kernels.kernel import Kernel, load_kernel
from search_spaces import AutoschedError
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.packing import may_hold
from tuning_logs.ranking import standing
from tuning_logs.text import first_line

# Rivals by one kernel: each takes about a second to load and to time.
_MOST = 2
# Latency of a rival, at most, as a multiple of the best: in a segment kernels rarely change places over more.
MARGIN = 1.15
_log = logging.getLogger(__name__)


def rivals_of(kernel: Kernel, paths: Sequence[Path]) -> Iterator[Kernel]:
    """The fastest kernels next to the best one of these logs, loaded one after the other."""
    return (rival for record in _rivals(kernel.record, paths) if (rival := _loaded(record, kernel)) is not None)


def in_models(best: Kernel, paths: Sequence[Path]) -> Kernel:
    """The kernel that models launch: the best one of these logs, or the rival that its record names."""
    measured = best.record.measurement
    if measured.rival is None or not measured.rival.taken or measured.rival.name == measured.source:
        return best
    name, made = measured.rival.name, Reproduction()
    named = (r for r in _of_one_search(best.record, paths) if r.measurement.source == name and made.is_exact(r))
    # The log may have been cut short since.
    found = next(named, None)
    return (found and _loaded(found, best)) or best


def _loaded(record: TuningRecord, best: Kernel) -> Kernel | None:
    try:
        return load_kernel(record, best.workload)
    except AutoschedError as error:
        _log.info("%s: a rival is not loaded: %s", best.workload.label, first_line(error))
        return None


def _rivals(best: TuningRecord, paths: Sequence[Path]) -> list[TuningRecord]:
    made, found = Reproduction(), dict[str | None, TuningRecord]()
    for record in sorted(_of_one_search(best, paths), key=lambda r: r.measurement.latency_s):
        measured = record.measurement
        if len(found) == _MOST or measured.latency_s > MARGIN * best.measurement.latency_s:
            break
        if measured.source not in {None, best.measurement.source, *found} and made.is_exact(record):
            found[measured.source] = record
    return list(found.values())


def _of_one_search(best: TuningRecord, paths: Sequence[Path]) -> list[TuningRecord]:
    """The latest successes of every schedule, of the finals of the best one, or trials if there were none."""
    policy, finals = best.provenance.policy, best.provenance.finals
    logs = [TuningLog(path) for path in paths if may_hold(path, best.workload, policy)]
    tried = [r for log in logs for r in standing(log.records(best.workload, best.target, policy))]
    return [r for r in tried if r.measurement.ok and r.provenance.finals == finals]
