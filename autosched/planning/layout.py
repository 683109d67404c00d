"""The memory of a plan's slots: who allocates each, and from which step to which it is needed.

Launches between two calls are a *stretch*. What is made and read within one stretch, by launches alone, lies in the
arena of that stretch, or in the memory of a result that is written later. All else that launches write has memory of
its own: what a caller gets, and what calls read, since they may return views of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.backend import Place
from autosched.planning.arena import Lifetime, arranged
from autosched.planning.steps import Call, Launch, Layout, Slot, Step


@dataclass(frozen=True)
class Stretch:
    """The launches from step `first` to the one before `end`."""

    first: int
    end: int


@dataclass(frozen=True)
class PlacedStep:
    """A launch with the places of its inputs, then of its outputs, and of workspaces.

    `prepared`: the bases of its prepared constants.
    """

    launch: Launch
    places: tuple[Place, ...]
    workspace: Place
    prepared: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A slot that lies within `base`, from an element on."""

    slot: int
    base: int
    layout: Layout
    offset: int


@dataclass(frozen=True)
class Memory:
    """The memory of a stretch, and the places of its launches in it.

    `allocated`: slots to allocate; `views`: slots that are parts of these, and whose tensors are needed; `arena`: the
    slot of the arena.
    """

    launches: tuple[PlacedStep, ...]
    allocated: Mapping[int, Layout]
    views: tuple[Part, ...]
    arena: int
    arena_bytes: int

    @property
    def bytes(self) -> int:
        """All bytes that it allocates."""
        return self.arena_bytes + sum(layout.bytes for layout in self.allocated.values())


class Layouts:
    """The lifetimes of slots over all steps.

    A slot's *base* is the slot that it is a part of, or itself. `given`: the number of slots that no step writes, which
    come first; `launched`: those that launches read. After all slots come the base of the arena, and those of prepared
    constants; `bases`: the number of all of these.
    """

    def __init__(self, slots: Sequence[Slot], steps: Sequence[Step], kept: Collection[int]) -> None:
        self._slots, self._steps = slots, steps
        calls = [step for step in steps if isinstance(step, Call)]
        called = {slot for call in calls for slot in call.reads}
        self.launched = {slot for step in steps if isinstance(step, Launch) for slot, _ in step.reads}
        laid_out = [number for number, slot in enumerate(slots) if slot.layout is not None]
        self.given = min((*laid_out, *(slot for step in steps for slot in step.writes)), default=len(slots))
        self._wanted = {*kept, *called}
        self._kept = {self._base(slot)[0] for slot in kept}
        self._seen = {self._base(slot)[0] for slot in (*called, *(s for call in calls for s in call.writes))}
        self._written: dict[int, int] = {}
        self._used: dict[int, int] = {}
        for number, step in enumerate(steps):
            read = [s for s, _ in (*step.reads, *step.originals)] if isinstance(step, Launch) else step.reads
            for slot in step.writes:
                if (base := self._base(slot)[0]) >= self.given:
                    self._written.setdefault(base, number)
            for slot in (*read, *step.writes):
                self._used[self._base(slot)[0]] = number
        ends = {n: stretch.end for stretch in self.stretches for n in range(stretch.first, stretch.end)}
        outside = self._kept | self._seen
        self._inner = {s for s, at in self._written.items() if s not in outside and self._used[s] < ends[at]}
        self._prepared: dict[int, tuple[int, ...]] = {}
        self.bases = len(slots) + 1
        for number, step in enumerate(steps):
            constants = step.kernel.constants if isinstance(step, Launch) else None
            count = len(constants.places) if constants is not None else 0
            self._prepared[number] = tuple(range(self.bases, self.bases + count))
            self.bases += count
        apart = self._used.keys() - self._inner - self._kept
        self._released: dict[int, list[int]] = {number: [] for number in range(len(steps))}
        for slot in range(len(slots)):
            base = self._base(slot)[0]
            if base in apart:
                self._released[self._used[base]].append(slot)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The stretches, in order."""
        launches = [isinstance(step, Launch) for step in self._steps]
        firsts = [n for n, here in enumerate(launches) if here and not (n and launches[n - 1])]
        ends = [n + 1 for n, here in enumerate(launches) if here and not any(launches[n + 1 : n + 2])]
        return tuple(map(Stretch, firsts, ends))

    def memory(self, stretch: Stretch) -> Memory:
        """The memory of a stretch."""
        arena, last = len(self._slots), len(self._steps)
        made = [s for s, at in self._written.items() if stretch.first <= at < stretch.end]
        inner, own = [s for s in made if s in self._inner], [s for s in made if s not in self._inner]
        parts = [s for s in self._wanted if self._base(s)[0] != s]
        steps = range(stretch.first, stretch.end)
        workspaces = [Lifetime(_workspace_bytes(self._launch(n)), n, n) for n in steps]
        found = arranged(
            [*workspaces, *(Lifetime(self._layout(s).bytes, self._written[s], self._used[s]) for s in inner)],
            [Lifetime(self._layout(s).bytes, self._written[s], last) for s in own],
        )
        places = [(arena if room is None else own[room], offset) for room, offset in found.places]
        placed = dict(zip(inner, places[len(steps) :], strict=True))
        return Memory(
            tuple(self._placed(n, places[n - stretch.first], placed) for n in steps),
            {slot: self._layout(slot) for slot in own},
            tuple(self._part(s) for s in parts if self._base(s)[0] in own),
            arena,
            found.arena_bytes,
        )

    def released(self, first: int, end: int) -> tuple[int, ...]:
        """The slots whose tensors the steps from `first` to the one before `end` are the last to need."""
        return tuple(slot for number in range(first, end) for slot in self._released[number])

    def _placed(self, number: int, workspace: Place, placed: Mapping[int, Place]) -> PlacedStep:
        step = self._launch(number)
        places = []
        for slot, offset in (*step.reads, *((slot, 0) for slot in step.writes)):
            base, within = self._base(slot)
            there, begin = placed.get(base, (base, 0))
            places.append((there, begin + within + offset))
        return PlacedStep(step, tuple(places), workspace, self._prepared[number])

    def _launch(self, number: int) -> Launch:
        step = self._steps[number]
        assert isinstance(step, Launch)
        return step

    def _base(self, slot: int) -> Place:
        """The base of a slot, and the slot's first byte there."""
        offset = 0
        while (within := self._slots[slot].within) is not None:
            slot, offset = within[0], offset + within[1]
        return slot, offset

    def _part(self, slot: int) -> Part:
        (base, offset), layout = self._base(slot), self._layout(slot)
        return Part(slot, base, layout, offset // layout.dtype.itemsize)

    def _layout(self, slot: int) -> Layout:
        layout = self._slots[slot].layout
        assert layout is not None
        return layout


def _workspace_bytes(launch: Launch) -> int:
    """The bytes of memory that a launch needs besides its inputs and outputs, if it is one of a batch."""
    batched = launch.kernel.batched
    return 0 if batched is None else batched.workspace_bytes(prepared=launch.kernel.constants is not None)
