"""Protocol of a strategy: it proposes schedules and observes their records. It never runs anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from cost_models import CostModel
from search_spaces import InputError, Schedule, SearchSpace
from tuning_logs import TuningRecord

# So many draws in a row without a new schedule mean that almost all of the space is known.
_FRUITLESS_DRAWS = 64


# Backend, sketch and tiles: schedules that share them are one family.
Family = tuple[str | tuple[int, ...], ...]


def family_of(schedule: Schedule) -> Family:
    """Backend, sketch and tiles of a schedule."""
    return (schedule.backend, schedule.sketch, *(value for _, value in schedule.values if isinstance(value, tuple)))


@dataclass(frozen=True)
class Stopped:
    """Candidates that a strategy generated and did not propose, counted by the check that stopped them.

    `illegal`: candidates that break a limit of the target, counted each time. `infeasible`: candidates predicted to
    fail, each counted once.
    """

    illegal: int = 0
    infeasible: int = 0


@dataclass(frozen=True)
class Transfer:
    """Outcome of transfer learning: does experience from elsewhere predict the first trials here?

    `compared`: trials that were ranked before anything was measured here. `correlation`: Spearman's rank correlation of
    that ranking with the measured one, a failure being slowest; None while there are too few. `trust`: the part of the
    transferred records that is still learnt from. `guided` of these trials were chosen by the transferred knowledge,
    `others` were not; `guided_s` and `others_s` are the best latencies of either, None where none succeeded.
    """

    compared: int
    correlation: float | None
    trust: float
    guided: int
    guided_s: float | None
    others: int
    others_s: float | None

    @property
    def gain(self) -> float | None:
        """Speedup of the best guided trial over the best other one; below 1 guidance did harm. None without both."""
        return self.others_s / self.guided_s if self.guided_s and self.others_s else None


class Strategy(Protocol):
    """Ask-and-tell search over one search space.

    The same random state and the same answers give the same proposals.
    """

    def ask(self, count: int) -> list[Schedule]:
        """At most `count` schedules to measure next: legal, all different, never proposed before, not measured here
        before.

        Fewer when the space is nearly exhausted, none when nothing is left.
        """
        ...

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        """Observe measurements: of this run or earlier ones, of this workload and target or of others.

        Records from `elsewhere` (another version's, or those of a log that came with the package), most similar first,
        guide the search. They do not count as known here, whatever their workload and target: their schedules may be
        asked for.
        """
        ...

    @property
    def stopped(self) -> Stopped:
        """Candidates stopped before they were proposed, since the strategy was created."""
        ...


@runtime_checkable
class Transferring(Protocol):
    """A strategy that reports how well transfer works."""

    @property
    def transfer(self) -> Transfer | None:
        """Evidence of the first trials; None while nothing was measured, or where nothing was transferred."""
        ...


class StrategyFactory(Protocol):
    """Maker of a strategy for one search: a strategy's class, or a function that calls it with more arguments.

    Called once per search; each kernel of a traced function has a search of its own.
    """

    def __call__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator, /) -> Strategy: ...


def own_trials(space: SearchSpace, records: Iterable[TuningRecord]) -> list[tuple[Schedule, TuningRecord]]:
    """The records of the space's workload and target, each with its schedule in the space's present form.

    A knob that was added since takes the value that all schedules had then. Schedules that the space no longer contains
    are left out.
    """
    key = (space.workload.key, space.target.key)
    found = []
    for record in records:
        if record.key == key:
            with suppress(InputError):
                found.append((space.bind(record.schedule).unbound, record))
    return found


def schedules_of(space: SearchSpace, records: Iterable[TuningRecord]) -> set[Schedule]:
    """Schedules of the records of the space's workload and target, in the space's present form."""
    return {schedule for schedule, _ in own_trials(space, records)}


def draw(space: SearchSpace, count: int, known: Set[Schedule], rng: np.random.Generator) -> list[Schedule]:
    """`count` random legal schedules outside `known`, all different; fewer only when no more exist."""
    drawn: dict[Schedule, None] = {}
    fruitless = 0
    while len(drawn) < count and fruitless < _FRUITLESS_DRAWS:
        schedule = space.sample(rng)
        if schedule in known or schedule in drawn:
            fruitless += 1
        else:
            drawn[schedule] = None
            fruitless = 0
    if len(drawn) < count:
        left = [s for s in space if s not in known and s not in drawn]
        take = rng.permutation(len(left))[: count - len(drawn)]
        drawn.update(dict.fromkeys(left[i] for i in take))
    return list(drawn)
