"""Guard against negative transfer: the worse knowledge from elsewhere ranks the trials here, the less it is trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.strategy import Transfer
from cost_models.quality.ranking import rank_correlation
from search_spaces import Schedule
from tuning_logs import TuningRecord

# Fewer trials do not determine a rank correlation: its error would be half of its range.
_ENOUGH = 8
# Rank correlation of a good prior: the mean over the kernels that ship, each predicted without its own records
# (`autosched model report`).
_SHOULD = 0.36
# Prior odds: before anything was measured, four of five priors are assumed to be good.
_ODDS = 4.0
# Trust below this becomes 0. Even a few records of a misleading prior did harm: seven of a hundred cost a simulated
# CPU's searches 15 %.
_LIKELY = 0.5
# A correlation of 1 over few trials is no certainty.
_LARGEST = 0.99


class PriorGuard:
    """Compares a prior's predictions with the measurements; without predictions it trusts."""

    def __init__(self) -> None:
        self._scores: dict[Schedule, float] = {}
        self._guided: set[Schedule] = set()
        self._measured: dict[Schedule, float] = {}

    def predicted(self, schedules: Sequence[Schedule], scores: NDArray[np.float64], guided: Set[Schedule]) -> None:
        """Record the prior's scores of schedules about to be measured; `guided` are those chosen by its knowledge."""
        self._scores |= dict(zip(schedules, scores.tolist(), strict=True))
        self._guided |= guided

    def observe(self, records: Iterable[TuningRecord]) -> None:
        """Observe measurements made here."""
        for record in records:
            measured = record.measurement
            if record.schedule in self._scores:
                self._measured[record.schedule] = measured.undisturbed_s if measured.ok else math.inf

    @property
    def trust(self) -> float:
        """Probability that the prior ranks as it should, and not by chance; 0 where that is unlikely.

        By Fisher's transformation: atanh(correlation) is normal with the variance 1 / (trials - 3), whatever its mean.
        Trials chosen by the prior are similar, so that even a good prior ranks them with a small correlation.
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
        """Evidence on the prior so far; None while there is none."""
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
