"""The roofline of a target, with the best kernel and the library in it."""

from __future__ import annotations

from autosched.reporting.analysis.roofline import RooflinePosition
from autosched.reporting.html.charts.plot import BOTTOM, LEFT, RIGHT, TOP, Axis, dot, path, plot, text
from autosched.reporting.html.markup import Markup
from autosched.reporting.html.scales import log_scale

# Factors beyond the points and the ridge, to either side and below.
_AROUND, _BELOW = 8.0, 4.0
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
    marks = [path([(x.scale(i), y.scale(r)) for i, r in roof], "roof")]
    peak = f"{_rate_text(position.peak_flops_per_s)}FLOP/s {position.element}"
    marks.append(text(RIGHT, TOP - 6, peak, "label", "end"))
    middle = (first * ridge) ** 0.5
    marks.append(
        text(x.scale(middle) - 6, y.scale(middle * position.bytes_per_s) - 6, _bytes_text(position), "label", "end")
        if x.scale(middle) > (LEFT + RIGHT) / 2.6
        else text(x.scale(middle) + 8, y.scale(middle * position.bytes_per_s) + 12, _bytes_text(position), "label")
    )
    if library:
        marks.append(dot(at, y.scale(library), "library-dot", f"library: {_rate_text(library)}FLOP/s"))
    reached = f"{_rate_text(position.rate)}FLOP/s"
    marks.append(dot(at, y.scale(position.rate), "best-dot", f"best kernel: {reached}", 5.0))
    # On the side of the point where the roof is not.
    below = position.rate < position.intensity * position.bytes_per_s
    side, anchor = (10, "start") if position.is_memory_bound and below else (-10, "end")
    marks.append(text(at + side, y.scale(position.rate) + 4, reached, "label strong", anchor))
    return plot("Roofline: operations per second over operations per byte", x, y, *marks)


def _bytes_text(position: RooflinePosition) -> str:
    return f"{_rate_text(position.bytes_per_s)}B/s"


def _rate_text(rate: float) -> str:
    """`137 T`, with the prefix of the unit to follow."""
    scale, prefix = next(((s, p) for s, p in _UNITS if rate >= s), (1.0, ""))
    return f"{rate / scale:.3g} {prefix}"
