"""What a device cannot compute at all, whatever the schedule: element types and layouts that no sketch need look at."""

from __future__ import annotations

from search_spaces.devices.target import Target
from search_spaces.structure.forms import contraction_form
from search_spaces.workloads.dtypes import DTYPES, FLOAT8, is_float, is_promoted
from search_spaces.workloads.workload import Tensor, Workload

# Conversions and dots of 8-bit floats (PTX ISA, cvt and mma: sm_89 and later), and int8 dots that Triton has.
_FLOAT8_FROM = 89
_INT8_FROM = 80
# Where sums of 8-bit floats can be kept in float32: Hopper's kernels add them up between its dots, Blackwell's data
# centre chips accumulate in float32. What Ada and the other Blackwells have keeps 13 bits of fraction and is not
# interrupted by Triton (Zhang et al., "SageAttention2", 2024, section 3.3).
_FLOAT8_EXACT = range(90, 120)


def why_unsupported(workload: Workload, target: Target) -> str | None:
    """Why no kernel for the target can compute the workload, with what is allowed; or None."""
    tensors = (*workload.inputs, workload.output)
    names = {t.dtype for t in tensors}
    if target.kind == "cpu":
        return _why_unsupported_cpu(workload, tensors)
    float8 = next((n for n in FLOAT8 if n in names), None)
    if float8 and target.capability < _FLOAT8_FROM:
        return _needs(float8, _FLOAT8_FROM, target)
    if "int8" in workload.contracted and target.capability < _INT8_FROM:
        return _needs("int8", _INT8_FROM, target)
    promoted = any(is_promoted(d, workload.precision) for d in workload.contracted)
    if promoted and target.capability not in _FLOAT8_EXACT:
        return (
            f"sums of products of {float8} are not kept in float32 on compute capability {target.capability}, but are "
            f"from {_FLOAT8_EXACT.start} below {_FLOAT8_EXACT.stop}; with fast_accum=True they need not be"
        )
    return None


def _why_unsupported_cpu(workload: Workload, tensors: tuple[Tensor, ...]) -> str | None:
    allowed = [d.name for d in DTYPES.values() if d.name not in FLOAT8]
    for dtype in workload.contracted:
        if not is_float(dtype) and contraction_form(workload):
            return f"products of {dtype}; contractions for CPUs take those of {', '.join(filter(is_float, allowed))}"
    for tensor in tensors:
        if tensor.dtype not in allowed:
            return f"{tensor.name} is {tensor.dtype}; kernels for CPUs take {', '.join(allowed)}"
    return None


def _needs(name: str, capability: int, target: Target) -> str:
    return f"{name} needs compute capability {capability} or later, and {target.name} has {target.capability}"
