"""What CUDA C++ can make kernels of: known before anything compiles."""

from __future__ import annotations

from autosched.backends.cuda import dtypes
from autosched.backends.cuda.resources import resources, why_too_large
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Offers, Resources


class CudaLimits:
    """Element types that a GPU has, and its shared memory, registers and threads, as printed kernels use them."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return dtypes.why_unsupported(workload, target)

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        return next(filter(None, (_why_unfit(program, kernel, target) for kernel in program.kernels)), None)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return None if kernel.launch.producer_warps else resources(program, kernel, target)


def _why_unfit(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    if kernel.launch.producer_warps:
        return f"kernel {kernel.name}: warps that bring operands for others cannot be printed yet"
    reason = why_too_large(program, kernel, target)
    return f"kernel {kernel.name}: {reason}" if reason else None
