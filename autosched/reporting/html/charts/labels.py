"""Places of labels within a chart: each gets the first of its places at which it covers nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosched.reporting.html.charts.plot import BOTTOM, LEFT, RIGHT, TOP, text
from autosched.reporting.html.markup import Markup

# Of a bold font of 11 units: the width of a character, and what stands above and below the base line.
_WIDTH, _ABOVE, _BELOW = 7.0, 9.0, 3.0
# Share of a text that is left of the place of its anchor.
_LEFT_PART = {"start": 0.0, "middle": 0.5, "end": 1.0}
# Points of a line that labels keep clear of, this far apart.
_STEP = 2.0

# The place of a text's anchor: x, y of the base line, and "start", "middle" or "end".
Place = tuple[float, float, str]


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


_FRAME = _Box(LEFT, TOP, RIGHT, BOTTOM)


class Labels:
    """Labels of one chart, placed one after the other."""

    def __init__(self) -> None:
        self._taken: list[_Box] = []

    def avoid_dot(self, x: float, y: float, radius: float) -> None:
        """Keep later labels off a dot."""
        self._taken.append(_Box(x - radius, y - radius, x + radius, y + radius))

    def avoid_line(self, points: Sequence[tuple[float, float]]) -> None:
        """Keep later labels off a line through these points."""
        for (x, y), (next_x, next_y) in itertools.pairwise(points):
            steps = max(1, math.ceil(math.hypot(next_x - x, next_y - y) / _STEP))
            for number in range(steps + 1):
                part = number / steps
                self.avoid_dot(x + part * (next_x - x), y + part * (next_y - y), 1.0)

    def placed(self, content: str, places: Iterable[Place], class_: str = "label") -> Markup:
        """The text at the first place where it is within the frame and covers nothing; at the first one without any."""
        given = list(places)
        free = (place for place in given if self._is_free(_box(content, place)))
        chosen = next(free, given[0])
        self._taken.append(_box(content, chosen))
        x, y, anchor = chosen
        return text(x, y, content, class_, anchor)

    def _is_free(self, box: _Box) -> bool:
        inside = _FRAME.left <= box.left and box.right <= _FRAME.right
        inside &= _FRAME.top <= box.top and box.bottom <= _FRAME.bottom
        return inside and not any(box.overlaps(taken) for taken in self._taken)


def _box(content: str, place: Place) -> _Box:
    x, y, anchor = place
    width = _WIDTH * len(content)
    left = x - _LEFT_PART[anchor] * width
    return _Box(left, y - _ABOVE, left + width, y + _BELOW)
