"""Everything that a traced function was cut into: what is found for every kernel, and how often each is launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from autosched.tracing.callables.traced import Traced, cuts_of
from search_spaces import EmptySearchSpaceError, Workload

# Numbers of launches by the keys of workloads.
Launches = Counter[str]
# What is found for one workload.
Found = TypeVar("Found")


def of_all_workloads(traced: Traced, search: Callable[[Workload], Found]) -> tuple[Found, ...]:
    """What is found for every workload of everything it was cut into that can be computed on the target.

    Raises:
        EmptySearchSpaceError: of what is cut as it is on every device, something has no legal schedule.
    """
    found: dict[str, Found] = {}
    for number, cut in enumerate(cuts_of(traced)):
        try:
            for workload in cut.workloads:
                found[workload.key] = found.get(workload.key) or search(workload)
        except EmptySearchSpaceError:
            if number == 0:
                raise
    return tuple(found.values())


def launches(op: Workload | Traced) -> tuple[Launches, ...]:
    """How often a call launches every kernel, in each of the ways in which it was cut."""
    if isinstance(op, Workload):
        return (Counter([op.key]),)
    return tuple(Counter(workload.key for workload in cut.launched) for cut in cuts_of(op))
