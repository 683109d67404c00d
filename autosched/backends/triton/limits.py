"""What Triton can make kernels of: known before anything compiles."""

from __future__ import annotations

from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.devices.resources import Resources, resources, why_too_large
from search_spaces.programs.tile_program import Kernel


class TritonLimits:
    """Shared memory, registers and threads of a GPU, as Triton uses them."""

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        return why_too_large(schedule.program, target)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return resources(program, kernel, target)
