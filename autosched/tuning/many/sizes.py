"""One search for a dynamic operator: its points share what they find, and sizes between them place the thresholds.

The searches of the points are those of any similar kernels (`gradient`): one cost model, the winners of one measured by
the others, and each batch where it should gain most, relative to the fastest conceivable latency of its size. The
finals of a size include the winners of the next larger point and of the largest one: so no size is left with a schedule
that is slower than one schedule for all would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.kernels.dynamic_operator import DynamicOperator
from autosched.machine.deadline import Deadline
from autosched.measuring import Measurer
from autosched.measuring.measurer import Measurers
from autosched.replaying.measured_sizes import lent, with_measured_sizes
from autosched.tuning.many.gradient import Gradient
from autosched.tuning.many.spent import spent_on
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.session import run_all
from autosched.tuning.traced_result import TracedTuneResult
from cost_models import bound_s
from search_spaces import Schedule, Target, Workload
from tuning_logs import Measurement
from tuning_logs.ranking import fastest_trial, tied_with

# Part of a limited time that is for sizes between the points.
_BETWEEN_PART = 0.15


def tune_sizes(
    operator: DynamicOperator,
    target: Target,
    prepare: Callable[[Workload], Search],
    measurer: Measurer | Measurers | None,
    deadline: Deadline,
) -> TracedTuneResult:
    """Search at all points; then compare the winners of neighbours at sizes between them, until the table is known.

    `prepare` makes the search of a workload. Nothing is measured that the log has.

    Raises:
        As `tune`.
    """
    sizes = _Sizes(operator, target, prepare)
    # The largest first: its winner is in the finals of all others.
    points = [sizes.search(size) for size in reversed(operator.points)]
    weights = [1 / bound_s(s.space.workload, target) for s in points]
    gradient = Gradient(points, lambda: weights)
    if not all(search.complete and not search.must_compare(sizes.lend(search)) for search in points):
        run_all(points, gradient, measurer, deadline.part(1 - _BETWEEN_PART), lend=sizes.lend)
    for search in points:
        if search.unfit is not None:
            raise search.unfit
    if not any(search.interrupted for search in points):
        sizes.compare_between(measurer, deadline)
    found, _ = with_measured_sizes(operator, target, sizes.best)
    between = [sizes.search(size) for size in found.between]
    all_weights, turns = [*weights, *(0.0 for _ in between)], [*gradient.turns, *([] for _ in between)]
    return TracedTuneResult(found, spent_on([*points, *between], all_weights, turns))


@dataclass(frozen=True)
class _Sizes:
    """The searches of an operator's sizes, each prepared when it is first asked for."""

    operator: DynamicOperator
    target: Target
    prepare: Callable[[Workload], Search]
    _searches: dict[int, Search] = field(default_factory=dict)

    def search(self, size: int) -> Search:
        if size not in self._searches:
            self._searches[size] = self.prepare(self.operator.at(size))
        return self._searches[size]

    def best(self, size: int) -> Sequence[Schedule]:
        """The winner of a size, and the schedules that tie with it; none without one."""
        search = self.search(size)
        best = search.best
        return tied_with(best, search.records) if best else ()

    def lend(self, search: Search) -> Mapping[Schedule, Measurement]:
        """Schedules for the finals of a search: those of the points beside it and of the largest, adapted.

        They are the winners, of larger points alone unless it is between points, as the finals of these come first; and
        the fastest trials, which do not depend on that order.
        """
        size = next(size for size, known in self._searches.items() if known is search)
        points = self.operator.points
        below, above = [p for p in points if p < size][-1:], [p for p in points if p > size]
        larger = [self.search(point) for point in dict.fromkeys((*above[-1:], *above[:1]))]
        smaller = [self.search(point) for point in below]
        if size in points:
            records = [*(s.best for s in larger), *(fastest_trial(s.records) for s in (*larger, *smaller))]
        else:
            records = [s.best for s in (*larger, *smaller)]
        found: dict[Schedule, Measurement] = {}
        for record in filter(None, records):
            for schedule in lent(search.space.workload, self.target, [record.schedule]):
                found.setdefault(schedule, record.measurement)
        return found

    def compare_between(self, measurer: Measurer | Measurers | None, deadline: Deadline) -> None:
        """Hold finals at sizes between the points, as long as some are missing that were not asked for before."""
        asked: set[int] = set()
        while not deadline.over:
            _, missing = with_measured_sizes(self.operator, self.target, self.best)
            if asked.issuperset(missing):
                return
            searches = [self.search(size) for size in missing if size not in asked]
            asked.update(missing)
            run_all(searches, Gradient((), lambda: ()), measurer, deadline, lend=self.lend)
            if any(search.interrupted for search in searches):
                return
