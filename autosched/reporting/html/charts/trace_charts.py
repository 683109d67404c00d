"""The course of a search: every trial, and the best so far, over trials and over seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.reporting.analysis.trace import TracePoint, improvements
from autosched.reporting.html.charts.plot import BOTTOM, LEFT, RIGHT, TOP, Axis, dot, dots, path, plot, text
from autosched.reporting.html.markup import Markup, element
from autosched.reporting.html.scales import Scale, log_scale
from tuning_logs.text import duration_text

# Trials slower than this part of them are drawn at the upper edge, where they would press the others together.
_SHOWN_PART = 0.9
# Bounds of that edge, over the fastest.
_LEAST_TIMES, _MOST_TIMES = 1.3, 20.0
# The failures are a row of ticks below the trials.
_FAILURES_AT = BOTTOM - 5
_SPARK_WIDTH, _SPARK_HEIGHT = 96.0, 22.0


def trace_charts(points: Sequence[TracePoint], library_s: float | None) -> list[Markup]:
    """Two charts: over the number of trials, and over the seconds of tuning; none where no trial succeeded."""
    timed = [p.latency_s for p in points if p.latency_s is not None]
    if not timed:
        return []
    edge = min(max(_edge(timed), _LEAST_TIMES * min(timed)), _MOST_TIMES * min(timed))
    shown = [min(timed), edge, *([library_s] if library_s else [])]
    y = Axis(log_scale(shown, BOTTOM - 14, TOP, 1.05), "latency", duration_text)
    over_trials = Axis(Scale(0, max(2, points[-1].number), LEFT, RIGHT), "trials", lambda n: f"{n:.0f}")
    longest_s = max(p.at_s for p in points) or 1.0
    scale, unit = (60.0, "minutes") if longest_s >= 180 else (1.0, "seconds")
    seconds = Axis(Scale(0, longest_s / scale, LEFT, RIGHT), f"{unit} of tuning", lambda s: f"{s:.4g}")
    return [
        _chart(points, library_s, over_trials, y, lambda p: p.number),
        _chart(points, library_s, seconds, y, lambda p: p.at_s / scale),
    ]


def _edge(timed: Sequence[float]) -> float:
    return sorted(timed)[int(_SHOWN_PART * (len(timed) - 1))]


def spark(points: Sequence[TracePoint]) -> Markup:
    """The best so far over trials, without axes."""
    best = improvements(points)
    if not best:
        return Markup("")
    fastest = best[-1].latency_s or 0.0
    slowest = min(best[0].latency_s or 0.0, _MOST_TIMES * fastest)
    x = Scale(1, max(2, points[-1].number), 1, _SPARK_WIDTH - 1)
    y = log_scale((fastest, slowest), _SPARK_HEIGHT - 2, 2, margin=1.02)
    line = path(_steps(best, points[-1].number, x, y, lambda p: p.number), "best")
    return element("svg", line, viewBox=f"0 0 {_SPARK_WIDTH:g} {_SPARK_HEIGHT:g}", class_="spark", aria_hidden="true")


def _chart(
    points: Sequence[TracePoint], library_s: float | None, x: Axis, y: Axis, at: Callable[[TracePoint], float]
) -> Markup:
    failed = [x.scale(at(p)) for p in points if p.latency_s is None]
    tried = [(x.scale(at(p)), y.scale(p.latency_s)) for p in points if p.latency_s is not None]
    best = improvements(points)
    marks = [dots(tried, "trials")]
    if failed:
        marks.append(element("path", d="".join(f"M{f:.1f} {_FAILURES_AT}v5" for f in failed), class_="failures"))
    if library_s is not None:
        height = y.scale(library_s)
        marks.append(path([(LEFT, height), (RIGHT, height)], "library dashed"))
        marks.append(text(RIGHT, height - 4, "library", "label library-text", "end"))
    marks.append(path(_steps(best, at(max(points, key=at)), x.scale, y.scale, at), "best"))
    last = best[-1]
    assert last.latency_s is not None
    about = f"{duration_text(last.latency_s)} at trial {last.number}"
    marks.append(dot(x.scale(at(last)), y.scale(last.latency_s), "best-dot", about))
    return plot(f"Latency of every trial and best so far, over {x.name}", x, y, *marks)


def _steps(
    best: Sequence[TracePoint], end: float, x: Scale, y: Scale, at: Callable[[TracePoint], float]
) -> list[tuple[float, float]]:
    """A line that falls at each improvement and stays level between."""
    found: list[tuple[float, float]] = []
    for point in best:
        across, down = x(at(point)), y(point.latency_s or 0.0)
        if found:
            found.append((across, found[-1][1]))
        found.append((across, down))
    return [*found, (x(end), found[-1][1])]
