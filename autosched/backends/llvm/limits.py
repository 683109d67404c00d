"""Limits of LLVM on a CPU: the programs that it makes kernels of, known before anything compiles."""

from __future__ import annotations

from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Distinguished, Offers, Resources
from search_spaces.scheduling import has_dots
from search_spaces.workloads.dtypes import DTYPES, is_float


class LlvmLimits:
    """The supported element types. Registers and caches of a CPU are the sketches' concern."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        allowed = [name for name in DTYPES if is_float(name)]
        for dtype in workload.contracted:
            if dtype not in allowed and has_dots(workload):
                return f"products of {dtype}; contractions for CPUs take those of {', '.join(allowed)}"
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        return None

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return None
