"""The rank correlation of predictions made before each round of a search."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.reporting.analysis.model_rounds import ModelRound
from autosched.reporting.html.charts.plot import BOTTOM, LEFT, RIGHT, TOP, Axis, dot, path, plot
from autosched.reporting.html.markup import Markup
from autosched.reporting.html.scales import Scale

# Successes from which the model is fitted, and not the analytic estimate.
_FITTED = 16


def rounds_chart(rounds: Sequence[ModelRound]) -> Markup | None:
    """None with fewer than two rounds: nothing was learnt yet."""
    if len(rounds) < 2:
        return None
    lowest = min(0.0, *(r.correlation for r in rounds))
    x = Axis(Scale(0, rounds[-1].last, LEFT, RIGHT), "trials", lambda n: f"{n:.0f}")
    y = Axis(Scale(max(-1.0, lowest - 0.1) if lowest < 0 else 0.0, 1.0, BOTTOM, TOP), "rank correlation", _text)
    marks = [path([(LEFT, y.scale(0)), (RIGHT, y.scale(0))], "axis-line")]
    for one in rounds:
        height = y.scale(one.correlation)
        left, right = x.scale(one.first - 1), x.scale(one.last)
        marks.append(path([(left, height), (right, height)], "round"))
        about = f"trials {one.first}–{one.last}: {one.correlation:.2f} over {one.judged}, taught {one.taught} trials"
        marks.append(dot((left + right) / 2, height, "best-dot" if one.taught >= _FITTED else "hollow", about))
    return plot("Rank correlation of predicted and measured speed, by round", x, y, *marks)


def _text(correlation: float) -> str:
    return f"{correlation:.1f}".replace("-", "−")
