"""What CUDA C++ can make kernels of: known before anything compiles."""

from __future__ import annotations

from functools import lru_cache

from autosched.backends.backend import CompileError
from autosched.backends.cuda import dtypes
from autosched.backends.cuda.hopper.plan import OFFERS, BlockPlan
from autosched.backends.cuda.memory.ahead import ASYNC_FROM
from autosched.backends.cuda.resources import KEPT_REGISTERS, resources, why_too_large
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.devices.target import HOPPER
from search_spaces.programs.addressing import why_uncounted
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import Offers, Resources


class CudaLimits:
    """Element types that a GPU has, and its shared memory, registers and threads, as printed kernels use them."""

    def offers(self, target: Target) -> Offers:
        if target.capability == HOPPER:
            return OFFERS
        return Offers(waits=target.capability >= ASYNC_FROM, walks=False, skips=False, kept_registers=KEPT_REGISTERS)

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return dtypes.why_unsupported(workload, target)

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        return next(filter(None, (_why_unfit(program, kernel, target) for kernel in program.kernels)), None)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        need = _needs(program, kernel, target)
        return need if isinstance(need, Resources) else None


def _why_unfit(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    if kernel.launch.producer_warps and target.capability != HOPPER:
        return f"producer warps on compute capability {target.capability / 10}; expected {HOPPER / 10}"
    if reason := why_uncounted(kernel.grid):
        return reason
    need = _needs(program, kernel, target)
    if isinstance(need, str):
        return need
    if not kernel.launch.producer_warps:
        return why_too_large(need, kernel, target)
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    return None


# A search asks whether each of a population's programs is fit, and then again what they need, for their features.
@lru_cache(512)
def _needs(program: TileProgram, kernel: Kernel, target: Target) -> Resources | str:
    """Shared memory, registers and threads of a kernel; or the reason why CUDA C++ makes none of the program."""
    try:
        if not kernel.launch.producer_warps:
            return resources(program, kernel, target)
        return BlockPlan.of(program, kernel).needs(program)
    except CompileError as error:
        return str(error)
