"""Allocation of jobs to places: each has several, jobs of a lost place go elsewhere, slow places hold up nobody.

waiting ─ a place with room ─ answered
   ↑            │ lost with one place                   the next place gets it alone
   └────────────┤ lost again                            guilty: it is given up
                │ overdue, and another place is idle    a copy goes there; the first answer counts
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

# A job that was lost with so many places is given up: alone on the second one, it is what ended it.
_MOST_LOSSES = 2
# A job is overdue after so many times the usual duration, from its start on; and never within a second.
_OVERDUE = 4.0
_LEAST_OVERDUE_S = 1.0
# The usual duration is the median of so many answers; of a quarter of them at least.
_ANSWERS = 64


@dataclass(eq=False, kw_only=True)
class Job:
    """A job of one crew. `alone`: the place that has it gets nothing else meanwhile; `losses`: lost places."""

    alone: bool = False
    losses: int = field(default=0, init=False)
    answered: bool = field(default=False, init=False)


class Place(Protocol):
    """A place that holds up to `room` jobs; one that takes them `whole` gets the next ones once it has none."""

    @property
    def room(self) -> int: ...

    @property
    def whole(self) -> bool: ...


P = TypeVar("P", bound=Place)
J = TypeVar("J", bound=Job)


class Crew(Generic[P, J]):
    """Places of one kind and their jobs. Time is an argument, in seconds of any clock."""

    def __init__(self) -> None:
        self._waiting: deque[J] = deque()
        self._held: dict[P, dict[J, float]] = {}
        self._durations: deque[float] = deque(maxlen=_ANSWERS)

    @property
    def places(self) -> Sequence[P]:
        return tuple(self._held)

    def join(self, place: P) -> None:
        self._held[place] = {}

    def submit(self, job: J) -> None:
        self._waiting.append(job)

    def cancel_waiting(self) -> list[J]:
        """Remove and return the jobs that no place has."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def drop(self) -> list[J]:
        """Remove and return all jobs without an answer. Places are busy with theirs until those answer, unheard."""
        held = {job: None for jobs in self._held.values() for job in jobs if not job.answered}
        for job in held:
            job.answered = True
        return [*self.cancel_waiting(), *held]

    def leave(self, place: P) -> list[J]:
        """Remove a lost place; returns the jobs that are given up. A place that has left already gives up none."""
        guilty = []
        for job in reversed(self._held.pop(place, {})):
            if job.answered:
                continue
            job.losses += 1
            if any(job in jobs for jobs in self._held.values()):
                continue
            if job.losses < _MOST_LOSSES:
                job.alone = True
                self._waiting.appendleft(job)
            else:
                guilty.append(job)
        return guilty

    def answer(self, place: P, job: J, now: float) -> bool:
        """Note an answer; False if it is not the first one of the job, or its place was lost meanwhile."""
        since = self._held.get(place, {}).pop(job, None)
        if since is None or job.answered:
            return False
        self._durations.append(now - since)
        job.answered = True
        return True

    def starts(self, now: float) -> list[tuple[P, J]]:
        """The jobs that start now, each with its place."""
        found: list[tuple[P, J]] = []
        ready = [place for place, jobs in self._held.items() if not (place.whole and jobs)]
        while pair := self._next(ready, now):
            place, job = pair
            self._held[place][job] = now
            found.append(pair)
        return found

    def _next(self, ready: Sequence[P], now: float) -> tuple[P, J] | None:
        """The next job, for the place with most room left."""
        first = next((job for job in self._waiting if job.alone), None)
        # One place is emptied for it.
        emptied = min(filter(self._shared, self._held), key=self._load, default=None) if first else None
        for place in sorted(filter(self._shared, ready), key=self._load):
            jobs = self._held[place]
            if first is not None and not jobs:
                self._waiting.remove(first)
                return place, first
            if len(jobs) >= place.room or place is emptied:
                continue
            job = next((job for job in self._waiting if not job.alone), None)
            if job is not None:
                self._waiting.remove(job)
                return place, job
            if not self._waiting and (copy := self._overdue(place, now)) is not None:
                return place, copy
        return None

    def _shared(self, place: P) -> bool:
        return not any(job.alone for job in self._held[place])

    def _load(self, place: P) -> float:
        return len(self._held[place]) / place.room

    def _overdue(self, idle: P, now: float) -> J | None:
        """The job that another place has had for longest, if that is too long; each has one copy at most."""
        places: dict[J, list[P]] = {}
        for place, jobs in self._held.items():
            for job in jobs:
                places.setdefault(job, []).append(place)
        slow = (
            (self._held[where[0]][job], number, job)
            for number, (job, where) in enumerate(places.items())
            if len(where) == 1 and where[0] is not idle and not job.alone and not job.answered
        )
        oldest = min(slow, default=None)
        return oldest[2] if oldest is not None and now - oldest[0] > self._patience_s else None

    @property
    def _patience_s(self) -> float:
        if len(self._durations) < _ANSWERS // 4:
            return math.inf
        return max(_LEAST_OVERDUE_S, _OVERDUE * statistics.median(self._durations))
