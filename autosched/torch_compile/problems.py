"""The distinct segments of a graph, cut into kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autosched.machine.garbage import without_collections
from autosched.torch_compile.graphs import Allowed, target_of
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import DividedGraph
from autosched.torch_compile.traced_cache import known_or_traced
from autosched.tracing import TracedFunction
from search_spaces import Target


@dataclass(frozen=True)
class TracedProblem:
    """A segment cut into kernels for a target, and how often it is in the graph."""

    traced: TracedFunction
    target: Target
    times: int


def traced_problems(divided: DividedGraph, kind: Kind, allowed: Allowed) -> dict[str, TracedProblem | str]:
    """For every distinct segment of a graph its kernels, or the reason that there are none; by the segments' keys."""
    # Gradients are of what was written.
    allowed = allowed if kind == "inference" else replace(allowed, numerics="eager")
    found: dict[str, TracedProblem | str] = {}
    with without_collections():
        for segment, times in divided.problems:
            static = divided.static(segment) if allowed.numerics == "fold" else segment.weights
            traced = known_or_traced(segment.module, segment.examples, kind, allowed, static)
            if isinstance(traced, TracedFunction):
                found[segment.key] = TracedProblem(traced, target_of(segment.examples), times)
            else:
                found[segment.key] = traced
    return found
