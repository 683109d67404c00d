"""Limits of CUDA C++: the programs that it makes kernels of, known before anything compiles."""

from __future__ import annotations

from functools import lru_cache

from autosched.backends.backend import CompileError
from autosched.backends.cuda import dtypes
from autosched.backends.cuda.distinguished import distinguished
from autosched.backends.cuda.hopper.plan import OFFERS, BlockPlan
from autosched.backends.cuda.resources import KEPT_REGISTERS, resources, why_too_large
from autosched.backends.gpu.warps import has_wgmma, why_no_groups, why_other_waves
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.programs.addressing import why_uncounted
from search_spaces.programs.halos import HALO
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import Distinguished, Offers, Resources


class CudaLimits:
    """Element types of a GPU, and its shared memory, registers and threads, as printed kernels use them."""

    def offers(self, target: Target) -> Offers:
        if has_wgmma(target):
            return OFFERS
        copied = target.features.copy_bytes > 0
        return Offers(
            waits=copied,
            walks=False,
            batches=False,
            joins=False,
            kept_registers=KEPT_REGISTERS,
            streams=copied,
            words=frozenset({HALO} if copied else ()),
        )

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return why_other_waves(target) or dtypes.why_unsupported(workload, target)

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        return next(filter(None, (_why_unfit(program, kernel, target) for kernel in program.kernels)), None)

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return distinguished(schedule.program, target.features)

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        need = _needs(program, kernel, target)
        return need if isinstance(need, Resources) else None


def _why_unfit(program: TileProgram, kernel: Kernel, target: Target) -> str | None:
    producers = kernel.launch.producer_warps
    if producers and (why := why_no_groups(target, producers)):
        return why
    if reason := why_uncounted(kernel.grid):
        return reason
    need = _needs(program, kernel, target)
    if isinstance(need, str):
        return need
    if not producers:
        return why_too_large(need, kernel, target)
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    return None


# A search asks for each of a population's programs if it fits, and then again for its needs, as features.
@lru_cache(512)
def _needs(program: TileProgram, kernel: Kernel, target: Target) -> Resources | str:
    """Shared memory, registers and threads of a kernel; or the reason that CUDA C++ has none of the program."""
    try:
        if not kernel.launch.producer_warps:
            return resources(program, kernel, target)
        return BlockPlan.of(program, kernel).needs(program)
    except CompileError as error:
        return str(error)
