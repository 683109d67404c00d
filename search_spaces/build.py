"""Builds the search space of a workload on a target."""

from __future__ import annotations

import numpy as np

from search_spaces import sketches
from search_spaces.devices.device_support import why_unsupported
from search_spaces.devices.target import Target
from search_spaces.errors import EmptySearchSpaceError
from search_spaces.schedules.space import SearchSpace
from search_spaces.workloads.workload import Workload


def build(workload: Workload, target: Target) -> SearchSpace:
    """The space of every sketch whose rule matches the structure of the workload.

    Raises:
        EmptySearchSpaceError: the target cannot compute it, or no rule matches; the message says why, or lists the
            rules that were tried.
    """
    if reason := why_unsupported(workload, target):
        raise EmptySearchSpaceError(f"{workload.label} on {target.name}: {reason}")
    derived = [(name, rule.derive(workload, target)) for name, rule in sketches.rules()]
    found = tuple(sketch for _, group in derived for sketch in group)
    if not found:
        tried = ", ".join(name for name, _ in derived)
        raise EmptySearchSpaceError(
            f"no sketch rule matches {workload.label} on {target.name} (tried: {tried})\n{workload}"
        )
    return SearchSpace(workload, target, found)


def why_no_schedule(workload: Workload, target: Target) -> str | None:
    """Why no kernel for the target can be made of the workload: no sketch computes it, or none of their schedules is
    legal; or None."""
    try:
        build(workload, target).sample(np.random.default_rng(0))
    except EmptySearchSpaceError as error:
        return str(error).partition("\n")[0]
    return None
