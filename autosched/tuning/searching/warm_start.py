"""Warm start of a search: records of other shapes, devices and kernels, from its own log, others, and shipped ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from autosched.tuning.searching.parts import Log
from autosched.tuning.searching.sources import Sources
from search_spaces import Target
from tuning_logs import Subject, TuningRecord, shipped_logs
from tuning_logs.packing import may_hold
from tuning_logs.selection import MOST_LOOKED_THROUGH, nearest, telling
from tuning_logs.storage.packed_log import nearest_packed

# Shipped records, at most some 300 of one workload; fewer of them are looked through, as they are read for this alone.
_MOST_SHIPPED = MOST_LOOKED_THROUGH // 2
# Name of the source of shipped records.
SHIPPED = "shipped"


@dataclass(frozen=True)
class WarmStart:
    """Successful records from elsewhere, most similar first, and the log of each of them, as text.

    `unused` are logs that were named and have no usable record.
    """

    records: tuple[TuningRecord, ...] = ()
    logs: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def of_sketches(self, names: Collection[str]) -> WarmStart:
        """Without the schedules of other sketches, which no space has and which therefore cannot be used."""
        kept = [(r, log) for r, log in zip(self.records, self.logs, strict=True) if r.schedule.sketch in names]
        left = {log for _, log in kept}
        idle = dict.fromkeys(log for log in self.logs if log not in left)
        return WarmStart(tuple(r for r, _ in kept), tuple(log for _, log in kept), (*self.unused, *idle))


def history(
    log: Log,
    op: Subject,
    target: Target,
    policy: str,
    known: Iterable[TuningRecord],
    sources: Sources,
) -> WarmStart:
    """Successful records measured elsewhere, or of kernels that are no longer made, timed alike: most similar first.

    They come from `log`, except `known`, the exact ones there of `op` on `target`, which are no history; from the other
    logs of `sources`; and from shipped ones, records of `op` on such a device included: it was another device of that
    name. Records that are in several logs count once. GPUs do not learn from CPUs, nor the other way round: they have
    other schedules, and on CPUs a model of an H200's records ranked most first trials worse than chance.
    """
    kernels = Counter(map(_kernel, known))
    once: dict[object, tuple[str, TuningRecord]] = {}
    # A named log may be the log itself, by another path.
    others = [other for other in sources.others if other.path.resolve() != log.path.resolve()]
    for name, record in _held((log, *others), op, target, policy, kernels.total()):
        here = name == str(log.path) and record.key == (op.key, target.key)
        if not (here and _kernel(record) in kernels):
            once.setdefault((record.key, *_kernel(record), record.measurement.latencies_s), (name, record))
    records = telling(nearest((record for _, record in once.values()), op, target, MOST_LOOKED_THROUGH), sources.most)
    # By identity: hashing records whole takes longer than finding them.
    log_of = {id(record): name for name, record in once.values()}
    logs = tuple(log_of[id(record)] for record in records)
    named = {name for name, _ in once.values()}
    return WarmStart(tuple(records), logs, tuple(n for o in others if (n := str(o.path)) not in named))


def _kernel(record: TuningRecord) -> tuple[object, ...]:
    return record.schedule, record.measurement.source


def _held(
    logs: Sequence[Log], op: Subject, target: Target, policy: str, known: int
) -> Iterator[tuple[str, TuningRecord]]:
    """The nearest records of every log, the first one that of the search, and of shipped ones; with their names.

    The `known` records are the nearest of all, and no history: so many more are looked through.
    """
    for each in logs:
        found = each.nearest(op, target, MOST_LOOKED_THROUGH + known, policy)
        yield from ((str(each.path), record) for record in found)
    shipped = [path for path in shipped_logs() if path != logs[0].path and may_hold(path, None, policy)]
    yield from ((SHIPPED, record) for record in nearest_packed(shipped, op, target, _MOST_SHIPPED, policy))
