"""Simulated barriers of a kernel's roles: whether producer and consumers get along, whoever is fast or slow.

    deadlock                     everybody waits for somebody
    overwritten                  a slot is filled that somebody still reads, or has not read
    read before it is filled     what lies in a slot is not what its position says
    released while dots read it  dots that were issued are not settled

A barrier is an mbarrier: a wait for a phase's parity passes where the phase before the present one has that parity, so
that a barrier which was never used counts as passed for odd phases (PTX ISA, "mbarrier.test_wait").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from search_spaces.programs.roles.statements import (
    TURNS,
    Acquire,
    Advance,
    Await,
    Copy,
    Drain,
    EachGroup,
    Fetch,
    Give,
    Issue,
    Nested,
    Release,
    Ring,
    Roles,
    RoleStatement,
    Settle,
    Skip,
    Start,
    Steps,
    Take,
    Tiles,
)
from search_spaces.programs.roles.trip_counts import iterations_at
from search_spaces.programs.statements import For

# A blocked agent goes on when this holds.
_Ready = Callable[[], bool]


class _UnsoundError(Exception):
    pass


def why_unsound(roles: Roles, rng: np.random.Generator, orders: int = 4, tiles: int = 5) -> str | None:
    """What goes wrong in the first tiles of a kernel's first program, in some orders of who goes on: one as it comes,
    and others in which some always go before others; or None."""
    try:
        for number in range(orders):
            _Program(roles, rng, tiles, fair=number == 0).run()
    except _UnsoundError as why:
        return str(why)
    return None


@dataclass
class _Barrier:
    """An mbarrier, of which a phase ends with so many arrivals."""

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
class _Slot:
    """Its barriers; the position that it was filled for, of which so many copies have begun, and who has it yet."""

    full: _Barrier
    empty: _Barrier
    position: int = -1
    left: int = 0
    readers: int = 0


@dataclass
class _Agent:
    """A producer or a group, of one block: its positions, and the slots that it has, and that its dots read."""

    block: int
    group: int
    positions: dict[str, int] = field(default_factory=dict)
    has: list[tuple[str, int]] = field(default_factory=list)
    dots: list[set[tuple[str, int]]] = field(default_factory=list)
    trips: int = 0

    def among(self, group: int, several: int) -> _Agent:
        """The producer where it fills what is a group's own, in every one of several tiles."""
        return _Agent(self.block, group, {position: at // several for position, at in self.positions.items()})


class _Program:
    def __init__(self, roles: Roles, rng: np.random.Generator, tiles: int, fair: bool) -> None:
        self._roles, self._rng, self._fair = roles, rng, fair
        self._blocks = roles.kernel.launch.num_ctas
        grid = roles.kernel.grid
        self._tiles = [grid.position(n) for n in range(0, grid.tiles, grid.programs)][:tiles]
        self._marked: dict[tuple[str, int], int] = {}
        self._slots = {
            (block, ring.name, group, n): self._slot(ring)
            for block in range(self._blocks)
            for ring in roles.rings
            for group in (range(roles.groups) if ring.apart else (0,))
            for n in range(ring.slots)
        }
        self._order = [[_Barrier(1) for _ in range(roles.groups)] for _ in range(self._blocks)]
        self._copies: list[tuple[_Slot, int]] = []

    def _slot(self, ring: Ring) -> _Slot:
        blocks = 1 if ring.apart else self._blocks
        # The announcement of the producer, and every copy of a load, or of a block's part of it.
        return _Slot(_Barrier(1 + len(ring.loads) * blocks), _Barrier(ring.readers * blocks))

    def run(self) -> None:
        agents: dict[str, Iterator[_Ready]] = {}
        for block in range(self._blocks):
            agents[f"producer of block {block}"] = self._produce(_Agent(block, -1))
            for group in range(self._roles.groups):
                agents[f"group {group} of block {block}"] = self._consume(_Agent(block, group))
        ready: dict[str, _Ready] = dict.fromkeys(agents, lambda: True)
        names = [*agents, "copies"]
        first = dict(zip(names, self._rng.permutation(len(names)), strict=True))
        while agents:
            able = [name for name in agents if ready[name]()] + ["copies"] * bool(self._copies)
            if not able:
                raise _UnsoundError(f"deadlock: {', '.join(agents)} wait")
            chosen = str(self._rng.choice(able)) if self._fair else max(able, key=first.__getitem__)
            if chosen == "copies":
                self._arrive()
                continue
            try:
                ready[chosen] = next(agents[chosen])
            except StopIteration:
                del agents[chosen]
        if any(slot.readers for slot in self._slots.values()):
            raise _UnsoundError("a slot was filled that nobody released")

    def _arrive(self) -> None:
        """A copy is done, whichever."""
        slot, position = self._copies.pop(int(self._rng.integers(len(self._copies))))
        if slot.position != position:
            raise _UnsoundError(f"a copy for position {position} came to a slot that was filled for {slot.position}")
        slot.full.arrive()

    def _produce(self, agent: _Agent) -> Iterator[_Ready]:
        return self._body(self._roles.producer.body, agent, 0, {})

    def _consume(self, agent: _Agent) -> Iterator[_Ready]:
        yield from self._body(self._roles.consumer.body, agent, 0, {})
        if agent.dots:
            raise _UnsoundError(f"group {agent.group} ends with dots that were not settled")

    def _body(
        self, body: Sequence[RoleStatement], agent: _Agent, tile: int, at: Mapping[str, int], first: bool = True
    ) -> Iterator[_Ready]:
        """`tile`: the number of the tile among those of the program, which is `at` these; `first`: of a loop."""
        for s in body:
            match s:
                case Tiles(body=inner, every=every):
                    for number in range(agent.group if every > 1 else 0, len(self._tiles), every):
                        yield from self._body(inner, agent, number, self._tiles[number])
                case Steps(loop, inner, part):
                    agent.trips = self._trips(loop, tile, at)
                    begin = int(part == "behind the first")
                    end = {"first": 1, "before the last": agent.trips - 1}.get(part, agent.trips)
                    for n in range(begin, end):
                        yield from self._body(inner, agent, tile, at, first=n == 0)
                case EachGroup(body=inner, alternating=alternating):
                    for group in [tile % 2] if alternating else range(self._roles.groups):
                        yield from self._body(inner, agent.among(group, 1 + alternating), tile, at)
                case _ if isinstance(s, Nested):
                    yield from self._body(s.body, agent, tile, at)
                case _:
                    yield from self._step(s, agent, first)

    def _trips(self, loop: For, tile: int, at: Mapping[str, int]) -> int:
        trips = iterations_at(loop, at)
        if not loop.marks:
            return trips
        # As many as data says, everybody the same.
        return self._marked.setdefault((loop.variable, tile), int(self._rng.integers(trips + 1)))

    def _step(self, s: RoleStatement, agent: _Agent, first: bool) -> Iterator[_Ready]:
        match s:
            case Start(position, by_group):
                agent.positions[position] = agent.group * by_group if position != TURNS else int(agent.group == 0)
            case Advance(position, by) | Skip(position, by):
                agent.positions[position] += by
            case Acquire(ring):
                yield from self._acquire(ring, agent)
            case Copy(ring):
                self._copy(ring, agent)
            case Await(ring, ahead):
                yield from self._await(ring, agent.positions[ring.position] + ahead, agent)
            case Release(ring, ahead, where):
                if not (where == "behind the first" and first) and not (where == "had any" and not agent.trips):
                    self._release(ring, agent.positions[ring.position] + ahead, agent)
            case Fetch(ring, ahead=ahead):
                self._check_had(ring, agent.positions[ring.position] + ahead, agent)
            case Issue(ahead=ahead):
                self._issue(s, agent, ahead)
            case Settle(left=left):
                del agent.dots[: max(0, len(agent.dots) - left)]
            case Take():
                yield partial(self._order[agent.block][agent.group].passed, agent.positions[TURNS])
                agent.positions[TURNS] ^= 1
            case Give():
                self._order[agent.block][(agent.group + 1) % self._roles.groups].arrive()
            case Drain(ring):
                yield from self._drain(ring, agent)
        yield lambda: True

    def _at(self, ring: Ring, position: int, agent: _Agent, block: int) -> _Slot:
        return self._slots[block, ring.name, agent.group if ring.apart else 0, position % ring.slots]

    def _acquire(self, ring: Ring, agent: _Agent) -> Iterator[_Ready]:
        position = agent.positions[ring.position]
        slot = self._at(ring, position, agent, agent.block)
        yield partial(slot.empty.passed, position // ring.slots % 2 ^ 1)
        slot.full.arrive()

    def _copy(self, ring: Ring, agent: _Agent) -> None:
        """Into the slots of all blocks of the cluster, which the copies of others may have begun to fill."""
        position = agent.positions[ring.position]
        for block in [agent.block] if ring.apart else range(self._blocks):
            slot = self._at(ring, position, agent, block)
            if slot.position != position:
                if slot.readers or slot.left:
                    raise _UnsoundError(f"{ring.name}: position {position} overwrites {slot.position}, which is in use")
                slot.position, slot.left = position, slot.full.arrivals - 1
                slot.readers = ring.readers
            slot.left -= 1
            self._copies.append((slot, position))

    def _await(self, ring: Ring, position: int, agent: _Agent) -> Iterator[_Ready]:
        slot = self._at(ring, position, agent, agent.block)
        yield partial(slot.full.passed, position // ring.slots % 2)
        if slot.position != position or slot.left:
            raise _UnsoundError(f"{ring.name}: position {position} is read, but the slot has {slot.position}")
        agent.has.append((ring.name, position))

    def _check_had(self, ring: Ring, position: int, agent: _Agent) -> None:
        if (ring.name, position) not in agent.has:
            raise _UnsoundError(f"{ring.name}: position {position} is read by who does not wait for it, or released it")

    def _issue(self, s: Issue, agent: _Agent, ahead: int) -> None:
        for dot in s.dots:
            read = [r for r in self._roles.rings if {dot.a, dot.b} & r.tiles]
            if not read:
                raise _UnsoundError(f"the dot of {dot.a} and {dot.b} reads no ring")
            # What is kept for all iterations is at the position before, since its own has advanced.
            at = {r: agent.positions[r.position] + (ahead if r.slots > 1 else -1) for r in read}
            for ring, position in at.items():
                self._check_had(ring, position, agent)
            agent.dots.append({(ring.name, position) for ring, position in at.items()})

    def _release(self, ring: Ring, position: int, agent: _Agent) -> None:
        self._check_had(ring, position, agent)
        if any((ring.name, position) in read for read in agent.dots):
            raise _UnsoundError(f"{ring.name}: position {position} is released while dots read it")
        agent.has.remove((ring.name, position))
        self._at(ring, position, agent, agent.block).readers -= 1
        for block in [agent.block] if ring.apart else range(self._blocks):
            self._at(ring, position, agent, block).empty.arrive()

    def _drain(self, ring: Ring, agent: _Agent) -> Iterator[_Ready]:
        for position in range(agent.positions[ring.position], agent.positions[ring.position] + ring.slots):
            slot = self._at(ring, position, agent, agent.block)
            yield partial(slot.empty.passed, position // ring.slots % 2 ^ 1)
