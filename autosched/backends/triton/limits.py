"""Limits of Triton: the programs that it makes kernels of, known before anything compiles."""

from __future__ import annotations

from autosched.backends.gpu.element_types import converted
from autosched.backends.gpu.warps import why_other_waves
from autosched.backends.triton.product_loops import why_spilling
from autosched.backends.triton.resources import resources, why_too_large
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.devices.features import FLOAT8_CONVERSIONS
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Distinguished, Offers, Resources
from search_spaces.workloads.dtypes import FLOAT8, is_promoted


class TritonLimits:
    """Element types of a GPU, and its shared memory, registers and threads, as Triton uses them."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        if why := why_other_waves(target):
            return why
        names, features = converted(workload), target.features
        float8 = next((n for n in FLOAT8 if n in names), None)
        if float8 and not features.has(FLOAT8_CONVERSIONS):
            return f"{target.name} has no conversions of {float8}"
        if "int8" in workload.contracted and not features.multiplying("int8"):
            return f"{target.name} has no matrix instructions for int8"
        # Sums of 8-bit floats must be kept in float32: Hopper's kernels add them up between dots of warp groups, tensor
        # memory accumulates in float32. Dots of one warp keep 13 bits of fraction and are not interrupted by Triton
        # (Zhang et al., "SageAttention2", 2024, section 3.3).
        promoted = any(is_promoted(d, workload.precision) for d in workload.contracted)
        if promoted and not any(features.multiplying(d, "shared") for d in workload.contracted):
            return (
                f"sums of products of {float8} are not kept in float32 on {target.name}, whose matrix instructions "
                "read registers alone; with fast_accum=True they need not be"
            )
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        spilling = (why_spilling(program, kernel, target) for kernel in program.kernels)
        return next(filter(None, spilling), None) or why_too_large(program, target)

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return resources(program, kernel, target)
