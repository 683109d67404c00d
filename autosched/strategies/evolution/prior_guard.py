"""Watches what was learnt elsewhere: where it ranks worse what is measured here, less of it is believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.strategy import Transfer
from cost_models.quality.ranking import rank_correlation
from search_spaces import Schedule
from tuning_logs import TuningRecord

# Trials below which a rank correlation says nothing: its error would be half of its range.
_ENOUGH = 8
# How a prior ranks as a rule: the mean over the kernels that ship, each without its own records
# (`autosched model report`).
_SHOULD = 0.36
# Before anything was measured, four of five priors are taken to be as good.
_ODDS = 4.0
# Of a prior that misleads even a few records did harm: seven of a hundred cost a simulated CPU's searches 15 %.
_LIKELY = 0.5
# A correlation of 1 of few trials is no certainty.
_LARGEST = 0.99


class PriorGuard:
    """Compares what a prior predicts with what comes of it; without predictions it trusts."""

    def __init__(self) -> None:
        self._scores: dict[Schedule, float] = {}
        self._guided: set[Schedule] = set()
        self._measured: dict[Schedule, float] = {}

    def predicted(self, schedules: Sequence[Schedule], scores: NDArray[np.float64], guided: Set[Schedule]) -> None:
        """Take note of the prior's scores of what is to be measured; `guided` were chosen for what it knows."""
        self._scores |= dict(zip(schedules, scores.tolist(), strict=True))
        self._guided |= guided

    def told(self, records: Iterable[TuningRecord]) -> None:
        """Take note of what was measured here."""
        for record in records:
            measured = record.measurement
            if record.schedule in self._scores:
                self._measured[record.schedule] = measured.undisturbed_s if measured.ok else math.inf

    @property
    def trust(self) -> float:
        """How likely it is that the prior ranks as it should, and not by chance; 0 where it rather does not.

        By Fisher's transformation: atanh(correlation) is normal with the variance 1 / (trials - 3), whatever its mean.
        What was chosen by the prior is alike, so that even a good one ranks these trials with a small correlation.
        """
        correlation = self._correlation()
        if correlation is None:
            return 1.0
        should, seen = math.atanh(_SHOULD), math.atanh(max(-_LARGEST, min(_LARGEST, correlation)))
        evidence = (len(self._measured) - 3) * should * (seen - should / 2)
        likely = 1 / (1 + math.exp(-evidence) / _ODDS)
        return likely if likely >= _LIKELY else 0.0

    @property
    def seen(self) -> Transfer | None:
        """What came of the prior so far; None while nothing has."""
        if not self._measured:
            return None
        guided = [s for schedule, s in self._measured.items() if schedule in self._guided]
        others = [s for schedule, s in self._measured.items() if schedule not in self._guided]
        return Transfer(
            compared=len(self._measured),
            correlation=self._correlation(),
            trust=self.trust,
            guided=len(guided),
            guided_s=_least(guided),
            others=len(others),
            others_s=_least(others),
        )

    def _correlation(self) -> float | None:
        if len(self._measured) < _ENOUGH:
            return None
        return rank_correlation([-self._scores[s] for s in self._measured], list(self._measured.values()))


def _least(seconds: Iterable[float]) -> float | None:
    least = min(seconds, default=math.inf)
    return least if math.isfinite(least) else None
