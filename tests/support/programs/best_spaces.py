"""Search spaces of the best backend of a target alone: of Triton on the GPUs that it serves."""

from __future__ import annotations

from autosched import backends
from autosched.backends import spaces
from search_spaces import SearchSpace, Target, Workload


def build(workload: Workload, target: Target) -> SearchSpace:
    """Raises EmptySearchSpaceError as `autosched.backends.spaces.build`."""
    return spaces.build(workload, target, backends.for_target(target)[:1])
