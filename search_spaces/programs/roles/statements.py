"""Statements of warp-specialised kernels: rings of buffers, the barriers on them, and what producer and consumers do.

    ring operands: 4 slots of a_tile, b_tile; a slot is empty when 2 groups have released it
    producer, 1 warp of 40 registers:              consumers, 2 groups of 4 warps of 232 registers:
      for each tile:                                 for each tile:
        for k.0 in 8:                                  acc = 0
          acquire operands                             for k.0 in 8:
          copy a_tile, b_tile into operands              await operands
          advance step                                   issue acc += dot(a_tile, b_tile)
      drain operands                                     settle: 1 dot may be left
                                                         release operands of the iteration before
                                                         advance step
                                                       settle: all dots; release operands; epilogue

Every slot has two barriers, full and empty, whose phases alternate: position `step` is slot `step % slots` in phase
`step // slots % 2`. In CUTLASS a ring is a `PipelineTmaAsync` (`producer_acquire`, `consumer_wait`, `consumer_release`,
`producer_tail`), its position a `PipelineState`; `Take` and `Give` are an `OrderedSequenceBarrier`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from search_spaces.programs.statements import Dot, For, Load, Statement
from search_spaces.programs.tile_program import Kernel


@dataclass(frozen=True, slots=True)
class Ring:
    """`slots` places in shared memory, each for the tiles of all `loads`, filled in rotation.

    A slot is full when these have arrived, and empty when `readers` groups of every block have released it. `position`
    counts filled slots; rings with the same position advance together. `apart`: every group has slots of its own, and
    `readers` is 1. `others`: tiles of the same shape that other loops load into it.
    """

    name: str
    loads: tuple[Load, ...]
    slots: int
    readers: int
    position: str
    apart: bool = False
    others: tuple[Load, ...] = ()

    @property
    def tiles(self) -> frozenset[str]:
        """The names of all tiles in it."""
        return frozenset(load.dst.name for load in (*self.loads, *self.others))

    @property
    def bytes(self) -> int:
        """Of one slot."""
        return sum(load.dst.bytes for load in self.loads)


@dataclass(frozen=True, slots=True)
class Start:
    """Set a position to 0 for the first group, `by_group` for the second and twice that for the third.

    The position `TURNS` counts how often the group has taken its place in the order.
    """

    position: str
    by_group: int = 0


TURNS = "turns"


@dataclass(frozen=True, slots=True)
class Acquire:
    """Wait until the slot is empty, as an unused one is; its full barrier then expects the bytes of all loads."""

    ring: Ring


@dataclass(frozen=True, slots=True)
class Copy:
    """Load a tile into the acquired slot; the copy arrives at the slot's full barrier when it is complete."""

    ring: Ring
    load: Load


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until the slot is full: that of the position, or `ahead` of it."""

    ring: Ring
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """Arrive at the slot's empty barrier: that of the position, or `ahead` of it.

    `where`: only in iterations behind the first one of their loop, or only where the loop before had any.
    """

    ring: Ring
    ahead: int = 0
    where: Literal["", "behind the first", "had any"] = ""


@dataclass(frozen=True, slots=True)
class Advance:
    """Increase the position."""

    position: str
    by: int = 1


@dataclass(frozen=True, slots=True)
class Skip:
    """Advance the position past the slots of another group's tile."""

    position: str
    by: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until every slot is empty: a block must not exit while others may arrive at its barriers."""

    ring: Ring


@dataclass(frozen=True, slots=True)
class Take:
    """Wait until the other groups have issued their dots; the first group begins."""


@dataclass(frozen=True, slots=True)
class Give:
    """Allow the next group to issue its dots."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Put the computed operands of these dots into the registers that dots read."""

    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Load the tiles that mark iterations into every warp, so that finding a mark needs no barrier."""

    loads: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Load the rows of a dot, or what they are computed from, into registers.

    From the slot of the position, or `ahead` of it.
    """

    ring: Ring
    load: Load
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Next:
    """Use the rows fetched ahead as the operand of the next dot."""

    load: Load


@dataclass(frozen=True, slots=True)
class Issue:
    """Begin dots, which read their operands from slots of the position or `ahead` of it until they are settled.

    `anew`: the names of accumulators that start from 0.
    """

    dots: tuple[Dot, ...]
    ahead: int = 0
    anew: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait until at most `left` of the dots that have begun still run."""

    dots: tuple[Dot, ...]
    left: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """Repeat the body for each iteration of the loop, or for some of them."""

    loop: For
    body: tuple[RoleStatement, ...]
    part: Literal["all", "first", "behind the first", "before the last"] = "all"


@dataclass(frozen=True, slots=True)
class Place:
    """Single numbers that are read or computed for a tile, or for all of them, with variables bound to them."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Tiles:
    """Repeat the body for each tile of a program, or for every `every`-th one."""

    body: tuple[RoleStatement, ...]
    every: int = 1


@dataclass(frozen=True, slots=True)
class EachGroup:
    """Run the body for the slots of each group; with `alternating`, for those of the group that has this tile."""

    body: tuple[RoleStatement, ...]
    alternating: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The epilogue of one group's part of a tile."""

    body: tuple[RoleStatement, ...]


Waiting = Acquire | Await | Drain | Take | Settle
Moving = Start | Copy | Release | Advance | Skip | Give | Keep | Everywhere | Fetch | Next | Issue
Nested = Steps | Tiles | EachGroup | Finish | Place
RoleStatement = Waiting | Moving | Nested | Statement


@dataclass(frozen=True)
class Role:
    """Warps with one program, and the registers of each of their threads (0: as the kernel is launched)."""

    warps: int
    registers: int
    body: tuple[RoleStatement, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a tile: `size` positions of an axis for each value of a variable (the number of a block or group)."""

    axis: str
    size: int
    variable: str


class Roles(Protocol):
    """A kernel with a producer, and consumer groups of one program."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def rings(self) -> tuple[Ring, ...]: ...

    @property
    def groups(self) -> int: ...

    @property
    def parts(self) -> tuple[Part, ...]: ...

    @property
    def producer(self) -> Role: ...

    @property
    def consumer(self) -> Role: ...


def nested(body: tuple[RoleStatement, ...]) -> Iterator[RoleStatement]:
    """Every statement, outer before inner, in order."""
    for s in body:
        yield s
        if isinstance(s, Nested):
            yield from nested(s.body)
