"""The figures of several tables as lines of text and as JSON, with their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.bench.simulated.figures import CHECKPOINTS, GOALS, Figures

_MEAN = "mean"
_WIDTH = 7


def header(names: Sequence[str], budget: int) -> str:
    """Heading of the lines: the part of the optimum after so many evaluations, and evaluations to a part."""
    at = [f"@{count}" for count in CHECKPOINTS if count <= budget]
    to = [f"to {goal:.0%}" for goal in GOALS]
    return _line("table", [*at, *to, "score", "ms each"], names)


def line(found: Figures, names: Sequence[str]) -> str:
    """The figures of a table; `>400` if at least half of the runs did not get there."""
    needed = [_needed(found, goal) for goal in GOALS]
    return _line(found.table, [*_fractions(found.fractions), *needed, *_last(found.score, found.seconds_each)], names)


def mean_line(found: Sequence[Figures], names: Sequence[str]) -> str:
    """The mean of every column; goals that a table never reached count as its budget."""
    mean = _mean(found)
    needed = [f"{count:.0f}" for count in mean["evaluations"].values()]
    cells = [*_fractions(mean["fractions"]), *needed, *_last(mean["score"], mean["seconds_per_evaluation"])]
    return _line(_MEAN, cells, names)


def to_json(found: Sequence[Figures], remarks: Sequence[str] = ()) -> dict[str, Any]:
    mean = _mean(found)
    return {
        "tables": [one.to_json() for one in found],
        "mean": {
            "fractions": {str(at): round(fraction, 4) for at, fraction in mean["fractions"].items()},
            "evaluations": {f"{goal:.0%}": round(count, 1) for goal, count in mean["evaluations"].items()},
            "score": round(mean["score"], 4),
            "seconds_per_evaluation": round(mean["seconds_per_evaluation"], 6),
        },
        "remarks": list(remarks),
    }


def _mean(found: Sequence[Figures]) -> dict[str, Any]:
    return {
        "fractions": {at: float(np.mean([one.fractions[at] for one in found])) for at in found[0].fractions},
        "evaluations": {goal: float(np.mean([one.evaluations[goal] for one in found])) for goal in GOALS},
        "score": float(np.mean([one.score for one in found])),
        "seconds_per_evaluation": float(np.mean([one.seconds_each for one in found])),
    }


def _needed(found: Figures, goal: float) -> str:
    reached = 2 * found.reached[goal] > found.runs
    return f"{found.evaluations[goal]:.0f}" if reached else f">{found.budget}"


def _fractions(fractions: Mapping[int, float]) -> list[str]:
    return [f"{fraction:.3f}" for fraction in fractions.values()]


def _last(score: float, seconds_each: float) -> list[str]:
    return [f"{score:.3f}", f"{seconds_each * 1e3:.1f}"]


def _line(name: str, cells: Sequence[str], names: Sequence[str]) -> str:
    width = max(len(other) for other in [*names, _MEAN, "table"])
    return "  ".join([name.ljust(width), *(cell.rjust(_WIDTH) for cell in cells)])
