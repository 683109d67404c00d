"""Parts of a search besides its strategy and its measurer: a space, a log, and the choice of finalists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from search_spaces import Schedule, Target
from tuning_logs import Measurement, Subject, TuningRecord
from tuning_logs.ranking import standing

# Rounds of finals at a time.
ROUNDS = 15
# Contests after the first of the most that a measurer holds, and twice as many rounds against the library.
_CONTESTS_OF_TWO = 7 + 2
# The winner's certificate: twice as many rounds against each of two kernels, and a check, within so many seconds.
_CONTESTS_OF_CERTIFICATE, _CERTIFICATE_S = 4, 2.0


# No schedule of another size.
NOTHING_LENT: Mapping[Schedule, Measurement] = MappingProxyType({})


class Space(Protocol):
    """As much of a search space as a search needs: that of a workload, of a user's kernel, or of a recorded table."""

    @property
    def workload(self) -> Subject: ...

    @property
    def target(self) -> Target: ...

    def bind(self, schedule: Schedule) -> Schedule: ...


class Log(Protocol):
    """The part of a tuning log that a search needs."""

    @property
    def path(self) -> Path: ...

    def append(self, *records: TuningRecord) -> None: ...

    def nearest(
        self, workload: Subject, target: Target, limit: int, policy: str | None = ...
    ) -> list[TuningRecord]: ...


@dataclass(frozen=True)
class Finalists:
    """Choice of the schedules to measure again before one is called best: the fastest `most`, if there are `least`.

    The differences among the best are of the size of the noise of single trials, and on a disturbed machine the best
    may look like the tenth. Schedules more than `hopeless` times as slow as the fastest take no part.
    """

    most: int = 16
    least: int = 2
    hopeless: float = inf

    def chosen(self, records: Iterable[TuningRecord]) -> Sequence[Schedule]:
        """The finalists, in the order of the trials, which decides ties; none if there are too few.

        Of schedules that share a binary, the timed one.
        """
        return tuple(r.schedule for r in self._chosen(records))

    def within(
        self, seconds: float, records: Iterable[TuningRecord], lent: Mapping[Schedule, Measurement] = NOTHING_LENT
    ) -> tuple[Sequence[Schedule], int]:
        """As many of the finalists, and rounds at a time, as finals of so many seconds allow; none if even two rounds
        of two take longer.

        Schedules `lent` by another size, with what they took there, take part in any case, and come first.
        """
        given = tuple(records)
        for most, rounds in ((self.most, ROUNDS), (8, ROUNDS), (4, 9), (2, 5), (2, 2)):
            fastest = replace(self, most=min(most, self.most))._fastest(given)
            taking_part = {**lent, **{r.schedule: r.measurement for r in fastest}}
            if finals_s(list(taking_part.values()), rounds) <= seconds:
                return (tuple(taking_part) if len(taking_part) >= self.least else ()), rounds
        return (), 0

    def _chosen(self, records: Iterable[TuningRecord]) -> Sequence[TuningRecord]:
        chosen = self._fastest(records)
        return chosen if len(chosen) >= self.least else ()

    def _fastest(self, records: Iterable[TuningRecord]) -> Sequence[TuningRecord]:
        timed = [r for r in standing(records) if r.measurement.ok and r.measurement.timing != "shared"]
        first = sorted(timed, key=lambda r: r.measurement.undisturbed_s)[: self.most]
        fastest = {
            r.schedule
            for r in first
            if r.measurement.undisturbed_s <= self.hopeless * first[0].measurement.undisturbed_s
        }
        return [r for r in timed if r.schedule in fastest]


def finals_s(finalists: Sequence[Measurement], rounds: int) -> float:
    """Seconds of finals, roughly: every finalist is tried once more and loaded, and takes part in so many rounds; two
    of the fastest go on until one is clearly faster, and the winner meets the library and gets its certificate.
    """
    if not finalists:
        return 0.0
    once = [m.load_s + rounds * m.latency_s for m in finalists]
    certificate = max(m.seconds for m in finalists) + _CONTESTS_OF_CERTIFICATE * 2 * min(once)
    contests = sum(once) + _CONTESTS_OF_TWO * 2 * min(once)
    return sum(m.seconds for m in finalists) + contests + min(certificate, _CERTIFICATE_S)


# For workloads.
USUAL_FINALISTS = Finalists()
