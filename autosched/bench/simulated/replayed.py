"""A recorded table in the place of a device: it answers a search with recorded times."""

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

# A search that proposes nothing new so many times in a row is at its end.
_FRUITLESS_ASKS = 50


class PlainStrategy(Protocol):
    """A strategy on a plain space, by ask and tell (None: failed): Bayesian search, or its comparisons."""

    def ask(self, count: int) -> list[Point]: ...

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None: ...


@dataclass(frozen=True)
class ReplayedTable:
    """The part of a recorded table that a search needs, small enough to send to every process.

    `seconds` are those of `points`, infinite for failures.
    """

    name: str
    device: str
    names: tuple[str, ...]
    values: tuple[Point, ...]
    points: tuple[Point, ...]
    seconds: Seconds

    @staticmethod
    def of(table: RecordedTable, name: str) -> ReplayedTable:
        """The table, with that name in reports.

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
        """Seconds of the successful points, the fastest first."""
        return np.sort(self.seconds[np.isfinite(self.seconds)])

    @cached_property
    def rows(self) -> dict[Point, int]:
        return {point: row for row, point in enumerate(self.points)}


def replay(table: ReplayedTable, search: PlainStrategy, budget: int, to_the_end: bool = False) -> list[int]:
    """Let a search measure at most `budget` points of the table; returns their rows, in the order of measuring.

    It ends at the optimum, after which nothing can be found, unless it is to go `to_the_end`. A repeated point is
    answered again, at no cost.
    """
    rows: dict[int, None] = {}
    fruitless = 0
    while len(rows) < min(budget, len(table.points)) and fruitless < _FRUITLESS_ASKS:
        asked = search.ask(budget - len(rows))
        if not asked:
            break
        before = len(rows)
        found = [table.rows[point] for point in asked]
        search.tell(asked, [_answer(table.seconds[row]) for row in found])
        rows.update(dict.fromkeys(found))
        if not to_the_end and table.seconds[found].min() <= table.ascending[0]:
            break
        fruitless = fruitless + 1 if len(rows) == before else 0
    return list(rows)[:budget]


def _answer(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None
