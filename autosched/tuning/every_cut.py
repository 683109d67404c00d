"""All cuts of a traced function: a result for every kernel, and the number of its launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from autosched.tracing.callables.traced import Traced, cuts_of
from search_spaces import EmptySearchSpaceError, Workload

# Numbers of launches by the keys of workloads.
Launches = Counter[str]
# The result for one workload.
Found = TypeVar("Found")


def of_all_workloads(traced: Traced, search: Callable[[Workload], Found]) -> tuple[Found, ...]:
    """Results for every workload of all cuts that can be computed on the target.

    Raises:
        EmptySearchSpaceError: a workload of the cut for every device has no legal schedule.
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
    """Number of launches of every kernel in a call, for each cut."""
    if isinstance(op, Workload):
        return (Counter([op.key]),)
    return tuple(Counter(workload.key for workload in cut.launched) for cut in cuts_of(op))
