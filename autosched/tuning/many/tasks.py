"""What is to be tuned together: the kernels of operators and functions, each once, and what a second of it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from autosched.tracing import Traced
from autosched.tuning.every_cut import launches, of_all_workloads
from autosched.tuning.many.gradient import Share
from autosched.tuning.searching.search import Search
from search_spaces import EmptySearchSpaceError, InputError, Target, Workload

# What `tune_many` takes: what is to be tuned, and its weight.
Weighted = tuple[Workload | Traced, float]


def checked(ops: Iterable[object]) -> tuple[Weighted, ...]:
    """What is to be tuned, with its weights.

    Raises:
        InputError: there is nothing, or something that cannot be tuned, or a weight is no positive number.
    """
    given = tuple(_checked(op) for op in ops)
    if not given:
        raise InputError("expected at least one operator to tune, as (operator, weight); got none")
    return given


def _checked(op: object) -> Weighted:
    found, weight = op if isinstance(op, tuple) and len(op) == 2 else (op, 1.0)
    if not isinstance(found, Workload | Traced):
        raise InputError(
            f"got {op!r}; expected an operator such as autosched.ops.matmul(512, 512, 512), a function as "
            "autosched.trace(function, *inputs) gives it, or (one of these, its weight)"
        )
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        what = f"weight {weight!r} of {found.label}"
        raise InputError(f"{what}; expected a positive number, such as how often it is called")
    return found, float(weight)


@dataclass
class Tasks:
    """The searches for everything that was added, one for every kernel; `prepare` makes one.

    `refused` says why something was left out, by label.
    """

    target: Target
    prepare: Callable[[Workload], Search]
    refused: dict[str, str] = field(default_factory=dict)
    _searches: dict[str, Search] = field(default_factory=dict)
    _weights: dict[str, float] = field(default_factory=dict)

    @property
    def shares(self) -> list[Share]:
        """The searches, each with its weight: those of one kernel in several places add up."""
        return [Share(search, self._weights[key]) for key, search in self._searches.items()]

    def add(self, op: Workload | Traced, weight: float) -> Workload | Traced | None:
        """What the searches are for: a function is cut for the target. None where it was refused."""
        try:
            cut = op if isinstance(op, Workload) else op.for_target(self.target)
        except InputError as error:
            self.refused[op.label] = str(error)
            return None
        try:
            return self._added(cut, weight)
        except EmptySearchSpaceError as error:
            self.refused[op.label] = str(error)
        return None

    def _added(self, cut: Workload | Traced, weight: float) -> Workload | Traced:
        """Raises EmptySearchSpaceError: a kernel that it needs has no legal schedule; nothing was added."""
        made: dict[str, Search] = {}

        def once(workload: Workload) -> Search:
            known = self._searches.get(workload.key) or made.get(workload.key)
            made[workload.key] = known or self.prepare(workload)
            return made[workload.key]

        if isinstance(cut, Workload):
            once(cut)
        else:
            of_all_workloads(cut, once)
        counted = {cut.key: 1} if isinstance(cut, Workload) else launches(cut)
        self._searches |= made
        for key in made:
            self._weights[key] = self._weights.get(key, 0.0) + weight * counted[key]
        return cut
