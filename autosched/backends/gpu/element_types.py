"""The element types that kernels of a workload convert; each backend decides which of them a device supports."""

from __future__ import annotations

from search_spaces import Workload
from search_spaces.workloads.expressions.expression import Apply
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import walk


def converted(workload: Workload) -> frozenset[str]:
    """Element types of inputs and outputs, and those that it rounds to in between."""
    applied = (e for s in workload.stages for e in walk(s.expression) if isinstance(e, Apply))
    rounded = {ROUNDINGS[e.operator] for e in applied if e.operator in ROUNDINGS}
    return frozenset({t.dtype for t in (*workload.inputs, *workload.outputs)} | rounded)
