"""What Triton can make kernels of: known before anything compiles."""

from __future__ import annotations

from autosched.backends.gpu.element_types import converted
from autosched.backends.triton.product_loops import why_spilling
from autosched.backends.triton.resources import resources, why_too_large
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Offers, Resources
from search_spaces.workloads.dtypes import FLOAT8, is_promoted

# Conversions and dots of 8-bit floats (PTX ISA, cvt and mma: sm_89 and later), and int8 dots that Triton has.
_FLOAT8_FROM = 89
_INT8_FROM = 80
# Where sums of 8-bit floats can be kept in float32: Hopper's kernels add them up between its dots, Blackwell's data
# centre chips accumulate in float32. What Ada and the other Blackwells have keeps 13 bits of fraction and is not
# interrupted by Triton (Zhang et al., "SageAttention2", 2024, section 3.3).
_FLOAT8_EXACT = range(90, 120)


class TritonLimits:
    """Element types that a GPU has, and its shared memory, registers and threads, as Triton uses them."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        names = converted(workload)
        float8 = next((n for n in FLOAT8 if n in names), None)
        if float8 and target.capability < _FLOAT8_FROM:
            return _needs(float8, _FLOAT8_FROM, target)
        if "int8" in workload.contracted and target.capability < _INT8_FROM:
            return _needs("int8", _INT8_FROM, target)
        promoted = any(is_promoted(d, workload.precision) for d in workload.contracted)
        if promoted and target.capability not in _FLOAT8_EXACT:
            least, most = _FLOAT8_EXACT.start / 10, _FLOAT8_EXACT.stop / 10
            return (
                f"sums of products of {float8} are not kept in float32 on compute capability {target.capability / 10}, "
                f"but are from {least} below {most}; with fast_accum=True they need not be"
            )
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        spilling = (why_spilling(program, kernel) for kernel in program.kernels)
        return next(filter(None, spilling), None) or why_too_large(program, target)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return resources(program, kernel, target)


def _needs(name: str, capability: int, target: Target) -> str:
    return f"{name} needs compute capability {capability / 10} or later, and {target.name} has {target.capability / 10}"
