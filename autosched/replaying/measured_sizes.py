"""Sizes between the points of a dynamic operator at which a log has measurements: they place its thresholds.

Between two points the larger one's schedule serves, unless a measured size says otherwise. Where it does not serve the
smaller one as well, the size in the middle is asked for; where its best schedule is not that of an end, that half is
asked for next:

    points 16: A        64: B        middle 32, best A: A up to 32; then 45, best B: B from 33 on
    points 16: A        64: A        nothing to ask

So a table follows from records of single sizes, whoever measured them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from autosched.backends import spaces
from autosched.kernels.dynamic_operator import DynamicOperator
from autosched.strategies.evolution.transfer import adapted
from search_spaces import EmptySearchSpaceError, Schedule, Target, Workload

# The best schedules that were measured at a size: the winner, and those that tie with it; none without a measurement.
Best = Callable[[int], Sequence[Schedule]]

# Sizes asked for one after the other within two points: a threshold between points that are four times apart is known
# to a factor of 1.4.
_DEEPEST = 2


def with_measured_sizes(operator: DynamicOperator, target: Target, best: Best) -> tuple[DynamicOperator, list[int]]:
    """The operator with all measured sizes between its points, and those that are asked for and were not measured."""
    asked = [
        size for low, high in pairwise(operator.points) for size in _asked(operator, target, best, low, high, _DEEPEST)
    ]
    measured = [size for size in asked if best(size)]
    return operator.with_between(measured), [size for size in asked if size not in measured]


def _asked(operator: DynamicOperator, target: Target, best: Best, low: int, high: int, depth: int) -> Iterator[int]:
    """Sizes between two others that are asked for, as far as is known."""
    middle = math.isqrt(low * high)
    if depth == 0 or not low < middle < high:
        return
    winner = lent(operator.at(low), target, best(high)[:1])
    if not winner or not best(low) or winner[0] in lent(operator.at(low), target, best(low)):
        return
    yield middle
    found = lent(operator.at(middle), target, best(middle))
    if not found:
        return
    lower, upper = (lent(operator.at(middle), target, best(end)[:1]) for end in (low, high))
    if not set(lower) & set(found[:1]):
        yield from _asked(operator, target, best, low, middle, depth - 1)
    if not set(upper) & set(found):
        yield from _asked(operator, target, best, middle, high, depth - 1)


def lent(workload: Workload, target: Target, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Schedules of other sizes, adapted to a workload, as far as it has such ones."""
    if not schedules:
        return []
    try:
        space = spaces.build(workload, target)
    except EmptySearchSpaceError:
        return []
    return [found for schedule in schedules if (found := adapted(space, schedule)) is not None]
