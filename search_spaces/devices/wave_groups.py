"""Groups of waves that issue matrix instructions together (warp groups), and their registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.devices.features import MatrixInstruction, RegisterShares


@dataclass(frozen=True)
class WaveGroups:
    """Groups of `waves` waves of `wave` threads: they multiply from shared memory and accumulate in their registers.

    `instructions`: those that they issue, each of the same rows; of a multiprocessor's `registers` a thread has at most
    `registers_per_thread`, and groups give each other `shares`.
    """

    wave: int
    registers: int
    registers_per_thread: int
    instructions: Sequence[MatrixInstruction]
    shares: RegisterShares

    @property
    def waves(self) -> int:
        return self.instructions[0].waves

    @property
    def threads(self) -> int:
        return self.waves * self.wave

    @property
    def rows(self) -> int:
        """Rows of an instruction: a group has a multiple of these."""
        return self.instructions[0].m

    @property
    def widest(self) -> int:
        """The most columns of an instruction."""
        return max(i.widest for i in self.instructions)

    @property
    def row_bytes(self) -> int:
        """The shortest rows of shared memory that they read."""
        return max(i.row_bytes for i in self.instructions)

    def multiplying(self, element: str) -> MatrixInstruction | None:
        """The instruction for elements of a type, or None."""
        return next((i for i in self.instructions if element in i.types), None)

    def first_registers(self, groups: int, cap: int = 0) -> int:
        """Registers of every thread at launch, for `groups` consumer groups and a producer group.

        At most `cap` (0: no cap).
        """
        shared = self.registers // ((groups + 1) * self.threads)
        return self._whole(min(cap or shared, shared, self.registers_per_thread))

    def group_registers(self, groups: int, cap: int = 0, kept: int = 0) -> int:
        """Registers of a thread of one of several consumer groups, besides a producer that keeps `kept` (0: the least).

        The consumers share equally all that the producer leaves.
        """
        left = ((groups + 1) * self.first_registers(groups, cap) - (kept or self.shares.least)) // groups
        return min(self._whole(left), self.shares.most)

    def _whole(self, registers: int) -> int:
        return registers // self.shares.step * self.shares.step
