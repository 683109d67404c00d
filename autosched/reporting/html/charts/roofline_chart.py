"""The roofline of a target, with the best kernel and the library in it."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.reporting.analysis.roofline import RooflinePosition
from autosched.reporting.html.charts.labels import Labels, Place
from autosched.reporting.html.charts.plot import BOTTOM, LEFT, RIGHT, TOP, Axis, dot, path, plot, text
from autosched.reporting.html.markup import Markup
from autosched.reporting.html.scales import log_scale

# Factors beyond the points and the ridge, to either side and below.
_AROUND, _BELOW = 8.0, 4.0
# Radii of the points.
_LIBRARY_DOT, _BEST_DOT = 4.0, 5.0
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def roofline_chart(position: RooflinePosition) -> Markup | None:
    """None where nothing is computed, but only moved."""
    if not position.flops:
        return None
    ridge = position.peak_flops_per_s / position.bytes_per_s
    library = position.flops / position.library_s if position.library_s else None
    rates = [position.rate, *([library] if library else [])]
    ends = (min(position.intensity, ridge) / _AROUND, max(position.intensity, ridge) * _AROUND)
    x = Axis(
        log_scale(ends, LEFT, RIGHT, 1.0),
        "operations per byte that must move",
        lambda v: f"{v:,.4g}" if v < 1 else f"{v:,.0f}".replace(",", " "),
    )
    top = max(position.peak_flops_per_s, *rates)
    bottom = min(*rates, position.peak_flops_per_s / _AROUND) / _BELOW
    y = Axis(log_scale((bottom, top * 1.6), BOTTOM, TOP, 1.0), "operations per second", _rate_text)
    # The slope enters the frame at the left, or at the bottom.
    first = max(x.scale.low, y.scale.low / position.bytes_per_s)
    roof = [(first, first * position.bytes_per_s), (ridge, position.peak_flops_per_s)]
    roof.append((x.scale.high, position.peak_flops_per_s))
    at = x.scale(position.intensity)
    line = [(x.scale(i), y.scale(r)) for i, r in roof]
    marks = [path(line, "roof")]
    peak = f"{_rate_text(position.peak_flops_per_s)}FLOP/s {position.element}"
    marks.append(text(RIGHT, TOP - 6, peak, "label", "end"))
    labels = Labels()
    labels.avoid_line(line)
    if library:
        labels.avoid_dot(at, y.scale(library), _LIBRARY_DOT)
        marks.append(dot(at, y.scale(library), "library-dot", f"library: {_rate_text(library)}FLOP/s", _LIBRARY_DOT))
    reached = f"{_rate_text(position.rate)}FLOP/s"
    labels.avoid_dot(at, y.scale(position.rate), _BEST_DOT)
    marks.append(dot(at, y.scale(position.rate), "best-dot", f"best kernel: {reached}", _BEST_DOT))
    # On the side of the point where the roof is not, if there is room.
    below = position.rate < position.intensity * position.bytes_per_s
    beside = _beside(at, y.scale(position.rate), position.is_memory_bound and below)
    marks.append(labels.placed(reached, beside, "label strong"))
    marks.append(labels.placed(_bytes_text(position), _along(line[0], line[1])))
    return plot("Roofline: operations per second over operations per byte", x, y, *marks)


def _beside(x: float, y: float, right_first: bool) -> Iterator[Place]:
    """Places for the label of a dot: at its sides, then below and above them."""
    sides: list[tuple[float, str]] = [(x + 10, "start"), (x - 10, "end")]
    for down in (4, 18, -10, 32, -24):
        yield from ((at, y + down, anchor) for at, anchor in (sides if right_first else reversed(sides)))


def _along(first: tuple[float, float], last: tuple[float, float]) -> Iterator[Place]:
    """Places for the label of a rising line: above and below it, from the middle outwards."""
    for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9):
        x, y = (f + part * (t - f) for f, t in zip(first, last, strict=True))
        yield x - 6, y - 6, "end"
        yield x + 8, y + 12, "start"


def _bytes_text(position: RooflinePosition) -> str:
    return f"{_rate_text(position.bytes_per_s)}B/s"


def _rate_text(rate: float) -> str:
    """`137 T`, with the prefix of the unit to follow."""
    scale, prefix = next(((s, p) for s, p in _UNITS if rate >= s), (1.0, ""))
    return f"{rate / scale:.3g} {prefix}"
