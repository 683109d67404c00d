"""Limits of backends: the programs for which a backend can generate code; a search space is given them.

Sketches know the legality of a lowering, and the device. The shared memory and the registers that a compiler allocates
for a program are that compiler's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from search_spaces.devices.target import Target
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.halos import HALO
from search_spaces.programs.im2col import IM2COL
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.knobs import KnobValue
from search_spaces.schedules.schedule import Schedule
from search_spaces.schedules.words import USUAL_WORDS
from search_spaces.workloads.workload import Workload


@dataclass(frozen=True)
class Resources:
    """Estimated resources of one program of a kernel on a GPU, from its tiles and not from a compiler's report.

    `threads` counts consumers; a producer's threads, which have few registers, are additional.
    """

    shared_memory_bytes: int
    registers_per_thread: int
    threads: int


# Registers of a consumer's thread besides its accumulators.
BESIDE_SUMS = 48


@dataclass(frozen=True)
class Offers:
    """Schedules for which a backend has code, most of them warp-specialised.

    The defaults are common to every backend with such kernels.

    Larger values permit more schedules. `tiles`: tile sizes along an axis, besides powers of two up to 256; `groups`:
    consumer warp groups; `sums`: accumulator registers of a thread; `integer_columns`: columns of an integer dot;
    `blocks`: thread blocks of a cluster, which divide a tile and share their loads; `walks`: a producer loads the
    operands of chained dots, too; `through_registers`: rows of 32 bits that do not run along k are multiplied from
    registers; `batches`: a dot may have several products of a batch; `joins`: its operands may be several tiles, one
    after the other; `computes`: rows of a warp group's dots may be computed in registers; `words`: values of decisions
    that not all backends distinguish (`schedules.words`).

    Larger values permit fewer. `dot_registers`: registers of a dot besides its accumulators, of those that a thread is
    launched with, if that is known; `waits`: the operands of every dot stay in shared memory until they are multiplied;
    `kept_registers`: the least registers of a thread of a kernel without a producer, besides accumulators and computed
    operands; `streams`: lanes multiply what they loaded (`Dot.from_memory`).
    """

    tiles: tuple[int, ...] = ()
    groups: int = 2
    sums: int = 128
    integer_columns: int = 128
    blocks: int = 1
    dot_registers: int = 0
    waits: bool = False
    walks: bool = True
    through_registers: bool = True
    batches: bool = True
    joins: bool = True
    merges: bool = False
    computes: bool = False
    kept_registers: int = 0
    streams: bool = False
    words: frozenset[str] = USUAL_WORDS

    @property
    def im2col(self) -> bool:
        """True if a producer loads windows by im2col descriptors."""
        return IM2COL in self.words

    @property
    def halos(self) -> bool:
        """True if windows may be views of tiles in shared memory."""
        return HALO in self.words

    def most_sums(self, units: WaveGroups, groups: int) -> int:
        """The most accumulator registers of a thread of one of `groups` warp groups."""
        return min(self.sums, units.group_registers(groups) - BESIDE_SUMS)

    def least_beside(self, sums: int) -> int:
        """The least registers of a thread without a producer besides the `sums` accumulators of one dot.

        They include the rows and columns of the operands, whose outer product the accumulators are.
        """
        return self.kept_registers + 2 * math.isqrt(sums) if self.kept_registers else 0

    def why_too_many(self, units: WaveGroups, sums: int, columns: int, groups: int, cap: int) -> str | None:
        """Reason that a thread lacks registers for `sums` accumulators or a dot of `columns`, or None.

        `cap`: registers of a thread of each warp group; 0: no cap.
        """
        if not self.dot_registers:
            return None
        at_first = units.first_registers(groups, cap)
        given = units.group_registers(groups) if groups > 1 else at_first
        if sums + BESIDE_SUMS > given:
            return f"{sums} sums of a thread; expected at most {given - BESIDE_SUMS} of {given} registers"
        # ptxas counts all operands of an instruction: the accumulators of its rows.
        if columns * units.rows // units.threads + self.dot_registers > at_first:
            most = (at_first - self.dot_registers) * units.threads // units.rows
            return f"{columns} columns of a dot; expected at most {most} with {at_first} registers"
        return None

    def __or__(self, other: Offers) -> Offers:
        """The schedules that at least one of the two offers."""
        return Offers(
            tuple(sorted({*self.tiles, *other.tiles})),
            max(self.groups, other.groups),
            max(self.sums, other.sums),
            max(self.integer_columns, other.integer_columns),
            max(self.blocks, other.blocks),
            min(self.dot_registers, other.dot_registers),
            self.waits and other.waits,
            self.walks or other.walks,
            self.through_registers or other.through_registers,
            self.batches or other.batches,
            self.joins or other.joins,
            self.merges or other.merges,
            self.computes or other.computes,
            min(self.kept_registers, other.kept_registers),
            self.streams or other.streams,
            self.words | other.words,
        )


# Common to all backends with warp-specialised kernels.
USUAL = Offers()


@dataclass(frozen=True)
class Distinguished:
    """A program as a backend generates it; `idle`: decisions without their full effect, and their values in effect."""

    program: TileProgram
    idle: tuple[tuple[str, KnobValue], ...] = ()


class Limits(Protocol):
    """Limits of a backend, known before anything is compiled."""

    def offers(self, target: Target) -> Offers:
        """Schedules on the target for which not every backend has code.

        The backend refuses those of them that it cannot generate.
        """
        ...

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        """Reason that no schedule can compute the workload on the target, with the allowed values; or None."""
        ...

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        """The limit of the target that the schedule's program breaks, or None if it may be compiled.

        Asked once for all schedules of a sketch with equal values of the knobs that decide resources (`Sketch`).
        Programs that cannot be printed for other reasons are refused by the printer.
        """
        ...

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        """The schedule's program as the backend generates it: equal ones are one kernel.

        None if the backend distinguishes all programs.
        """
        ...

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        """Estimated resources of a kernel of the program on a GPU; None if the backend has no estimate."""
        ...


class Unlimited:
    """The limits of no backend: all that sketches allow."""

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
