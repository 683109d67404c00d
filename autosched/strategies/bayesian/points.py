"""Points of a plain space as schedules, which logs hold and measurers take; and a search of points as a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from autosched.strategies.strategy import Stopped
from search_spaces import Schedule
from search_spaces.schedules.knobs import KnobValue
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import TuningRecord

# The sketch that schedules name which are nothing but a point.
_SKETCH = "own"


class PointSearch(Protocol):
    """Ask-and-tell search of points, which take so many seconds (None: failed)."""

    def ask(self, count: int) -> list[Point]: ...

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None: ...


@dataclass(frozen=True)
class PointStrategy:
    """A search of points as a `Strategy`; schedules are those of `backend`."""

    space: PlainSpace
    search: PointSearch
    backend: str

    def ask(self, count: int) -> list[Schedule]:
        return [schedule_of(self.space, point, self.backend) for point in self.search.ask(count)]

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        """Histories of elsewhere are given to the search when it is made."""
        if records and not elsewhere:
            self.search.tell(*outcomes(records, self.space))

    @property
    def stopped(self) -> Stopped:
        return Stopped()


def schedule_of(space: PlainSpace, point: Point, backend: str) -> Schedule:
    """A point in the form of a log."""
    return Schedule(_SKETCH, tuple(zip(space.names, cast(tuple[KnobValue, ...], point), strict=True)), backend=backend)


def point_of(space: PlainSpace, schedule: Schedule) -> Point | None:
    """The point of a schedule in a log; None if it is not of the space, or no longer legal."""
    values = dict(schedule.values)
    if schedule.sketch != _SKETCH or not values.keys() <= set(space.names):
        return None
    point: Point = tuple(values.get(name) for name in space.names)
    return point if space.holds(point) else None


def outcomes(records: Iterable[TuningRecord], space: PlainSpace) -> tuple[list[Point], list[float | None]]:
    """The points that records are of, and the seconds of each; None for a failure."""
    found = [(point, r.measurement) for r in records if (point := point_of(space, r.schedule)) is not None]
    return [point for point, _ in found], [m.latency_s if m.ok else None for _, m in found]
