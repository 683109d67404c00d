"""What a search starts from: records of other shapes, devices and kernels, and those that ship."""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces import Target, Workload
from tuning_logs import TuningLog, TuningRecord, shipped_logs
from tuning_logs.packed_log import nearest_packed
from tuning_logs.packing import may_hold
from tuning_logs.selection import nearest

# Enough to train a cost model, few enough to do it in a second.
_MOST_RECORDS = 512


def history(
    log: TuningLog, op: Workload, target: Target, policy: str, known: Iterable[TuningRecord]
) -> list[TuningRecord]:
    """Successful records measured elsewhere, or of kernels that are no longer made, timed alike: most alike first.

    They come from `log`, but for `known`, the good ones there of `op` on `target`, which are no history; and from the
    logs that ship, those of `op` on such a device included: it was another device of that name.
    """
    kernels = {(r.schedule, r.measurement.source) for r in known}
    found = [
        r
        for r in log.nearest(op, target, _MOST_RECORDS)
        if r.key != (op.key, target.key) or (r.schedule, r.measurement.source) not in kernels
    ]
    shipped = [path for path in shipped_logs() if path != log.path and may_hold(path, None, policy)]
    found += nearest_packed(shipped, op, target, _MOST_RECORDS)
    timed_alike = (r for r in found if r.provenance.policy == policy)
    return nearest(timed_alike, op, target, _MOST_RECORDS)
