"""What a backend asks of the programs that it makes kernels of: known to it, and handed in to a search space.

Sketches know what can be lowered, and what a device is. What a compiler makes of a program (how much of it goes to
shared memory and registers) is the compiler's own, and another one's is another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from search_spaces.devices.target import Target
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.knobs import KnobValue
from search_spaces.schedules.schedule import Schedule
from search_spaces.schedules.words import EVERY_WORD
from search_spaces.workloads.workload import Workload


@dataclass(frozen=True)
class Resources:
    """What one program of a kernel needs on a GPU: estimates from its tiles, not what a compiler reported.

    `threads` are those that compute; a producer's, which have few registers, come beside them.
    """

    shared_memory_bytes: int
    registers_per_thread: int
    threads: int


# Registers of a thread of a warp group that computes, beside its sums.
BESIDE_SUMS = 48


@dataclass(frozen=True)
class Offers:
    """Schedules that a backend has code for, most of them of warp-specialized kernels, whose producer warp loads the
    operands of dots. The defaults are what every backend with such kernels can make.

    The greater these are, the more schedules there are. `tiles`: tile sizes along an axis, beside powers of two up to
    256; `groups`: consumer warp groups; `sums`: accumulator registers of a thread; `integer_columns`: columns of an
    integer dot; `blocks`: thread blocks of a cluster, each of which has a part of a tile, and which share their loads;
    `walks`: a producer loads the operands of chained dots, too; `words`: values of decisions that not all backends tell
    apart (`schedules.words`).

    The greater these are, the fewer there are. `dot_registers`: registers that a dot takes beside its accumulators, of
    those that a thread is launched with, where that is known; `waits`: the operands of every dot stay in shared memory
    until they are multiplied; `kept_registers`: registers that a thread of a kernel without a producer keeps at the
    least, beside accumulators and what it computes to multiply.
    """

    tiles: tuple[int, ...] = ()
    groups: int = 2
    sums: int = 128
    integer_columns: int = 128
    blocks: int = 1
    dot_registers: int = 0
    waits: bool = False
    walks: bool = True
    kept_registers: int = 0
    words: frozenset[str] = EVERY_WORD

    def most_sums(self, units: WaveGroups, groups: int) -> int:
        """The most sums of a thread of one of so many warp groups."""
        return min(self.sums, units.group_registers(groups) - BESIDE_SUMS)

    def least_beside(self, sums: int) -> int:
        """What a thread without a producer keeps beside so many sums of one dot, at the least: the rows and columns of
        which they are the products come beside all else."""
        return self.kept_registers + 2 * math.isqrt(sums) if self.kept_registers else 0

    def why_too_many(self, units: WaveGroups, sums: int, columns: int, groups: int, cap: int) -> str | None:
        """Why a thread has not the registers for so many sums, or for a dot of so many columns; `cap`: what each of so
        many warp groups may have (0: as many as there are)."""
        if not self.dot_registers:
            return None
        at_first = units.first_registers(groups, cap)
        given = units.group_registers(groups) if groups > 1 else at_first
        if sums + BESIDE_SUMS > given:
            return f"{sums} sums of a thread; expected at most {given - BESIDE_SUMS} of {given} registers"
        # All operands of an instruction: the sums of its rows.
        if columns * units.rows // units.threads + self.dot_registers > at_first:
            most = (at_first - self.dot_registers) * units.threads // units.rows
            return f"{columns} columns of a dot; expected at most {most} with {at_first} registers"
        return None

    def __or__(self, other: Offers) -> Offers:
        """What one or the other offers."""
        return Offers(
            tuple(sorted({*self.tiles, *other.tiles})),
            max(self.groups, other.groups),
            max(self.sums, other.sums),
            max(self.integer_columns, other.integer_columns),
            max(self.blocks, other.blocks),
            min(self.dot_registers, other.dot_registers),
            self.waits and other.waits,
            self.walks or other.walks,
            min(self.kept_registers, other.kept_registers),
            self.words | other.words,
        )


# What all of them have that have any.
USUAL = Offers()


@dataclass(frozen=True)
class Distinguished:
    """A program as a backend makes it; `idle`: the decisions that make less than they say, and what they make."""

    program: TileProgram
    idle: tuple[tuple[str, KnobValue], ...] = ()


class Limits(Protocol):
    """What a backend can make, told before anything is compiled."""

    def offers(self, target: Target) -> Offers:
        """What spaces may hold for it on the target that others do not; it refuses what it cannot make itself."""
        ...

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        """Why no schedule can compute the workload on the target, with what is allowed; or None."""
        ...

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        """The limit of the target that the schedule's program breaks, or None when it may be compiled.

        Asked once for all schedules of a sketch that agree in the knobs that decide resources (`Sketch`). What cannot
        be printed for other reasons is refused when it is printed.
        """
        ...

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        """The schedule's program as the backend makes it: those of which this is equal are one kernel. None where it
        tells all programs apart."""
        ...

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        """What a kernel of the program needs of a GPU; None where the backend has no estimate."""
        ...


class Unlimited:
    """The limits of no backend: what sketches allow is allowed."""

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


UNLIMITED = Unlimited()
# The backends of a search space that is built for none in particular.
NO_BACKEND: Mapping[str, Limits] = {"": UNLIMITED}
