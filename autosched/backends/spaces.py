"""Search spaces of the backends that serve a target, each with its own limits."""

from __future__ import annotations

import search_spaces
from autosched import backends
from search_spaces import SearchSpace, Target, Workload
from search_spaces.schedules.limits import Limits


def build(workload: Workload, target: Target) -> SearchSpace:
    """The space of every schedule of the workload that some backend makes a kernel of.

    Raises:
        EmptySearchSpaceError: as `search_spaces.build`.
    """
    return search_spaces.build(workload, target, _limits(target))


def why_no_schedule(workload: Workload, target: Target) -> str | None:
    """Why no kernel for the target can be made of the workload, or None: `search_spaces.why_no_schedule`."""
    return search_spaces.why_no_schedule(workload, target, _limits(target))


def _limits(target: Target) -> dict[str, Limits]:
    return {backend.name: backend.limits for backend in backends.for_target(target)}
