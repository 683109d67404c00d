"""What is to be tuned together: the kernels of operators and functions, each once, and what a second of it counts."""

from __future__ import annotations

import functools
import math
import operator
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing import Traced
from autosched.tuning.every_cut import Launches, launches, of_all_workloads
from autosched.tuning.searching.search import Search
from cost_models import bound_s
from search_spaces import EmptySearchSpaceError, InputError, Target, Workload

# What `tune_many` takes: what is to be tuned, and its weight.
Weighted = tuple[Workload | Traced, float]

# A way to cut a function that takes so many times as long as the fastest one will not come to be the fastest: after a
# first batch kernels gain a quarter at most, but for few.
_BEHIND = 1.25


def checked(ops: object) -> tuple[Weighted, ...]:
    """What is to be tuned, with its weights.

    Raises:
        InputError: there is nothing, or something that cannot be tuned, or a weight is no positive number.
    """
    if isinstance(ops, Mapping | str) or not isinstance(ops, Iterable):
        raise InputError(f"got {reprlib.repr(ops)}; expected several operators, as [(operator, weight), …]")
    given = tuple(_checked(op) for op in ops)
    if not given:
        raise InputError("expected at least one operator to tune, as (operator, weight); got none")
    return given


def _checked(op: object) -> Weighted:
    found, weight = op if isinstance(op, tuple) and len(op) == 2 else (op, 1.0)
    if not isinstance(found, Workload | Traced):
        raise InputError(
            f"got {reprlib.repr(op)}; expected an operator such as autosched.ops.matmul(512, 512, 512), a function as "
            "autosched.trace(function, *inputs) gives it, or (one of these, its weight)"
        )
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        what = f"weight {weight!r} of {found.label}"
        raise InputError(f"{what}; expected a positive number, such as how often it is called")
    return found, float(weight)


@dataclass
class WeightedSearches:
    """The searches for everything that was added, one for every kernel; `prepare` makes one.

    `refused` says why something was left out, by label.
    """

    target: Target
    prepare: Callable[[Workload], Search]
    refused: dict[str, str] = field(default_factory=dict)
    _searches: dict[str, Search] = field(default_factory=dict)
    # Of everything that was added its weight, and how often each way to cut it launches every kernel.
    _uses: list[tuple[float, Sequence[Launches]]] = field(default_factory=list)

    @property
    def searches(self) -> list[Search]:
        """Those of the first ways to cut functions come first: the others may turn out not to be in question."""
        first = {key for _, cuts in self._uses for key in cuts[0]}
        return sorted(self._searches.values(), key=lambda search: search.space.workload.key not in first)

    def weights(self) -> list[float]:
        """What a second of each counts by now.

        It counts once for every launch, in the way to cut its function that launches it most often; but for the ways
        that are clearly slower than another one.
        """
        counted = {search.space.workload.key: 0.0 for search in self.searches}
        for weight, cuts in self._uses:
            most: Launches = functools.reduce(operator.or_, self._in_question(cuts), Counter())
            for key, count in most.items():
                counted[key] += weight * count
        return list(counted.values())

    def add(self, op: Workload | Traced, weight: float) -> Workload | Traced | None:
        """What the searches are for: a function is cut for the target. None where it was refused."""
        try:
            cut = op if isinstance(op, Workload) else op.for_target(self.target)
        except InputError as error:
            self.refused[op.label] = str(error)
            return None
        try:
            self.add_cut(cut, weight)
        except EmptySearchSpaceError as error:
            self.refused[op.label] = str(error)
            return None
        return cut

    def add_cut(self, cut: Workload | Traced, weight: float) -> None:
        """Add what is cut for the target already.

        Raises:
            EmptySearchSpaceError: a kernel that it needs has no legal schedule; nothing was added.
        """
        made: dict[str, Search] = {}

        def once(workload: Workload) -> Search:
            known = self._searches.get(workload.key) or made.get(workload.key)
            made[workload.key] = known or self.prepare(workload)
            return made[workload.key]

        if isinstance(cut, Workload):
            once(cut)
        else:
            of_all_workloads(cut, once)
        self._searches |= made
        self._uses.append((weight, [each for each in launches(cut) if each.keys() <= made.keys()]))

    def _in_question(self, cuts: Sequence[Launches]) -> Sequence[Launches]:
        """Those that may be the fastest, as far as is known."""
        least = min(self._latency_s(cut, math.inf) for cut in cuts)
        return [cut for cut in cuts if self._latency_s(cut, 0.0) <= _BEHIND * least]

    def _latency_s(self, cut: Launches, unknown: float) -> float:
        """What its kernels take: as far as they were searched; of the others the roofline, but `unknown` at least."""
        searches = ((self._searches[key], count) for key, count in cut.items())
        return sum(
            count * (s.best_s or max(unknown, bound_s(s.space.workload, s.space.target))) for s, count in searches
        )
