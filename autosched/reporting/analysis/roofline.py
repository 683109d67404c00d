"""A task in the roofline of its target, at the nominal rates of the target's description."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.reporting.analysis.tasks import Task
from cost_models.roofline import bound_s
from search_spaces import Target, Workload
from search_spaces.structure.multiplied import multiplied
from search_spaces.structure.pairs_in_segments import needed_parts


@dataclass(frozen=True)
class RooflinePosition:
    """Operations per byte that must move, and the roofs, all per second: operations reached, at most, and bytes.

    Operations are those of dots, where there are any; `element` is their operands' type, and "float32" without dots.
    `bound_s` is the latency that nominal rates allow, all operations included.
    """

    element: str
    flops: int
    bytes: int
    peak_flops_per_s: float
    bytes_per_s: float
    best_s: float
    bound_s: float
    library_s: float | None

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """Operations per second of the best kernel."""
        return self.flops / self.best_s

    @property
    def of_bound(self) -> float:
        """The bound over the latency of the best kernel: 1 is as fast as nominal rates allow."""
        return self.bound_s / self.best_s

    @property
    def is_memory_bound(self) -> bool:
        """True if nothing takes longer than moving the bytes."""
        return self.bytes / self.bytes_per_s >= self.bound_s


def position(task: Task) -> RooflinePosition | None:
    """The position of the best kernel; None without one, or for a user's own kernel, whose work is not known."""
    op, target = task.subject, task.target
    if task.best is None or not isinstance(op, Workload):
        return None
    best_s = task.best.measurement.latency_s
    element, flops, peak = _work(op, target)
    return RooflinePosition(
        element=element,
        flops=flops,
        bytes=op.min_bytes,
        peak_flops_per_s=peak,
        bytes_per_s=target.memory_bytes_per_s,
        best_s=best_s,
        bound_s=bound_s(op, target),
        library_s=best_s * task.against_library.ratio if task.against_library else None,
    )


def _work(op: Workload, target: Target) -> tuple[str, int, float]:
    """Element type, operations and their peak rate: of dots, if there are any."""
    operands = multiplied(op)
    parts = needed_parts(op)
    dots = [(round(parts[s.name] * s.dot_flops), operands[s.name]) for s in op.stages if s.name in operands]
    if not dots:
        return "float32", op.flops, target.fp32_flops
    flops = sum(count for count, _ in dots)
    seconds = sum(count / target.flops_per_s(element, op.precision) for count, element in dots)
    elements = dict.fromkeys("tf32" if op.precision == "tf32" else element for _, element in dots)
    return " and ".join(elements), flops, flops / seconds
