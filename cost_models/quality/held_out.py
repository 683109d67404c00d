"""Quality of the cost model on unseen schedules, shapes and devices: cross-validation on held-out records.

The trees are those of a search (`XGBoostModel`). Before compiling they see the features of the tile program; with
compile facts also registers, spills and shared memory, which a search has only for compiled schedules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cost_models.feature_rows import FeatureRows
from cost_models.fitted_rows import fit_rows, log_bound
from cost_models.quality.ranking import rank_correlation, recall, regret
from cost_models.trees import Floats, load_xgboost
from search_spaces import SearchSpace, Target, Workload
from tuning_logs import TuningRecord
from tuning_logs.selection import MOST_LOOKED_THROUGH, are_alike, nearest, telling

HeldOutWhat = Literal["schedules", "shapes", "devices"]

# Fewest successful schedules of a workload for a judgement of ranks, and fewest for training.
_LEAST = 24
# Parts of the schedules of a workload, each of which is held out once.
_FOLDS = 4
# First choices that recall and regret consider.
FIRST = 10


@dataclass(frozen=True)
class Quality:
    """The ranking of `judged` records of one workload, device and policy by a model that was `taught` others.

    `recall` is of the ten fastest among the ten predicted to be; `regret_first` and `regret_ten` are the excess times
    of the first choice and of the best of ten over the best of all, as a fraction of it.
    """

    held_out: HeldOutWhat
    with_facts: bool
    workload: str
    device: str
    policy: str
    taught: int
    judged: int
    rank_correlation: float
    recall: float
    regret_first: float
    regret_ten: float


@dataclass(frozen=True)
class Cost:
    """The model's time for a number of records, in milliseconds each: describing, training once, predicting."""

    records: int
    describe_ms: float
    train_ms: float
    predict_ms: float

    @property
    def total_ms(self) -> float:
        return self.describe_ms + self.train_ms + self.predict_ms


@dataclass(frozen=True)
class _Group:
    """The positions of the records of one workload, device and policy."""

    example: TuningRecord
    places: NDArray[np.intp]


class HeldOutQuality:
    """The records of any workloads, described once; each measure holds out other records.

    `build` makes the spaces of records on any device. Failures, and schedules that no space has any more, are left out.
    """

    def __init__(
        self, records: Sequence[TuningRecord], build: Callable[[Workload, Target], SearchSpace], seed: int
    ) -> None:
        load_xgboost()
        self._seed = seed
        ok = [r for r in records if r.measurement.ok]
        begin = time.perf_counter()
        self._records: list[TuningRecord] = []
        rows: Floats = np.zeros((0, 0), np.float32)
        if ok:
            space = build(ok[0].workload, ok[0].target)
            self._records, rows = FeatureRows(build).of_records(space, ok)
        self._describe_s = time.perf_counter() - begin
        self._rows = {False: rows, True: np.concatenate([rows, _facts(self._records)], axis=1) if ok else rows}
        self._bounds = np.array([log_bound(r.workload, r.target) for r in self._records], dtype=np.float32)
        self._groups = list(_groups(self._records))

    @property
    def groups(self) -> int:
        return len(self._groups)

    def qualities(self) -> Iterator[Quality]:
        """The quality for every group with its schedules, its shape and its device held out, before compiling and with
        facts.

        Groups without records left to learn from are skipped.
        """
        for with_facts in (False, True):
            for group in self._groups:
                if with_facts and not _has_facts(group.example):
                    continue
                yield self._of_schedules(group, with_facts)
                for what in ("shapes", "devices"):
                    teaches = self._others(group, what)
                    if len(teaches) >= _LEAST:
                        scores = self._scores(teaches, group.places, with_facts)
                        yield self._judged(group, what, with_facts, len(teaches), scores)

    def cost(self) -> Cost | None:
        """None without enough records to train with."""
        count = len(self._records)
        if count < _LEAST:
            return None
        begin = time.perf_counter()
        fitted = fit_rows(self._rows[False], self._records, self._seed, None)
        trained = time.perf_counter()
        fitted.log_scores(self._rows[False], self._bounds)
        ended = time.perf_counter()
        each_ms = 1e3 / count
        return Cost(count, self._describe_s * each_ms, (trained - begin) * each_ms, (ended - trained) * each_ms)

    def _of_schedules(self, group: _Group, with_facts: bool) -> Quality:
        """Taught the other schedules of the same workload, as a search is."""
        places = np.random.default_rng(self._seed).permutation(group.places)
        scores = np.zeros(len(self._records))
        for part in np.array_split(places, _FOLDS):
            scores[part] = self._scores(np.setdiff1d(places, part), part, with_facts)
        taught = len(places) - len(places) // _FOLDS
        return self._judged(group, "schedules", with_facts, taught, scores[group.places])

    def _others(self, group: _Group, what: HeldOutWhat) -> NDArray[np.intp]:
        """The records of similar kernels that a search of the group would observe if this were new to it."""
        example = group.example

        def known(other: TuningRecord) -> bool:
            same_shape, same_device = (a == b for a, b in zip(other.key, example.key, strict=True))
            timed_alike = other.provenance.policy == example.provenance.policy
            return timed_alike and (not same_shape if what == "shapes" else not same_device)

        found = [g.places for g in self._groups if are_alike(g.example.subject, example.subject) and known(g.example)]
        places = [int(place) for places in found for place in places]
        place_of = {id(self._records[place]): place for place in places}
        others = (self._records[place] for place in places)
        chosen = telling(nearest(others, example.subject, example.target, MOST_LOOKED_THROUGH))
        return np.array([place_of[id(record)] for record in chosen], dtype=np.intp)

    def _scores(self, taught: NDArray[np.intp], judged: NDArray[np.intp], with_facts: bool) -> NDArray[np.float64]:
        rows = self._rows[with_facts]
        fitted = fit_rows(rows[taught], [self._records[i] for i in taught], self._seed, None)
        return fitted.log_scores(rows[judged], self._bounds[judged])

    def _judged(
        self, group: _Group, what: HeldOutWhat, with_facts: bool, taught: int, scores: NDArray[np.float64]
    ) -> Quality:
        measured = [self._records[i].measurement.undisturbed_s for i in group.places]
        slow_last = -scores
        return Quality(
            held_out=what,
            with_facts=with_facts,
            workload=group.example.workload.label,
            device=group.example.target.label,
            policy=group.example.provenance.policy,
            taught=taught,
            judged=len(measured),
            rank_correlation=rank_correlation(slow_last, measured),
            recall=recall(slow_last, measured, FIRST),
            regret_first=regret(slow_last, measured, 1),
            regret_ten=regret(slow_last, measured, FIRST),
        )


def _groups(records: Sequence[TuningRecord]) -> Iterator[_Group]:
    places: dict[tuple[str, str, str], list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault((*record.key, record.provenance.policy), []).append(place)
    for found in places.values():
        if len(found) >= _LEAST:
            yield _Group(records[found[0]], np.array(found, dtype=np.intp))


def _has_facts(record: TuningRecord) -> bool:
    facts = record.measurement.facts
    return facts is not None and facts.registers is not None


def _facts(records: Sequence[TuningRecord]) -> Floats:
    """Logarithms of registers, spilled bytes and bytes of shared memory, shape (records, 3); -1 where unknown."""
    facts = [r.measurement.facts for r in records]
    amounts = [(f.registers, f.spill_bytes, f.shared_memory_bytes) if f else (None,) * 3 for f in facts]
    known = [[-1.0 if amount is None else float(np.log2(1 + amount)) for amount in each] for each in amounts]
    return np.array(known, dtype=np.float32).reshape(len(records), 3)
