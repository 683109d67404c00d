"""`autosched model report`: quality of a search's cost model on unseen records, and its cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autosched.backends import spaces
from cost_models.quality.held_out import FIRST, Cost, HeldOutQuality, HeldOutWhat, Quality
from search_spaces import InputError, Workload
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.export import worth_shipping
from tuning_logs.ranking import standing
from tuning_logs.text import table_lines

_WHAT: tuple[HeldOutWhat, ...] = ("schedules", "shapes", "devices")
_COLUMNS = (
    "held out",
    "before or after compiling",
    "kernels",
    "taught",
    "rank correlation",
    f"recall of {FIRST}",
    "first choice",
    f"best of {FIRST}",
)
_ALONE = "the logs hold no records of other ones to learn from"


@dataclass(frozen=True)
class ModelReport:
    """Quality for every kernel, and the model's cost per record; without records there is neither."""

    qualities: tuple[Quality, ...]
    cost: Cost | None

    def to_json(self) -> dict[str, Any]:
        cost = {**asdict(self.cost), "total_ms": self.cost.total_ms} if self.cost else None
        return {"cost": cost, "qualities": [asdict(quality) for quality in self.qualities]}

    def __str__(self) -> str:
        return "\n".join([*table_lines([_COLUMNS, *self._rows()], right=range(2, len(_COLUMNS))), *self._remarks()])

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for what in _WHAT:
            for with_facts in (False, True):
                found = [q for q in self.qualities if (q.held_out, q.with_facts) == (what, with_facts)]
                if found:
                    yield (what, "with compile facts" if with_facts else "before", *_means(found))

    def _remarks(self) -> Iterator[str]:
        yield (
            "means over kernels; first choice, best of ten: how much longer they take than the best; taught: records, "
            "the median"
        )
        devices = {q.device for q in self.qualities}
        for what in _WHAT:
            if not any(q.held_out == what for q in self.qualities):
                why = f"all records are of {next(iter(devices))}" if what == "devices" and len(devices) == 1 else _ALONE
                yield f"{what}: none could be held out, {why}"
        if self.cost:
            yield (
                f"{self.cost.total_ms:.2f} ms a trial at {self.cost.records} records: {self.cost.describe_ms:.2f} to "
                f"describe it, {self.cost.train_ms:.2f} to train, {self.cost.predict_ms:.3f} to predict"
            )


def model_report(logs: Iterable[Path], most: int, seed: int = 0) -> ModelReport:
    """The quality on the records of these logs, for every workload, device and policy.

    Uses at most the `most` fastest records of each, and a quarter as many slower ones. Takes some 3 ms for every
    record, and a tenth of a second for every model that is trained, four or more a kernel.

    Raises:
        LogError: a log cannot be read.
        InputError: they have too few records.
    """
    judged = HeldOutQuality(list(_records(logs, most)), spaces.build, seed)
    if not judged.groups:
        raise InputError("no workload in these logs has enough successful records; expected at least 24 of one")
    return ModelReport(tuple(judged.qualities()), judged.cost())


def _records(logs: Iterable[Path], most: int) -> Iterator[TuningRecord]:
    groups: dict[tuple[str, str, str], list[TuningRecord]] = {}
    for log in logs:
        for record in TuningLog(log):
            if isinstance(record.subject, Workload):
                groups.setdefault((*record.key, record.provenance.policy), []).append(record)
    for group in groups.values():
        yield from standing(worth_shipping(group, most))


def _means(found: Sequence[Quality]) -> tuple[str, ...]:
    return (
        str(len(found)),
        f"{statistics.median(q.taught for q in found):.0f}",
        f"{statistics.fmean(q.rank_correlation for q in found):.2f}",
        f"{statistics.fmean(q.recall for q in found):.0%}",
        f"+{statistics.fmean(q.regret_first for q in found):.1%}",
        f"+{statistics.fmean(q.regret_ten for q in found):.1%}",
    )
