"""Strips: rows of a label, marks on a track with one axis that all rows share, and a figure. Text keeps its size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosched.reporting.html.markup import Markup, element, joined
from autosched.reporting.html.scales import Scale

# A track is half as wide as a chart.
_MOST_TICKS = 3


@dataclass(frozen=True)
class Strip:
    """A row: its label, what is drawn on its track, the figure to its right, and a text that a pointer shows."""

    label: str
    marks: Sequence[Markup]
    figure: str
    about: str = ""


def strips(rows: Iterable[Strip], scale: Scale | None = None, unit: str = "") -> Markup:
    """The rows one below the other, with the ticks of the scale below them; positions are per cent of the track."""
    found = [_row(row) for row in rows]
    if scale is not None:
        ticks = [
            element("i", f"{tick:.4g}{unit}", style=f"left:{scale(tick):.1f}%") for tick in scale.ticks(_MOST_TICKS)
        ]
        track = element("span", *ticks, class_="track ticks")
        found.append(element("div", element("span"), track, element("span"), class_="strip"))
    return element("div", *found, class_="strips")


def bar(start: float, end: float, class_: str) -> Markup:
    """A bar from one position to another, in per cent."""
    return element("b", class_=f"bar {class_}", style=f"left:{start:.1f}%;width:{max(0.0, end - start):.1f}%")


def mark(at: float, class_: str) -> Markup:
    """A mark at a position, in per cent."""
    return element("b", class_=f"mark {class_}", style=f"left:{at:.1f}%")


def heading(content: str, remark: str = "") -> Markup:
    """A row that names the ones below it."""
    return element("div", element("strong", content), " ", element("small", remark), class_="group")


def grouped(parts: Iterable[Markup]) -> Markup:
    """Several groups of strips."""
    return element("div", joined(parts), class_="groups")


def _row(row: Strip) -> Markup:
    label = element("span", row.label, class_="what")
    figure = element("span", row.figure, class_="figure")
    return element(
        "div", label, element("span", *row.marks, class_="track"), figure, class_="strip", title=row.about or None
    )
