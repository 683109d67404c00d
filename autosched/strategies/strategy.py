"""What a strategy is: it proposes schedules and is told what became of them. It never runs anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from cost_models import CostModel
from search_spaces import InputError, Schedule, SearchSpace
from tuning_logs import TuningRecord

# So many draws in a row that bring nothing new say that almost all of the space is known.
_FRUITLESS_DRAWS = 64


# What schedules of one family have in common: the backend, the sketch and the tiles.
Family = tuple[str | tuple[int, ...], ...]


def family_of(schedule: Schedule) -> Family:
    """The family of a schedule: its backend, its sketch and its tiles."""
    return (schedule.backend, schedule.sketch, *(value for _, value in schedule.values if isinstance(value, tuple)))


@dataclass(frozen=True)
class Stopped:
    """Candidates that a strategy came upon and did not propose, by the rung of the ladder of cost that stopped them.

    `illegal` ones break a limit of the target, each counted as often as it came up; `infeasible` ones are predicted to
    fail, each counted once.
    """

    illegal: int = 0
    infeasible: int = 0


@dataclass(frozen=True)
class Transfer:
    """What came of learning from elsewhere, as far as the first trials show.

    `compared` of them were ranked before anything was measured here, and `correlation` is Spearman's rank correlation
    of that with what was measured, a failure being slowest; None while there are too few. `trust` is the part of the
    records that is still learnt from. Of these trials `guided` were chosen for what was known from elsewhere and
    `others` not; the best of either took `guided_s` and `others_s`, None where none succeeded.
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
        """How many times as fast the best of the guided trials is; below 1 they were worse. None without both."""
        return self.others_s / self.guided_s if self.guided_s and self.others_s else None


class Strategy(Protocol):
    """Ask-and-tell search over one search space.

    The same random state and the same answers give the same proposals.
    """

    def ask(self, count: int) -> list[Schedule]:
        """At most `count` schedules to measure next: legal, all different, and neither asked nor told before as known.

        Fewer when the space is nearly exhausted, none when nothing is left.
        """
        ...

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        """Take note of what was measured, here or in earlier runs, of this workload and target or of others.

        What was measured `elsewhere` (by another version, or in a log that came with the package) says where to look,
        most alike first; but it is not known here, whatever its workload and target: it may be asked for.
        """
        ...

    @property
    def stopped(self) -> Stopped:
        """What was stopped before it was proposed, since the strategy was created."""
        ...


@runtime_checkable
class Transferring(Protocol):
    """A strategy that can tell what came of the records of elsewhere."""

    @property
    def transfer(self) -> Transfer | None:
        """What the first trials show; None while nothing was measured, or where nothing was told."""
        ...


class StrategyFactory(Protocol):
    """What makes a strategy for one search: the class of a strategy, or a function that calls it with more arguments.

    Every search calls it anew, each kernel of a traced function having its own.
    """

    def __call__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator, /) -> Strategy: ...


def own_trials(space: SearchSpace, records: Iterable[TuningRecord]) -> list[tuple[Schedule, TuningRecord]]:
    """The records of the space's workload and target, each with its schedule as the space has it now.

    A record of before a knob was added has the value that all had then. What the space has no more is left out.
    """
    key = (space.workload.key, space.target.key)
    found = []
    for record in records:
        if record.key == key:
            with suppress(InputError):
                found.append((space.bind(record.schedule).unbound, record))
    return found


def schedules_of(space: SearchSpace, records: Iterable[TuningRecord]) -> set[Schedule]:
    """The schedules of those records that are of the space's workload and target, as the space has them now."""
    return {schedule for schedule, _ in own_trials(space, records)}


def draw(space: SearchSpace, count: int, known: Set[Schedule], rng: np.random.Generator) -> list[Schedule]:
    """`count` random legal schedules that are not in `known`, all different; fewer only when there are no more."""
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
