"""What CUDA C++ can make kernels of: known before anything compiles."""

from __future__ import annotations

from autosched.backends.backend import CompileError
from autosched.backends.cuda import dtypes
from autosched.backends.cuda.hopper.plan import OFFERS, BlockPlan
from autosched.backends.cuda.resources import resources, why_too_large
from autosched.backends.printing.loops import why_marked
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.devices.target import HOPPER
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Offers, Resources


class CudaLimits:
    """Element types that a GPU has, and its shared memory, registers and threads, as printed kernels use them."""

    def offers(self, target: Target) -> Offers:
        return OFFERS if target.capability == HOPPER else USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return dtypes.why_unsupported(workload, target)

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        return next(filter(None, (_why_unfit(program, kernel, target) for kernel in program.kernels)), None)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        if not kernel.launch.producer_warps:
            return resources(program, kernel, target)
        try:
            return BlockPlan.of(program, kernel).needs(program)
        except CompileError:
            return None


def _why_unfit(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    if not kernel.launch.producer_warps:
        return why_marked(kernel.body) or why_too_large(program, kernel, target)
    if target.capability != HOPPER:
        return f"producer warps on compute capability {target.capability}; expected {HOPPER}"
    try:
        need = BlockPlan.of(program, kernel).needs(program)
    except CompileError as error:
        return str(error)
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    return None
