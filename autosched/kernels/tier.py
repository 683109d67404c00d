"""Tiers of answers: where the schedule of a kernel comes from, and what computes where there is no kernel."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable

from autosched.backends.generator import generator_hash
from tuning_logs import TuningRecord


class Tier(enum.StrEnum):
    """Tier of an answer, the surest first.

    EXACT: a record of this workload, whose measured source this version prints. STALE: such a record, of whose schedule
    this version prints another source. OTHER_SHAPE: the record of another shape, its schedule adapted. PREDICTED: a
    prediction, and no record. LIBRARY: PyTorch, or a library.
    """

    EXACT = "exact"
    STALE = "stale"
    OTHER_SHAPE = "other shape"
    PREDICTED = "predicted"
    LIBRARY = "library"

    @staticmethod
    def of(record: TuningRecord, source: str | None) -> Tier:
        """The tier of a workload's own record, by the fingerprint of the source that this version prints.

        A record without a fingerprint is exact if the same code made it.
        """
        told = record.measurement.source
        same = told == source if told is not None else record.provenance.generator == generator_hash()
        return Tier.EXACT if same else Tier.STALE

    @staticmethod
    def least(tiers: Iterable[Tier]) -> Tier:
        """The least sure of some tiers; LIBRARY for none."""
        return max(tiers, key=list(Tier).index, default=Tier.LIBRARY)


def tiers_text(tiers: Iterable[Tier]) -> str:
    """`exact`, or the numbers of each: `2 exact, 1 stale`."""
    counted = sorted(Counter(tiers).items(), key=lambda pair: list(Tier).index(pair[0]))
    if len(counted) == 1:
        return counted[0][0].value
    return ", ".join(f"{count} {tier}" for tier, count in counted)
