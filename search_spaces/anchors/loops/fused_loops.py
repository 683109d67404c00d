"""Ranges of the outermost of several fused loops, as ranges of the count of their iterations.

Before:  for e.0 in 256, of use where first <= e.0 < last:  for k.1 in 2: …
After:   for k.0 in 512, k.0 counts e.0 in 256, k.1 in 2, of use where first*2 <= k.0 < last*2: …
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from search_spaces.anchors.loops.loop_parts import Mask
from search_spaces.programs.tiles import Bound, Digits, Slice
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.workload import Axis


def of_outermost(mask: Mask, digits: Digits, place: Mapping[str, Slice], reduced: Sequence[Axis]) -> Mask:
    """The mask with those forms that are of the outermost loop alone, one position an iteration."""
    outermost, summed = digits.radix[0][0], {x.name for x in reduced}

    def is_counted(form: Affine) -> bool:
        (axis, *others) = [x for x in form.axes if x in summed] or [""]
        if others or axis not in place or place[axis].extent is not None:
            return False
        return place[axis].start == Affine.of((outermost, 1)) and abs(form.step(axis)) == 1

    return replace(mask, forms=frozenset(filter(is_counted, mask.forms)))


def counted(bounds: Collection[Bound], digits: Digits | None) -> tuple[Bound, ...]:
    """Bounds of the outermost digit as those of the number; without digits, as they are.

    number // c + rest < size              where number + c*rest < c*size
    rest - number // c < size              where c*rest - number < c*(size - 1) + 1
    """
    return tuple(_counted(bound, digits) if digits else bound for bound in bounds)


def _counted(bound: Bound, digits: Digits) -> Bound:
    (outermost, _), *inner = digits.radix
    within, sign = math.prod(size for _, size in inner), bound.start.step(outermost)
    rest = (bound.start - Affine.of((outermost, sign))) * within
    size = within * bound.size if sign > 0 else within * (bound.size - 1) + 1
    return Bound(digits.number * sign + rest, size)
