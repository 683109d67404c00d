"""Tasks to tune together: the kernels of operators and functions, each once, with weights."""

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

# Argument of `tune_many`: an operator or function, and its weight.
Weighted = tuple[Workload | Traced, float]

# A cut of a function that takes so many times as long as the fastest one will not become the fastest: after a first
# batch kernels gain a quarter at most, with few exceptions.
_BEHIND = 1.25


def checked(ops: object) -> tuple[Weighted, ...]:
    """Operators and functions to tune, with their weights.

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

    `refused` has the reasons of everything left out, by label.
    """

    target: Target
    prepare: Callable[[Workload], Search]
    refused: dict[str, str] = field(default_factory=dict)
    _searches: dict[str, Search] = field(default_factory=dict)
    # For everything that was added its weight, and the launches of every kernel in each cut.
    _uses: list[tuple[float, Sequence[Launches]]] = field(default_factory=list)

    @property
    def searches(self) -> list[Search]:
        """The searches, those of functions' first cuts before others, which may prove irrelevant."""
        first = {key for _, cuts in self._uses for key in cuts[0]}
        return sorted(self._searches.values(), key=lambda search: search.space.workload.key not in first)

    def weights(self) -> list[float]:
        """The present weight of a second of each kernel.

        It counts once for every launch, in the cut of its function that launches it most often, without the cuts that
        are clearly slower than another one.
        """
        counted = {search.space.workload.key: 0.0 for search in self.searches}
        for weight, cuts in self._uses:
            most: Launches = functools.reduce(operator.or_, self._in_question(cuts), Counter())
            for key, count in most.items():
                counted[key] += weight * count
        return list(counted.values())

    def add(self, op: Workload | Traced, weight: float) -> Workload | Traced | None:
        """Add an operator or function; returns it cut for the target, or None if it was refused."""
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
        """Add one that is cut for the target already.

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
        """The cuts that may be the fastest, as far as is known."""
        least = min(self._latency_s(cut, math.inf) for cut in cuts)
        return [cut for cut in cuts if self._latency_s(cut, 0.0) <= _BEHIND * least]

    def _latency_s(self, cut: Launches, unknown: float) -> float:
        """Sum over its kernels: their best latencies; for those without one the roofline, but `unknown` at least."""
        searches = ((self._searches[key], count) for key, count in cut.items())
        return sum(
            count * (s.best_s or max(unknown, bound_s(s.space.workload, s.space.target))) for s, count in searches
        )
