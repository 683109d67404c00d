"""A recorded table in the place of a device: a search asks it what configurations took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from search_spaces import InputError
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs.exchange.recorded_table import RecordedTable

Seconds = NDArray[np.float64]

# Asked so often for nothing new, a search has no more to propose.
_FRUITLESS_ASKS = 50


class PlainStrategy(Protocol):
    """What proposes points, and is told what they took (None: failed): the search core, or what it is compared with."""

    def ask(self, count: int) -> list[Point]: ...

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None: ...


@dataclass(frozen=True)
class ReplayedTable:
    """What a search needs of a recorded table, and little enough to send to every process.

    `seconds` are those of `points`, infinite where a point failed.
    """

    name: str
    device: str
    names: tuple[str, ...]
    values: tuple[Point, ...]
    points: tuple[Point, ...]
    seconds: Seconds

    @staticmethod
    def of(table: RecordedTable, name: str) -> ReplayedTable:
        """The table, called so in reports.

        Raises:
            InputError: nothing in it succeeded.
        """
        seconds = np.array([np.inf if trial.seconds is None else trial.seconds for trial in table.trials])
        if not np.isfinite(seconds).any():
            raise InputError(f"{name}: none of its {len(seconds)} configurations succeeded; there is nothing to search")
        return ReplayedTable(
            name, table.device, table.names, table.values, tuple(t.point for t in table.trials), seconds
        )

    @cached_property
    def space(self) -> PlainSpace:
        return PlainSpace(dict(zip(self.names, self.values, strict=True)), configurations=self.points)

    @cached_property
    def ascending(self) -> Seconds:
        """What the points took that succeeded, the fastest first."""
        return np.sort(self.seconds[np.isfinite(self.seconds)])

    @cached_property
    def rows(self) -> dict[Point, int]:
        return {point: row for row, point in enumerate(self.points)}


def replay(table: ReplayedTable, search: PlainStrategy, budget: int, to_the_end: bool = False) -> list[int]:
    """Let a search measure at most `budget` points of the table; returns their rows, in the order of measuring.

    It ends where the optimum was measured, from which on nothing can be found, unless it is to go `to_the_end`. A point
    that is asked for again is answered again, at no cost.
    """
    rows: dict[int, None] = {}
    fruitless = 0
    while len(rows) < min(budget, len(table.points)) and fruitless < _FRUITLESS_ASKS:
        asked = search.ask(budget - len(rows))
        if not asked:
            break
        before = len(rows)
        found = [table.rows[point] for point in asked]
        search.tell(asked, [_told(table.seconds[row]) for row in found])
        rows.update(dict.fromkeys(found))
        if not to_the_end and table.seconds[found].min() <= table.ascending[0]:
            break
        fruitless = fruitless + 1 if len(rows) == before else 0
    return list(rows)[:budget]


def _told(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None
