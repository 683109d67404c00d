"""A tile program as CUDA C++ expresses it: pipelines no deeper than loops, caps on registers by blocks that fit.

stages=8 in a loop of 4 iterations    → stages=4          a ring has no more slots than there are iterations
stages=3, nothing to copy ahead       → stages=0          vectors that no thread has for itself, or too long for slots
load …, evict first, and copied ahead → load …            asynchronous copies take no hints
max_registers=96 of 256 threads       → max_registers=128 `__launch_bounds__` names two blocks for both
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autosched.backends.cuda.dots.operands import BY_REGISTERS
from autosched.backends.cuda.memory.ahead import MOST_AHEAD
from autosched.backends.cuda.printer import KernelPrinter, blocks_that_fit
from autosched.backends.gpu.warps import WARP, WARP_GROUP, WGMMA
from search_spaces.devices.features import Features
from search_spaces.programs.statements import Dot, For, Load, Statement, mapped, statements
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.schedules.limits import Distinguished

# Granularity of the registers of a thread.
_REGISTER_STEP = 8


def distinguished(program: TileProgram, features: Features) -> Distinguished:
    """The program as it is printed, and decisions whose values amount to other ones."""
    made = replace(program, kernels=tuple(_made(program, kernel, features) for kernel in program.kernels))
    idle: dict[str, int | str] = {}
    if (depth := _depth(made.kernels)) != _depth(program.kernels):
        idle["stages"] = depth
    if not _hints(made.kernels) and _hints(program.kernels):
        idle["eviction"] = ""
    caps = {
        (k.launch.max_registers, m.launch.max_registers) for k, m in zip(program.kernels, made.kernels, strict=True)
    }
    if changed := [cap for said, cap in caps if said != cap]:
        idle["max_registers"] = changed[0]
    return Distinguished(made, tuple(idle.items()))


def _depth(kernels: Iterable[Kernel]) -> int:
    """The deepest pipeline without a producer, whose ring has all stages that it is given."""
    loops = (s for k in kernels if not k.launch.producer_warps for s in statements(k.body) if isinstance(s, For))
    return max((s.pipeline_stages for s in loops if s.pipeline_stages > 1), default=1)


def _hints(kernels: Iterable[Kernel]) -> int:
    return sum(bool(s.eviction) for k in kernels for s in statements(k.body) if isinstance(s, Load))


def _made(program: TileProgram, kernel: Kernel, features: Features) -> Kernel:
    launch, body = replace(kernel.launch, max_registers=_cap(kernel.launch)), kernel.body
    if launch.producer_warps:
        return replace(kernel, launch=launch)
    loops = [s for s in statements(body) if isinstance(s, For)]
    if any(s.pipeline_stages for s in loops):
        body = mapped(body, lambda s: _loop(s, program, kernel, features) if isinstance(s, For) else s)
        if _hints((kernel,)):
            body = _without_hints(program, replace(kernel, body=body), features)
    return replace(kernel, body=body, launch=replace(launch, num_stages=1))


def _cap(launch: Launch) -> int:
    """The most registers with which the same number of blocks fits; 0 if that is one."""
    threads = WARP * (launch.num_warps + (WARP_GROUP if launch.producer_warps else 0))
    blocks = blocks_that_fit(launch.max_registers, threads)
    return WGMMA.registers // (blocks * threads) // _REGISTER_STEP * _REGISTER_STEP if blocks > 1 else 0


def _loop(s: For, program: TileProgram, kernel: Kernel, features: Features) -> For:
    inner = s.body[-1] if s.body else None
    if isinstance(inner, For) and not any(isinstance(x, Load) for x in inner.body) and isinstance(s.body[0], Load):
        # All that is loaded for the dots of the inner loop is loaded by the outer one, which is pipelined instead.
        # A persistent program with one block of channels loads ahead across its tiles.
        most = 2 if s.extent == 1 and kernel.grid.walked else s.extent
        depth = min(inner.pipeline_stages, most)
        return replace(s, body=(*s.body[:-1], replace(inner, pipeline_stages=depth if depth > 1 else 0)))
    # Operands through registers alternate from three stages on, in a loop of any length.
    least = 1 if features.copy_bytes else BY_REGISTERS + 1
    # Marked loops and those within are one, as long as both.
    marked = any(isinstance(x, For) and x.marks for x in statements(kernel.body))
    stages = s.pipeline_stages if marked else min(s.pipeline_stages, max(s.extent, least))
    has_dots = any(isinstance(x, Dot) for x in statements(kernel.body))
    if not has_dots and not _may_be_ahead(s, stages, program, kernel, features):
        stages = 0
    return replace(s, pipeline_stages=stages if stages > 1 else 0)


def _may_be_ahead(s: For, stages: int, program: TileProgram, kernel: Kernel, features: Features) -> bool:
    """True if some load fits the slots and gives every thread a copy: a necessary condition, without layouts."""
    least = features.copy_bytes * WARP * kernel.launch.num_warps
    most = MOST_AHEAD // max(stages - 1, 1)
    loads = (x for x in s.body if isinstance(x, Load) and program.buffer(x.buffer).dtype == x.dst.dtype)
    return least > 0 and any(least <= x.dst.bytes <= most for x in loads)


def _without_hints(program: TileProgram, kernel: Kernel, features: Features) -> tuple[Statement, ...]:
    """The body without eviction hints on loads that become asynchronous copies, which have none."""
    printer = KernelPrinter(program, kernel, features)

    def unhinted(s: Statement) -> Statement:
        ahead = printer.loads_ahead(s) if isinstance(s, For) else None
        if not isinstance(s, For) or ahead is None:
            return s
        loads = ahead.loads
        return replace(s, body=tuple(replace(x, eviction="") if x in loads else x for x in s.body))

    return mapped(kernel.body, unhinted)
