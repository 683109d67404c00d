"""What a search starts from: records of other shapes, other devices, other versions, and those that ship."""

from __future__ import annotations

from search_spaces import Target, Workload
from tuning_logs import Provenance, TuningLog, TuningRecord, shipped_logs
from tuning_logs.packed_log import may_hold, nearest_packed
from tuning_logs.selection import nearest

# Enough to train a cost model, few enough to do it in a second.
_MOST_RECORDS = 512


def history(log: TuningLog, op: Workload, target: Target, origin: Provenance) -> list[TuningRecord]:
    """Successful records measured elsewhere, with the timing policy of `origin`: most alike first.

    They come from `log`, but for what `origin`'s generator has measured there of `op` on `target`, which is no history;
    and from the logs that ship, those of `op` on such a device included: it was another device of that name.
    """
    here = (op.key, target.key, origin.generator)
    found = [r for r in log.nearest(op, target, _MOST_RECORDS) if (*r.key, r.provenance.generator) != here]
    shipped = [path for path in shipped_logs() if path != log.path and may_hold(path, None, origin.policy)]
    found += nearest_packed(shipped, op, target, _MOST_RECORDS)
    timed_alike = (r for r in found if r.provenance.policy == origin.policy)
    return nearest(timed_alike, op, target, _MOST_RECORDS)
