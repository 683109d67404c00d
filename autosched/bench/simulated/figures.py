"""Figures of the runs of one search on one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.bench.simulated.replayed import ReplayedTable, Seconds
from autosched.bench.simulated.score import score

CHECKPOINTS = (25, 50, 100, 200, 400)
GOALS = (0.90, 0.95, 0.99)


@dataclass(frozen=True)
class Figures:
    """Figures of several runs on a table: medians over the runs.

    `fractions` are optimum over best so far after so many evaluations. `evaluations` is the number needed to reach a
    part of the optimum, a run that never did counting as the whole budget; `reached` is the number of runs that did.
    `curve` has the quartiles of the best so far after 1, 2, … evaluations, shape (3, budget). `seconds_each` is the
    search's own time per evaluation.
    """

    table: str
    strategy: str
    runs: int
    budget: int
    fractions: dict[int, float]
    evaluations: dict[float, float]
    reached: dict[float, int]
    score: float
    curve: Seconds
    seconds_each: float

    def to_json(self) -> dict[str, Any]:
        low, median, high = (np.round(quartile, 4).tolist() for quartile in self.curve)
        return {
            "table": self.table,
            "strategy": self.strategy,
            "seeds": self.runs,
            "budget": self.budget,
            "fractions": {str(at): round(fraction, 4) for at, fraction in self.fractions.items()},
            "evaluations": {f"{goal:.0%}": count for goal, count in self.evaluations.items()},
            "reached": {f"{goal:.0%}": count for goal, count in self.reached.items()},
            "score": round(self.score, 4),
            "seconds_per_evaluation": round(self.seconds_each, 6),
            "curve": {"median": median, "lower_quartile": low, "upper_quartile": high},
        }


def figures(
    table: ReplayedTable, strategy: str, runs: Sequence[Sequence[int]], budget: int, search_s: float
) -> Figures:
    """The figures of runs, each the rows of the table in the order of measuring; `search_s` is the own time of all."""
    taken = [table.seconds[list(rows)] for rows in runs]
    curves = np.array([best_so_far(table.ascending[0], seconds, budget) for seconds in taken])
    needed = {goal: [evaluations_to(curve, goal) for curve in curves] for goal in GOALS}
    return Figures(
        table=table.name,
        strategy=strategy,
        runs=len(runs),
        budget=budget,
        fractions={at: float(np.median(curves[:, at - 1])) for at in CHECKPOINTS if at <= budget},
        evaluations={g: float(np.median([budget if n is None else n for n in needed[g]])) for g in GOALS},
        reached={goal: sum(n is not None for n in needed[goal]) for goal in GOALS},
        score=score(table.ascending, taken, budget),
        curve=np.quantile(curves, (0.25, 0.5, 0.75), axis=0),
        seconds_each=search_s / max(1, sum(map(len, runs))),
    )


def best_so_far(optimum: float, seconds: Seconds, budget: int) -> Seconds:
    """Optimum over best so far after 1 to `budget` evaluations; 0 before the first success, constant after the last."""
    curve = np.zeros(budget)
    best = optimum / np.minimum.accumulate(seconds[:budget])
    if len(best):
        curve[: len(best)] = best
        curve[len(best) :] = best[-1]
    return curve


def evaluations_to(curve: Seconds, goal: float) -> int | None:
    """Number of evaluations until the best so far was so near the optimum; None if it never was."""
    # A curve a rounding error below a goal has reached it.
    reached = np.flatnonzero(curve >= goal - 1e-12)
    return int(reached[0]) + 1 if len(reached) else None
