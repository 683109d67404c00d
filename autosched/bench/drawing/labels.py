"""Placement of labels next to points so that they cover nothing: greedily, each at the nearest free place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

# All in pixels. x and y, to the right and up.
Spot = tuple[float, float]
# Left, bottom, right, top.
Box = tuple[float, float, float, float]

# Distance of a label from its point: the nearest, the step, and the numbers of steps and directions to try.
_NEAREST, _STEP, _RINGS = 8.0, 14.0, 14
_DIRECTIONS = 16
_GAP = 2.0


def place_labels(
    anchors: Sequence[Spot], sizes: Sequence[tuple[float, float]], covered: Sequence[Box], frame: Box
) -> list[Spot]:
    """The lower left corner of every label of that width and height, within the frame (left, bottom, right, top).

    `covered` boxes must stay visible. A label without a free place takes the nearest one, covering what is there. The
    most crowded anchors come first, as they have the least choice.
    """
    taken = list(covered)
    places: dict[int, Spot] = {}
    for number in sorted(range(len(anchors)), key=lambda n: -_crowd(anchors[n], anchors)):
        box = _free_box(anchors[number], sizes[number], taken, frame)
        taken.append(box)
        places[number] = (box[0], box[1])
    return [places[number] for number in range(len(anchors))]


def _crowd(anchor: Spot, anchors: Sequence[Spot]) -> int:
    reach = _NEAREST + _STEP * _RINGS
    return sum(math.dist(anchor, other) < reach for other in anchors)


def _free_box(anchor: Spot, size: tuple[float, float], taken: Sequence[Box], frame: Box) -> Box:
    boxes = list(_candidates(anchor, size))
    free = (box for box in boxes if _within(box, frame) and not any(_overlap(box, other) for other in taken))
    return next(free, boxes[0])


def _candidates(anchor: Spot, size: tuple[float, float]) -> Iterator[Box]:
    """Boxes around the anchor, nearest first; to the right before others."""
    (x, y), (width, height) = anchor, size
    for ring in range(_RINGS):
        radius = _NEAREST + ring * _STEP
        for number in range(_DIRECTIONS):
            # 0, 1, -1, 2, -2 …: alternately a direction and its mirror image.
            angle = 2 * math.pi * ((number + 1) // 2) * (-1 if number % 2 else 1) / _DIRECTIONS
            centre_x = x + math.cos(angle) * (radius + width / 2)
            centre_y = y + math.sin(angle) * (radius + height / 2)
            yield centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2


def _within(box: Box, frame: Box) -> bool:
    return frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] + _GAP and b[0] < a[2] + _GAP and a[1] < b[3] + _GAP and b[1] < a[3] + _GAP
