"""Records that searches for other devices write to the same log meanwhile, such as those of a fleet's other cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from autosched.tuning.searching.parts import Log
from search_spaces import Target
from tuning_logs import Subject, TuningRecord
from tuning_logs.selection import MOST_LOOKED_THROUGH


class Listening:
    """Hears what is new in a log since it was opened: successful records of similar kernels on other devices.

    Searches of one session, which hear of each other without the log, are for one device.
    """

    def __init__(self, log: Log, subject: Subject, target: Target, policy: str, own: int) -> None:
        self._log = log
        self._subject = subject
        self._target = target
        self._policy = policy
        self._heard: set[Hashable] = set()
        self.devices: Counter[str] = Counter()
        self.news(own)
        self.devices.clear()

    def news(self, own: int) -> list[TuningRecord]:
        """The records since the last call, most similar first; a search learns from a limited number of them.

        The search's `own` successful records are the nearest of all, and no news: so many more are looked through.
        """
        near = self._log.nearest(self._subject, self._target, MOST_LOOKED_THROUGH + own, self._policy)
        found = [r for r in near if r.target.key != self._target.key and _identity(r) not in self._heard]
        self._heard.update(map(_identity, found))
        self.devices.update(r.target.label for r in found)
        return found


def _identity(record: TuningRecord) -> Hashable:
    return record.key, record.schedule, record.measurement.latencies_s
