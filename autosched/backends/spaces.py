"""Search spaces of backends that serve a target, each with its own limits."""

from __future__ import annotations

from collections.abc import Iterable

import search_spaces
from autosched import backends
from autosched.backends.backend import Backend
from search_spaces import SearchSpace, Target, Workload
from search_spaces.schedules.limits import Limits


def build(workload: Workload, target: Target, makers: Iterable[Backend] | None = None) -> SearchSpace:
    """The space of every schedule of the workload for which a backend makes a kernel.

    The backends are all that serve the target, or the given ones.

    Raises:
        EmptySearchSpaceError: as `search_spaces.build`.
    """
    return search_spaces.build(workload, target, _limits(backends.for_target(target) if makers is None else makers))


def why_no_schedule(workload: Workload, target: Target) -> str | None:
    """Reason that the workload has no kernel on the target, or None: `search_spaces.why_no_schedule`."""
    return search_spaces.why_no_schedule(workload, target, _limits(backends.for_target(target)))


def _limits(makers: Iterable[Backend]) -> dict[str, Limits]:
    return {backend.name: backend.limits for backend in makers}
