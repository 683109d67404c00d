"""What a schedule asks of warps, and why a kernel cannot have such roles: said here once.

Rules of sketches ask before there is a program, of values that are decided one after the other; the passes that make
roles ask of kernels.
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
# Groups that have every other tile each, as ping-pong does.
ALTERNATING_GROUPS = 2


class RoleLimits(GroupLimits, Protocol):
    """What a compiler makes of roles (see `schedules.limits.Offers`)."""

    @property
    def groups(self) -> int: ...

    @property
    def blocks(self) -> int: ...


def why_no_groups(units: WaveGroups, warps: int, most: int) -> str | None:
    """Why so many warps are no groups of consumers, of which there may be so many."""
    allowed = [units.waves * n for n in range(1, most + 1)]
    if warps in allowed:
        return None
    *others, last = map(str, allowed)
    return f"num_warps={warps}; expected {', '.join(others)}{' or ' * bool(others)}{last}"


def why_no_stages(stages: int) -> str | None:
    """Why a ring of so many slots does not do."""
    return f"{stages} stages; expected at least {FEWEST_STAGES}" if stages < FEWEST_STAGES else None


def why_capped(units: WaveGroups, warps: int, max_registers: int) -> str | None:
    """Why the registers of a product's threads have no cap: several groups take those that a producer gives up."""
    if not max_registers or warps <= units.waves:
        return None
    return f"max_registers={max_registers}; expected 0 with {warps} warps"


def why_not_alternating(units: WaveGroups, warps: int) -> str | None:
    """Why so many warps do not do every other tile of a product each."""
    expected = ALTERNATING_GROUPS * units.waves
    return None if warps == expected else f"alternating with num_warps={warps}; expected {expected}"


def why_no_turns(units: WaveGroups, warps: int) -> str | None:
    """Why so many warps do not issue the dots of a chain in turn."""
    least = ALTERNATING_GROUPS * units.waves
    return None if warps >= least else f"alternating with num_warps={warps}; expected {least} at least"


def check_request(kernel: Kernel, units: WaveGroups, groups: int, blocks: int, stages: int) -> None:
    """What all kernels with a producer have in common, of at most so many groups and blocks of a cluster.

    Raises:
        UnmatchedError: a launch asks for something else.
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
    """Raises UnmatchedError where no producer copies a tile as it is loaded; its rows have so many bytes at least."""
    if load.eviction or load.fill:
        refuse(kernel, f"the load of {load.buffer} has an eviction hint or a fill; expected neither")
    if len(load.dst.axes) != 2:
        refuse(kernel, f"the tile of {load.buffer} has axes {list(load.dst.axes)}; expected two")
    if load.dst.bytes < row_bytes * load.dst.shape[0]:
        refuse(kernel, f"{load.dst} is loaded by descriptor; expected rows of {row_bytes} bytes")


def refuse(kernel: Kernel, reason: str) -> NoReturn:
    raise UnmatchedError(f"kernel {kernel.name} with producer warps: {reason}")


def k_major(load: Load, dot: Dot) -> bool:
    """True if neighbours in memory are neighbours along the summed axis."""
    return load.dst.axes[-1] == dot.axis


def check_types(program: TileProgram, kernel: Kernel, loads: Iterable[Load]) -> None:
    """Raises UnmatchedError where a tile would have to be cast on its way, which copies do not."""
    for load in loads:
        stored = program.buffer(load.buffer).dtype
        if stored != load.dst.dtype:
            refuse(kernel, f"{load.buffer} is {stored} and loaded as {load.dst.dtype}; expected equal types")
