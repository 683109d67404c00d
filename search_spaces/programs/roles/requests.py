"""Legality of the warp roles that a schedule asks for, defined once for rules and for passes.

Rules of sketches check values that are decided one after the other, before there is a program; the passes that build
roles check kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Protocol

from search_spaces.devices.group_dots import GroupLimits
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.errors import UnmatchedError
from search_spaces.programs.statements import Dot, Load
from search_spaces.programs.tile_program import Kernel, TileProgram

# A slot is filled while another is read.
FEWEST_STAGES = 2
# Ping-pong: two groups compute alternate tiles.
ALTERNATING_GROUPS = 2


class RoleLimits(GroupLimits, Protocol):
    """Roles for which a compiler generates code (see `schedules.limits.Offers`)."""

    @property
    def groups(self) -> int: ...

    @property
    def blocks(self) -> int: ...

    @property
    def im2col(self) -> bool: ...

    @property
    def computes(self) -> bool: ...


def why_no_groups(units: WaveGroups, warps: int, most: int) -> str | None:
    """Reason that `warps` do not form up to `most` consumer groups, or None."""
    allowed = [units.waves * n for n in range(1, most + 1)]
    if warps in allowed:
        return None
    *others, last = map(str, allowed)
    return f"num_warps={warps}; expected {', '.join(others)}{' or ' * bool(others)}{last}"


def why_no_stages(stages: int) -> str | None:
    """Reason that a ring cannot have `stages` slots, or None."""
    return f"{stages} stages; expected at least {FEWEST_STAGES}" if stages < FEWEST_STAGES else None


def why_capped(units: WaveGroups, warps: int, max_registers: int) -> str | None:
    """Reason that the registers of a product's threads must not be capped, or None.

    Several groups take the registers that a producer gives up.
    """
    if not max_registers or warps <= units.waves:
        return None
    return f"max_registers={max_registers}; expected 0 with {warps} warps"


def why_not_alternating(units: WaveGroups, warps: int) -> str | None:
    """Reason that `warps` do not form two groups that compute alternate tiles of a product, or None."""
    expected = ALTERNATING_GROUPS * units.waves
    return None if warps == expected else f"alternating with num_warps={warps}; expected {expected}"


def why_no_turns(units: WaveGroups, warps: int) -> str | None:
    """Reason that `warps` do not form groups that issue the dots of a chain alternately, or None."""
    least = ALTERNATING_GROUPS * units.waves
    return None if warps >= least else f"alternating with num_warps={warps}; expected {least} at least"


def check_request(kernel: Kernel, units: WaveGroups, groups: int, blocks: int, stages: int) -> None:
    """Check the launch of a kernel with a producer, of at most `groups` groups and `blocks` blocks of a cluster.

    Raises:
        UnmatchedError: the launch has another producer, or illegal groups, blocks or stages, or its grid streams.
    """
    launch = kernel.launch
    if reason := why_no_groups(units, launch.num_warps, groups):
        refuse(kernel, reason)
    if launch.producer_warps != 1:
        refuse(kernel, f"producer_warps={launch.producer_warps}; expected 1")
    if launch.num_ctas > blocks:
        refuse(kernel, f"num_ctas={launch.num_ctas}; expected {blocks}")
    if reason := why_no_stages(stages):
        refuse(kernel, reason)
    if kernel.grid.stream:
        refuse(kernel, "its grid streams the reduction; expected whole tiles, or a split axis")


def check_load(kernel: Kernel, load: Load, row_bytes: int = 0) -> None:
    """Raises UnmatchedError if no producer can copy the tile of a load, whose rows have at least `row_bytes` bytes."""
    if load.eviction or load.fill:
        refuse(kernel, f"the load of {load.buffer} has an eviction hint or a fill; expected neither")
    if len(load.dst.axes) != 2:
        refuse(kernel, f"the tile of {load.buffer} has axes {list(load.dst.axes)}; expected two")
    if load.dst.bytes < row_bytes * load.dst.shape[0]:
        refuse(kernel, f"{load.dst} is loaded by descriptor; expected rows of {row_bytes} bytes")


def refuse(kernel: Kernel, reason: str) -> NoReturn:
    raise UnmatchedError(f"kernel {kernel.name} with producer warps: {reason}")


def k_major(load: Load, dot: Dot) -> bool:
    """True if the tile is contiguous along the dot's reduction axis."""
    return load.dst.axes[-1] == dot.axis


def check_types(program: TileProgram, kernel: Kernel, loads: Iterable[Load]) -> None:
    """Raises UnmatchedError if a load casts its tile, which copies cannot do."""
    for load in loads:
        stored = program.buffer(load.buffer).dtype
        if stored != load.dst.dtype:
            refuse(kernel, f"{load.buffer} is {stored} and loaded as {load.dst.dtype}; expected equal types")
