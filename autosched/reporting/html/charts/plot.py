"""The frame of a chart with two axes: grid lines, ticks with their units, names of the axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autosched.reporting.html.markup import Markup, element, joined
from autosched.reporting.html.scales import Scale

# In units of the drawing, which are pixels at the width that a column of the page has.
WIDTH, HEIGHT = 380.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 368.0, 26.0, 194.0
# Height of a line of text, and of what stands above its base line.
_LINE, _ASCENT = 15.0, 4.0


@dataclass(frozen=True)
class Axis:
    """A scale, its name with the unit, and the text of a tick."""

    scale: Scale
    name: str
    text: Callable[[float], str]


def plot(about: str, x: Axis, y: Axis, *marks: Markup) -> Markup:
    """A chart of these marks; `about` describes it to those who do not see it."""
    grid = joined(_line(LEFT, at, RIGHT, at, "grid") for at in map(y.scale, y.scale.ticks()))
    axis = _line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")
    names = joined([_label(LEFT - 46, 11, y.name, "start"), _label(RIGHT, HEIGHT - 2, x.name, "end")])
    drawn = joined([grid, axis, *marks, *_y_ticks(y), *_x_ticks(x), names])
    view = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return element("svg", element("title", about), drawn, viewBox=view, role="img", class_="plot")


def text(x: float, y: float, content: str, class_: str = "label", anchor: str = "start") -> Markup:
    """A text at a place within a chart."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def path(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A line through these places."""
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


def dots(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A dot at each place, as one path: a line of no length with round ends."""
    return element("path", d="".join(f"M{x:.1f} {y:.1f}h0" for x, y in points), class_=class_)


def dot(x: float, y: float, class_: str, about: str, radius: float = 4.0) -> Markup:
    """A larger dot, with a text that a pointer shows."""
    return element("circle", element("title", about), cx=x, cy=y, r=radius, class_=class_)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _label(x: float, y: float, content: str, anchor: str) -> Markup:
    return text(x, y, content, "name", anchor)


def _y_ticks(axis: Axis) -> Iterable[Markup]:
    for tick in axis.scale.ticks():
        yield text(LEFT - 6, axis.scale(tick) + _ASCENT, axis.text(tick), "tick", "end")


def _x_ticks(axis: Axis) -> Iterable[Markup]:
    for tick in axis.scale.ticks():
        at = axis.scale(tick)
        yield _line(at, BOTTOM, at, BOTTOM + 4, "axis")
        yield text(at, BOTTOM + 4 + _LINE - 2, axis.text(tick), "tick", "middle")
