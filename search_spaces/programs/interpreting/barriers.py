"""State of simulated roles: barriers, slots of rings, and the agents that synchronise by them.

A barrier is an mbarrier: a wait for a phase's parity passes where the phase before the present one has that parity, so
that a barrier which was never used counts as passed for odd phases (PTX ISA, "mbarrier.test_wait").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from search_spaces.programs.interpreting.interpreter import OneProgram
from search_spaces.programs.interpreting.operations import Array
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.tiles import Tile


@dataclass
class Barrier:
    """An mbarrier, whose phases end after `arrivals` arrivals."""

    arrivals: int
    arrived: int = 0
    phase: int = 0

    def arrive(self) -> None:
        self.arrived += 1
        if self.arrived == self.arrivals:
            self.arrived, self.phase = 0, self.phase + 1

    def passed(self, parity: int) -> bool:
        return (self.phase - 1) % 2 == parity


@dataclass
class Slot:
    """A slot of a ring: its barriers, and the position for which it was filled.

    It counts the copies that have not begun, and the groups of its block that have not released it; and has the tiles
    in it, if anything is computed.
    """

    full: Barrier
    empty: Barrier
    position: int = -1
    left: int = 0
    readers: int = 0
    tiles: dict[int, tuple[Tile, Array]] = field(default_factory=dict)


@dataclass
class Agent:
    """A producer or a group of one block.

    It has positions, acquired slots, and unsettled dots with the slots that they read. `computed`: its values; `trips`:
    of the last loop.
    """

    block: int
    group: int
    computed: OneProgram | None
    positions: dict[str, int] = field(default_factory=dict)
    has: list[tuple[str, int]] = field(default_factory=list)
    dots: list[tuple[str, set[tuple[str, int]]]] = field(default_factory=list)
    trips: int = 0

    def among(self, group: int, several: int) -> Agent:
        """The producer as it fills slots of one group, which has one of `several` tiles."""
        positions = {position: at // several for position, at in self.positions.items()}
        computed = self.computed and replace(self.computed, variables=self.computed.variables | {HALF: group})
        return Agent(self.block, group, computed, positions)
