"""Simulated roles: synchronisation of producer and consumers at any relative speed, and the values they compute.

deadlock                     every agent waits for another one
overwritten                  a slot is filled that an agent still reads, or has not read
read before it is filled     a slot contains the tiles of another position
released while dots read it  dots that were issued are not settled
sums in flight               an accumulator is read or written before its dots are settled
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from search_spaces.programs.interpreting.barriers import Agent, Barrier, Slot
from search_spaces.programs.interpreting.interpreter import OneProgram, place_of, run_kernel
from search_spaces.programs.interpreting.operations import Array
from search_spaces.programs.roles.halves import BLOCK, HALF
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
    Keep,
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
    nested,
)
from search_spaces.programs.roles.trip_counts import iterations_at
from search_spaces.programs.statements import Dot, For, Gather, Load, Statement, Store, produced, read
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.programs.tiles import Tile

# A blocked agent goes on when this holds.
_Ready = Callable[[], bool]


class _UnsoundError(Exception):
    pass


def why_unsound(roles: Roles, rng: np.random.Generator, orders: int = 4, tiles: int = 5) -> str | None:
    """Reason that the first tiles of a kernel's first program synchronise wrongly in some order, or None.

    In one order the next agent is random; in the others some agents always precede others. Nothing is computed.
    """
    grid = roles.kernel.grid
    numbers = range(0, grid.tiles, grid.programs)[:tiles]
    try:
        for order in range(orders):
            _Simulation(roles, numbers, rng, fair=order == 0).run()
    except _UnsoundError as why:
        return str(why)
    return None


@dataclass(frozen=True)
class RunRoles:
    """Runs kernels by roles, for `interpreter.interpret`; `made`: the roles of a kernel, None if it has none."""

    made: Callable[[Kernel], Roles | None]
    rng: np.random.Generator

    def __call__(self, kernel: Kernel, program: TileProgram, memory: dict[str, Array]) -> None:
        """Every program of the grid, one after the other.

        Raises:
            AssertionError: producer and consumers synchronise wrongly.
        """
        roles, grid = self.made(kernel), kernel.grid
        if roles is None:
            run_kernel(kernel, program, memory)
            return
        every = [s for role in (roles.producer, roles.consumer) for s in nested(role.body)]
        moves = [s.load if isinstance(s, Copy) else s for s in every]
        extents = loop_extents(kernel) | {HALF: roles.groups, BLOCK: kernel.launch.num_ctas}
        places = {id(s): place_of(s, program, extents) for s in moves if isinstance(s, Load | Gather | Store)}
        for first in range(grid.programs):
            numbers = range(first, grid.tiles, grid.programs)
            empty = OneProgram(places, memory, {}, {}, {})
            try:
                _Simulation(roles, numbers, self.rng, fair=True, computed=empty).run()
            except _UnsoundError as why:
                raise AssertionError(f"kernel {kernel.name}: {why}") from None


class _Simulation:
    """One program of a kernel, in all blocks of its cluster; `numbers`: its tiles."""

    def __init__(
        self,
        roles: Roles,
        numbers: Sequence[int],
        rng: np.random.Generator,
        fair: bool,
        computed: OneProgram | None = None,
    ) -> None:
        self._roles, self._rng, self._fair, self._computed = roles, rng, fair, computed
        self._blocks = roles.kernel.launch.num_ctas
        self._tiles = [roles.kernel.grid.position(n) for n in numbers]
        self._marked: dict[tuple[str, int], int] = {}
        self._slots = {
            (block, ring.name, group, n): self._slot(ring)
            for block in range(self._blocks)
            for ring in roles.rings
            for group in (range(roles.groups) if ring.apart else (0,))
            for n in range(ring.slots)
        }
        self._order = [[Barrier(1) for _ in range(roles.groups)] for _ in range(self._blocks)]
        self._copies: list[tuple[Slot, int, int, tuple[Tile, Array] | None]] = []

    def _slot(self, ring: Ring) -> Slot:
        blocks = 1 if ring.apart else self._blocks
        # The announcement of the producer, and every copy of a load, or of a block's part of it.
        return Slot(Barrier(1 + len(ring.loads) * blocks), Barrier(ring.readers * blocks))

    def _agent(self, block: int, group: int) -> Agent:
        own = {HALF: max(0, group), BLOCK: block}
        return Agent(block, group, self._computed and replace(self._computed, variables=own, tiles={}))

    def run(self) -> None:
        agents: dict[str, Iterator[_Ready]] = {}
        for block in range(self._blocks):
            agents[f"producer of block {block}"] = self._produce(self._agent(block, -1))
            for group in range(self._roles.groups):
                agents[f"group {group} of block {block}"] = self._consume(self._agent(block, group))
        ready: dict[str, _Ready] = dict.fromkeys(agents, lambda: True)
        names = [*agents, "copies"]
        first = dict(zip(names, self._rng.permutation(len(names)), strict=True))
        while agents:
            able = [name for name in agents if ready[name]()] + ["copies"] * bool(self._copies)
            if not able:
                raise _UnsoundError(f"deadlock: {', '.join(agents)} wait")
            chosen = able[int(self._rng.integers(len(able)))] if self._fair else max(able, key=first.__getitem__)
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
        """Complete a random copy."""
        slot, position, place, tile = self._copies.pop(int(self._rng.integers(len(self._copies))))
        if slot.position != position:
            raise _UnsoundError(f"a copy for position {position} came to a slot that was filled for {slot.position}")
        if tile:
            slot.tiles[place] = tile
        slot.full.arrive()

    def _produce(self, agent: Agent) -> Iterator[_Ready]:
        return self._body(self._roles.producer.body, agent, 0)

    def _consume(self, agent: Agent) -> Iterator[_Ready]:
        yield from self._body(self._roles.consumer.body, agent, 0)
        if agent.dots:
            raise _UnsoundError(f"group {agent.group} ends with dots that were not settled")

    # Loops

    def _body(self, body: Sequence[RoleStatement], agent: Agent, tile: int, first: bool = True) -> Iterator[_Ready]:
        """`tile`: its number among those of the program; `first`: in the first iteration of a loop."""
        for s in body:
            match s:
                case Tiles(body=inner, every=every):
                    for number in range(agent.group if every > 1 else 0, len(self._tiles), every):
                        if agent.computed:
                            agent.computed.variables.update(self._tiles[number])
                        yield from self._body(inner, agent, number)
                case Steps():
                    yield from self._steps(s, agent, tile)
                case EachGroup(body=inner, alternating=alternating):
                    for group in [tile % 2] if alternating else range(self._roles.groups):
                        yield from self._body(inner, agent.among(group, 1 + alternating), tile)
                case _ if isinstance(s, Nested):
                    yield from self._body(s.body, agent, tile)
                case _:
                    yield from self._step(s, agent, first)

    def _steps(self, s: Steps, agent: Agent, tile: int) -> Iterator[_Ready]:
        made = self._iterations(s.loop, agent, tile)
        agent.trips = len(made)
        begin = int(s.part == "behind the first")
        end = {"first": 1, "before the last": len(made) - 1}.get(s.part, len(made))
        for n in range(begin, end):
            if agent.computed:
                agent.computed.begin(s.loop, made[n])
            yield from self._body(s.body, agent, tile, first=n == 0)
        if agent.computed and s.part == "before the last":
            agent.computed.begin(s.loop, made[-1])

    def _iterations(self, loop: For, agent: Agent, tile: int) -> Sequence[int]:
        """The iterations that run; without computation all of them, or any number of marked ones."""
        if not agent.computed:
            trips = iterations_at(loop, self._tiles[tile])
            if loop.marks:
                trips = self._marked.setdefault((loop.variable, tile), int(self._rng.integers(trips + 1)))
            return range(trips)
        found = []
        for n in range(loop.extent):
            agent.computed.begin(loop, n)
            found += [n] if agent.computed.is_made(loop, n) else []
        return found

    # Statements

    def _step(self, s: RoleStatement, agent: Agent, first: bool) -> Iterator[_Ready]:
        match s:
            case Start(position, by_group):
                agent.positions[position] = agent.group * by_group if position != TURNS else int(agent.group == 0)
            case Advance(position, by) | Skip(position, by):
                agent.positions[position] += by
            case Acquire(ring):
                yield from self._acquire(ring, agent)
            case Copy(ring, load):
                self._copy(ring, load, agent)
            case Await(ring, ahead):
                yield from self._await(ring, agent.positions[ring.position] + ahead, agent)
            case Release(ring, ahead, where):
                if not (where == "behind the first" and first) and not (where == "had any" and not agent.trips):
                    self._release(ring, agent.positions[ring.position] + ahead, agent)
            case Fetch(ring, load, ahead):
                self._take(ring, agent.positions[ring.position] + ahead, agent, {load.dst.name})
            case Issue():
                for number, dot in enumerate(s.dots):
                    self._issue(number, dot, s, agent)
            case Keep(dots) if agent.computed:
                # By the numbers of dots: the operands computed in consecutive loops have different names.
                for number, dot in enumerate(dots):
                    for name in self._made(dot):
                        agent.computed.tiles[_kept(number)] = agent.computed.tiles[name]
            case Settle(left=left):
                del agent.dots[: max(0, len(agent.dots) - left)]
            case Take():
                yield partial(self._order[agent.block][agent.group].passed, agent.positions[TURNS])
                agent.positions[TURNS] ^= 1
            case Give():
                self._order[agent.block][(agent.group + 1) % self._roles.groups].arrive()
            case Drain(ring):
                yield from self._drain(ring, agent)
            case _ if isinstance(s, Statement):
                self._compute(s, agent)
        yield lambda: True

    def _at(self, ring: Ring, position: int, agent: Agent, block: int) -> Slot:
        return self._slots[block, ring.name, agent.group if ring.apart else 0, position % ring.slots]

    def _acquire(self, ring: Ring, agent: Agent) -> Iterator[_Ready]:
        position = agent.positions[ring.position]
        slot = self._at(ring, position, agent, agent.block)
        yield partial(slot.empty.passed, position // ring.slots % 2 ^ 1)
        slot.full.arrive()

    def _copy(self, ring: Ring, load: Load, agent: Agent) -> None:
        """Copy into the slots of all blocks of the cluster, which the copies of others may have begun to fill."""
        position, tile = agent.positions[ring.position], None
        # Other loops load into the place of the only one.
        place = ring.loads.index(load) if load in ring.loads else 0
        if agent.computed:
            agent.computed.step(load)
            tile = agent.computed.tiles[load.dst.name]
        for block in [agent.block] if ring.apart else range(self._blocks):
            slot = self._at(ring, position, agent, block)
            if slot.position != position:
                if slot.readers or slot.left:
                    raise _UnsoundError(f"{ring.name}: position {position} overwrites {slot.position}, which is in use")
                slot.position, slot.left = position, slot.full.arrivals - 1
                slot.readers = ring.readers
            slot.left -= 1
            self._copies.append((slot, position, place, tile))

    def _await(self, ring: Ring, position: int, agent: Agent) -> Iterator[_Ready]:
        slot = self._at(ring, position, agent, agent.block)
        yield partial(slot.full.passed, position // ring.slots % 2)
        if slot.position != position or slot.left:
            raise _UnsoundError(f"{ring.name}: position {position} is read, but the slot has {slot.position}")
        agent.has.append((ring.name, position))

    def _check_had(self, ring: Ring, position: int, agent: Agent) -> None:
        if (ring.name, position) not in agent.has:
            raise _UnsoundError(f"{ring.name}: position {position} is read by who does not wait for it, or released it")

    def _made(self, dot: Dot) -> list[str]:
        """The computed operand of a dot, if it has one."""
        loaded = {name for ring in self._roles.rings for name in ring.tiles}
        return [name for name in (dot.a, dot.b) if name not in loaded]

    def _issue(self, number: int, dot: Dot, s: Issue, agent: Agent) -> None:
        rings = [r for r in self._roles.rings if {dot.a, dot.b} & r.tiles]
        if not rings:
            raise _UnsoundError(f"the dot of {dot.a} and {dot.b} reads no ring")
        # Resident tiles are at the previous position, since their own has advanced.
        at = {r: agent.positions[r.position] + (s.ahead if r.slots > 1 else -1) for r in rings}
        for ring, position in at.items():
            self._take(ring, position, agent, {dot.a, dot.b} & ring.tiles)
        agent.dots.append((dot.dst.name, {(ring.name, position) for ring, position in at.items()}))
        if agent.computed:
            sums, values = agent.computed.tiles[dot.dst.name]
            if dot.dst.name in s.anew:
                agent.computed.set(sums, np.zeros_like(values))
            a, b = (_kept(number) if name in self._made(dot) else name for name in (dot.a, dot.b))
            agent.computed.step(replace(dot, dst=sums, a=a, b=b))

    def _take(self, ring: Ring, position: int, agent: Agent, names: Collection[str]) -> None:
        """Read the group's parts of tiles with these names from a slot."""
        self._check_had(ring, position, agent)
        if not agent.computed:
            return
        own = [load.dst.name for load in ring.loads]
        for name in names:
            place = own.index(name) if name in own else 0
            tile, values = self._at(ring, position, agent, agent.block).tiles[place]
            for part in () if ring.apart else self._roles.parts:
                if part.axis in tile.axes:
                    axis, begin = tile.axes.index(part.axis), agent.computed.variables[part.variable] * part.size
                    values = values.take(range(begin, begin + part.size), axis)
            agent.computed.tiles[name] = (replace(tile, shape=values.shape), values)

    def _compute(self, s: Statement, agent: Agent) -> None:
        touched = {*read(s), *(t.name for t in produced(s))}
        if late := touched & {name for name, _ in agent.dots}:
            raise _UnsoundError(f"{', '.join(sorted(late))} is read or written before dots that add to it are settled")
        copied = next((r for r in self._roles.rings if r.apart and s in r.loads), None)
        if copied:
            self._take(copied, agent.positions[copied.position] - 1, agent, [t.name for t in produced(s)])
        elif agent.computed:
            agent.computed.step(s)

    def _release(self, ring: Ring, position: int, agent: Agent) -> None:
        self._check_had(ring, position, agent)
        if any((ring.name, position) in slots for _, slots in agent.dots):
            raise _UnsoundError(f"{ring.name}: position {position} is released while dots read it")
        agent.has.remove((ring.name, position))
        self._at(ring, position, agent, agent.block).readers -= 1
        for block in [agent.block] if ring.apart else range(self._blocks):
            self._at(ring, position, agent, block).empty.arrive()

    def _drain(self, ring: Ring, agent: Agent) -> Iterator[_Ready]:
        for position in range(agent.positions[ring.position], agent.positions[ring.position] + ring.slots):
            slot = self._at(ring, position, agent, agent.block)
            yield partial(slot.empty.passed, position // ring.slots % 2 ^ 1)


def _kept(number: int) -> str:
    """Name of the register operand of a numbered dot."""
    return f"operand of dot {number}"
