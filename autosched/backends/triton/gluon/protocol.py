"""Synchronisation of a producer and consumer groups, as text of Gluon: barriers, and positions in rings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autosched.backends.printing.scope import Block, call
from search_spaces.programs.roles.statements import (
    TURNS,
    Acquire,
    Advance,
    Await,
    Copy,
    Drain,
    Give,
    Release,
    Ring,
    RoleStatement,
    Skip,
    Start,
    Take,
)
from search_spaces.programs.statements import Load


@dataclass(frozen=True)
class Count:
    """A position as a variable of a function, or its parity alone; `shared`: two groups alternate in its values."""

    name: str
    parity_alone: bool = False
    shared: bool = False

    @property
    def parity(self) -> str:
        """The parity of a ring of one slot."""
        return self.name if self.parity_alone else f"{self.name}{' // 2' if self.shared else ''} & 1"

    def advanced(self, by: int) -> str:
        return f"{self.name} ^= 1" if self.parity_alone else f"{self.name} += {by}"


@dataclass(frozen=True)
class SharedRing:
    """A ring with the names of its barriers and places; `named`: there is a variable `slot`."""

    ring: Ring
    full: str
    empty: str
    places: tuple[str, ...]
    counter: Count
    named: bool = False

    def slot(self, ahead: int = 0) -> str:
        if self.ring.apart:
            return "half"
        if self.ring.slots == 1:
            return "0"
        return "slot" if self.named and not ahead else f"{self._at(ahead)} % {self.ring.slots}"

    def parity(self, ahead: int = 0) -> str:
        return self.counter.parity if self.ring.slots == 1 else f"{self._at(ahead)} // {self.ring.slots} & 1"

    def full_at(self, ahead: int = 0) -> str:
        return f"{self.full}.index({self.slot(ahead)})"

    def empty_at(self, ahead: int = 0) -> str:
        return f"{self.empty}.index({self.slot(ahead)})"

    def place(self, load: Load, ahead: int = 0) -> str:
        """The place of the tile; tiles of other loops share the places."""
        name = self.places[self.ring.loads.index(load) if load in self.ring.loads else 0]
        return name if self.ring.slots == 1 else f"{name}.index({self.slot(ahead)})"

    def _at(self, ahead: int) -> str:
        return f"({self.counter.name} {'+' if ahead > 0 else '-'} {abs(ahead)})" if ahead else self.counter.name


@dataclass(frozen=True)
class Turns:
    """The order of groups: the variable of a group's parity, its initial value, and the next group."""

    name: str
    first: str
    following: str


@dataclass
class Protocol:
    """Prints the synchronisation; `rings`: by name; `copied`: the descriptor and the coordinates of a load.

    `variable`: of the loop that is being printed; `trips`: its trip count, if that may be 0.
    """

    block: Block
    rings: Mapping[str, SharedRing]
    turns: Turns
    copied: Callable[[Load], tuple[str, str]]
    variable: str = ""
    trips: str = ""

    def write(self, s: RoleStatement) -> None:
        """Print a statement that concerns neither tiles nor loops."""
        match s:
            case Start(position, by_group):
                name = self.turns.name if position == TURNS else self._counter(position).name
                first = self.turns.first if position == TURNS else f"half * {by_group}" if by_group else "0"
                self.block.write(f"{name} = {first}")
            case Advance(position, by) | Skip(position, by):
                self.block.write(self._counter(position).advanced(by))
            case Acquire(ring):
                self._acquire(self.rings[ring.name])
            case Copy(ring, load):
                shared, (descriptor, starts) = self.rings[ring.name], self.copied(load)
                self._copy(descriptor, starts, shared.full_at(), shared.place(load))
            case Await(ring, ahead):
                self._await(self.rings[ring.name], ahead)
            case Release():
                self._release(s)
            case Take():
                self.block.write(f"hopper.mbarrier.wait(order.index(half), {self.turns.name})")
                self.block.write(f"{self.turns.name} ^= 1")
            case Give():
                self.block.write(f"hopper.mbarrier.arrive(order.index({self.turns.following}))")
            case Drain():
                # Only this program arrives at its barriers, and it ends when all of its warps do.
                pass
            case _:
                raise AssertionError(f"{type(s).__name__} is printed by who knows its tiles")

    def _copy(self, descriptor: str, starts: str, full: str, place: str) -> None:
        self.block.write(call("load_tile", descriptor, f"[{starts}]", full, place))

    def _acquire(self, shared: SharedRing) -> None:
        if shared.named:
            self.block.write(f"slot = {shared.counter.name} % {shared.ring.slots}")
        # A barrier that was never used counts as passed for the phase before the first.
        self.block.write(f"hopper.mbarrier.wait({shared.empty_at()}, {shared.parity()} ^ 1)")
        self.block.write(f"hopper.mbarrier.expect({shared.full_at()}, {shared.ring.bytes})")

    def _await(self, shared: SharedRing, ahead: int) -> None:
        if shared.named and not ahead:
            self.block.write(f"slot = {shared.counter.name} % {shared.ring.slots}")
        self.block.write(f"hopper.mbarrier.wait({shared.full_at(ahead)}, {shared.parity(ahead)})")

    def _release(self, s: Release) -> None:
        shared, condition = self.rings[s.ring.name], ""
        slot = shared.slot(s.ahead)
        if s.where:
            # In the first iteration this names another slot's barrier, and the predicate is false.
            slots = s.ring.slots
            slot = f"({shared.counter.name} + {slots + s.ahead}) % {slots}"
            some = self.variable if s.where == "behind the first" else self.trips
            condition = f", pred={some} > 0" if some else ""
        self.block.write(f"hopper.mbarrier.arrive({shared.empty}.index({slot}){condition})")

    def _counter(self, position: str) -> Count:
        return next(r.counter for r in self.rings.values() if r.ring.position == position)
