"""What a search starts from: records of other shapes, devices and kernels, of its own log, of others, of what ships."""

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

# Of what ships, at most some 300 records of one workload, fewer are looked through: they are read for this alone.
_MOST_SHIPPED = MOST_LOOKED_THROUGH // 2
# What stands for the name of a log where records ship.
SHIPPED = "shipped"


@dataclass(frozen=True)
class WarmStart:
    """Successful records of elsewhere, most alike first, and the log that each of them is from, as text.

    `unused` are logs that were named and have nothing to say here.
    """

    records: tuple[TuningRecord, ...] = ()
    logs: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def of_sketches(self, names: Collection[str]) -> WarmStart:
        """Without the schedules of other sketches, which no space has: nothing can be made of them."""
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
    """Successful records measured elsewhere, or of kernels that are no longer made, timed alike: most alike first.

    They come from `log`, but for `known`, the good ones there of `op` on `target`, which are no history; from the other
    logs of `sources`; and from those that ship, records of `op` on such a device included: it was another device of
    that name. What several logs hold counts once. Of CPUs nothing is learnt for GPUs, nor the other way: they have
    other schedules, and on CPUs a model of an H200's records ranked most first trials worse than chance.
    """
    kernels = Counter(map(_kernel, known))
    once: dict[object, tuple[str, TuningRecord]] = {}
    # What is named beside it may be the log itself, called otherwise.
    others = [other for other in sources.others if other.path.resolve() != log.path.resolve()]
    for name, record in _held((log, *others), op, target, policy, kernels.total()):
        here = name == str(log.path) and record.key == (op.key, target.key)
        if not (here and _kernel(record) in kernels):
            once.setdefault((record.key, *_kernel(record), record.measurement.latencies_s), (name, record))
    records = telling(nearest((record for _, record in once.values()), op, target, MOST_LOOKED_THROUGH))
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
    """The nearest records of every log, the first one that of the search, and of what ships; with their names.

    The `known` records are the nearest of all, and no history: so many more are looked through.
    """
    for each in logs:
        found = each.nearest(op, target, MOST_LOOKED_THROUGH + known, policy)
        yield from ((str(each.path), record) for record in found)
    shipped = [path for path in shipped_logs() if path != logs[0].path and may_hold(path, None, policy)]
    yield from ((SHIPPED, record) for record in nearest_packed(shipped, op, target, _MOST_SHIPPED, policy))
