"""Roofline plot: roofs, and for every case the tuned kernel and the baseline, joined by a line. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.bench.drawing.labels import Box, place_labels
from autosched.bench.drawing.roofline import Point, Roofline
from search_spaces import AutoschedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

# A palette for the colour-blind, too: Okabe and Ito, "Color universal design" (2008), without yellow, too pale for
# lines, and black, which is the bandwidth's.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_WITHOUT_DOTS = "#444444"
_INCHES = (13.0, 8.0)
_DPI = 150
# Half the size of a marker in pixels, with a little room around it.
_MARKER = 8.0
# So many steps of a slope across the whole picture leave no room for a label between them.
_SLOPE_STEPS = 200
# Margin around the drawing, as a factor on both axes; above the roofs their names need less.
_MARGIN = 2.0


def draw(figures: Roofline, folder: Path, stem: str = "roofline") -> tuple[Path, Path]:
    """Write `roofline.png` and `roofline.svg` to the folder; returns their paths.

    Raises:
        AutoschedError: matplotlib is not installed, or there is no point to draw.
    """
    if not figures.points:
        raise AutoschedError("there is nothing to draw: no shape was measured")
    try:
        # Not through pyplot, which would look for a screen.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise AutoschedError('the picture needs matplotlib: pip install "autosched[plot]"') from None
    picture = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    _set_axes(axes, figures)
    colours = _colours(figures)
    _draw_roofs(axes, figures, colours)
    for point in figures.points:
        _draw_point(axes, point, colours)
    legend = _draw_legend(axes, figures, colours)
    picture.draw_without_rendering()
    _label(axes, figures.points, colours, [legend.get_window_extent().extents, *_drawn(axes, figures)])
    paths = folder / f"{stem}.png", folder / f"{stem}.svg"
    for path in paths:
        picture.savefig(path)
    return paths


def _colours(figures: Roofline) -> Mapping[str, str]:
    dtypes = sorted({p.dtype for p in figures.points if p.dtype} | {dtype for dtype, _ in figures.peaks})
    return {"": _WITHOUT_DOTS, **{dtype: _COLOURS[i % len(_COLOURS)] for i, dtype in enumerate(dtypes)}}


def _set_axes(axes: Axes, figures: Roofline) -> None:
    intensities = [p.intensity for p in figures.points]
    ridges = [rate / figures.bandwidth for _, rate in figures.peaks]
    rates = [rate for p in figures.points for rate in _rates(p)]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(intensities) / _MARGIN, max([*intensities, *ridges]) * _MARGIN)
    axes.set_ylim(min(rates) / _MARGIN, max([*rates, *(rate for _, rate in figures.peaks)]) * math.sqrt(_MARGIN))
    axes.set_xlabel("operations per byte that must move")
    axes.set_ylabel("operations per second")
    axes.yaxis.set_major_formatter(lambda rate, _: _rate_text(rate))
    axes.xaxis.set_major_formatter(lambda intensity, _: f"{intensity:g}")
    axes.set_title(f"{figures.title}\nroofs: rates measured in the same run", fontsize=11)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _rates(point: Point) -> Iterator[float]:
    yield point.tuned_rate
    if point.baseline_rate is not None:
        yield point.baseline_rate


def _draw_roofs(axes: Axes, figures: Roofline, colours: Mapping[str, str]) -> None:
    """The slope of the bandwidth up to the highest ridge, and from its own ridge on a line for every element type."""
    left, right = axes.get_xlim()
    top = max((rate for _, rate in figures.peaks), default=figures.bandwidth * right)
    ridge = top / figures.bandwidth
    axes.plot([left, ridge], [left * figures.bandwidth, top], color="black", linewidth=1.2, zorder=2)
    for dtype, rate in figures.peaks:
        axes.plot([rate / figures.bandwidth, right], [rate, rate], color=colours[dtype], linewidth=1.6, zorder=2)


def _draw_point(axes: Axes, point: Point, colours: Mapping[str, str]) -> None:
    colour = colours.get(point.dtype, _WITHOUT_DOTS)
    if point.baseline_rate is not None:
        ends = [point.baseline_rate, point.tuned_rate]
        axes.plot([point.intensity] * 2, ends, color=colour, linewidth=1.2, zorder=3)
        face, at = "white", (point.intensity, point.baseline_rate)
        axes.plot(*at, "s", color=colour, markersize=6, markerfacecolor=face, markeredgewidth=1.2, zorder=4)
    axes.plot(point.intensity, point.tuned_rate, "o", color=colour, markersize=5.5, zorder=5)


def _draw_legend(axes: Axes, figures: Roofline, colours: Mapping[str, str]) -> Legend:
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], color="black", linewidth=1.2, label=f"copy, {figures.bandwidth / 1e9:.4g} GB/s")]
    for dtype, rate in figures.peaks:
        entries.append(Line2D([], [], color=colours[dtype], linewidth=1.6, label=f"{dtype}, {_rate_text(rate)}"))
    grey = _WITHOUT_DOTS
    entries.append(Line2D([], [], linestyle="", marker="o", color=grey, label="tuned"))
    if figures.baseline:
        hollow = Line2D([], [], linestyle="", marker="s", color=grey, markerfacecolor="white", label=figures.baseline)
        entries.append(hollow)
    return axes.legend(handles=entries, loc="upper left", fontsize=9, framealpha=0.9)


def _label(axes: Axes, points: Sequence[Point], colours: Mapping[str, str], covered: Sequence[Box]) -> None:
    """The name of every case next to its tuned kernel, with a thin line to it if the name had to move away."""
    marks = [axes.annotate(p.name, (p.intensity, p.tuned_rate), fontsize=8) for p in points]
    boxes = [mark.get_window_extent() for mark in marks]
    sizes = [(box.width, box.height) for box in boxes]
    anchors = [tuple(axes.transData.transform((p.intensity, p.tuned_rate))) for p in points]
    places = place_labels(anchors, sizes, covered, axes.get_window_extent().extents)
    for mark, point, place in zip(marks, points, places, strict=True):
        mark.remove()
        x, y = axes.transData.inverted().transform(place)
        axes.annotate(
            point.name,
            (point.intensity, point.tuned_rate),
            xytext=(x, y),
            fontsize=8,
            color=colours.get(point.dtype, _WITHOUT_DOTS),
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
            zorder=6,
        )


def _drawn(axes: Axes, figures: Roofline) -> Iterator[Box]:
    """The pixels of points and roofs; the slope as a row of small steps."""
    left, right = axes.get_xlim()
    ridge = max((rate for _, rate in figures.peaks), default=figures.bandwidth * right) / figures.bandwidth
    for step in range(_SLOPE_STEPS):
        at = left * (ridge / left) ** (step / _SLOPE_STEPS)
        yield _pixels(axes, (at, at * figures.bandwidth), (at, at * figures.bandwidth), _MARKER / 2)
    for point in figures.points:
        rates = list(_rates(point))
        yield _pixels(axes, (point.intensity, min(rates)), (point.intensity, max(rates)), _MARKER)
    for _, rate in figures.peaks:
        yield _pixels(axes, (rate / figures.bandwidth, rate), (right, rate), 1.0)


def _pixels(axes: Axes, low: tuple[float, float], high: tuple[float, float], margin: float) -> Box:
    (left, bottom), (right, top) = axes.transData.transform((low, high))
    return left - margin, bottom - margin, right + margin, top + margin


def _rate_text(rate: float) -> str:
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if rate >= scale:
            return f"{rate / scale:.4g} {unit}"
    return f"{rate:.4g} FLOP/s"
