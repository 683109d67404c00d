"""Limits of LLVM on a CPU: the programs that it makes kernels of, known before anything compiles."""

from __future__ import annotations

from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Distinguished, Offers, Resources


class LlvmLimits:
    """All element types. Registers and caches of a CPU are the sketches' concern."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        return None

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return None
