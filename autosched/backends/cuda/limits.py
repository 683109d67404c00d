"""What CUDA C++ can make kernels of: known before anything compiles."""

from __future__ import annotations

from autosched.backends.backend import CompileError
from autosched.backends.cuda.hopper.plan import OFFERS, BlockPlan
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.devices.target import HOPPER
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Offers, Resources


class CudaLimits:
    """Shared memory, registers and threads of a GPU, as printed kernels use them."""

    def offers(self, target: Target) -> Offers:
        return OFFERS if target.capability == HOPPER else USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        reasons = (_why_unfit(program, k, target) for k in program.kernels if k.launch.producer_warps)
        return next(filter(None, reasons), None)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return BlockPlan.of(program, kernel).needs(program) if kernel.launch.producer_warps else None


def _why_unfit(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    """Why a kernel that asks for producer warps cannot be one of the target."""
    if target.capability != HOPPER:
        return f"producer warps on compute capability {target.capability}; expected {HOPPER}"
    try:
        need = BlockPlan.of(program, kernel).needs(program)
    except CompileError as error:
        return str(error)
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    return None
