"""What a cut is judged by: not a device's figures but their proportions, which are alike on all of them."""

from __future__ import annotations

from search_spaces import Workload

# A launch takes as long as moving 8 MB; a byte from memory, as long as 10 operations of pointwise work or 150 of a dot.
LAUNCH_BYTES = 8e6
_FLOPS_PER_BYTE = 10.0
_DOT_FLOPS_PER_BYTE = 150.0


def cost(workload: Workload) -> float:
    """How long a kernel takes, as the number of bytes that memory moves meanwhile."""
    dots = sum(2.0 * s.points for s in workload.stages if s.is_contraction)
    return LAUNCH_BYTES + work(workload.min_bytes + _written_again(workload), workload.flops - dots, dots)


def _written_again(workload: Workload) -> int:
    """The bytes that pointwise work writes more than once: outputs without an axis, at every position of that axis."""
    if not all(s.is_pointwise for s in workload.stages):
        return 0
    points = max(t.elements for t in workload.outputs)
    return sum(t.bytes * (points // t.elements - 1) for t in workload.outputs)


def work(moved: float, flops: float, dots: float) -> float:
    """How long it takes to move so many bytes and do so many operations meanwhile, pointwise ones and those of dots."""
    return max(moved, flops / _FLOPS_PER_BYTE, dots / _DOT_FLOPS_PER_BYTE)
