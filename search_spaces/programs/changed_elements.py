"""Programs whose output lies where some of their inputs do: they store only the elements that change.

old = load cache[p]                    before: reads and writes all of the cache
t = where(here, new, old)
store out[p] = t

old = 0                                after: reads nothing of it, and writes where `here` is true
t = where(here, new, old)
changed = where(here, 1, 0)
store out[p] = t where changed
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from search_spaces.programs.statements import (
    Fill,
    For,
    If,
    Load,
    Map,
    Reduce,
    Statement,
    Store,
    produced,
    read,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import is_float


def storing_changes(program: TileProgram, output: str, unchanged: Collection[str]) -> TileProgram | None:
    """The program with a store of the elements of an output that change; None where it does not choose such elements.

    `unchanged`: buffers in the output's memory. Of these an element of the output uses only itself.
    """
    alike = {b.name for b in program.buffers if b.name in unchanged and b.dtype == program.buffer(output).dtype}
    # A float32 has not all integers: what is loaded as one may be stored as another.
    if len(program.kernels) != 1 or program.prepared or program.zeroed or not is_float(program.buffer(output).dtype):
        return None
    (kernel,) = program.kernels
    stores = [s for s in statements(kernel.body) if isinstance(s, Store) and s.buffer == output]
    if len(stores) != 1 or stores[0].via != "pointer" or stores[0].atomic:
        return None
    choices = _Choices(kernel, stores[0], alike)
    changed = choices.changed(stores[0].src)
    if not isinstance(changed, str):
        return None
    return replace(program, kernels=(replace(kernel, body=choices.applied(kernel.body, changed)),))


@dataclass
class _Choices:
    """The tiles between which a kernel chooses what it stores, and the tiles that tell of each what changes."""

    kernel: Kernel
    store: Store
    unchanged: Collection[str]
    masks: list[Map] = field(default_factory=list)
    _known: dict[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = [*statements(self.kernel.body)]
        made = [(tile.name, s) for s in every for tile in produced(s)]
        names = [name for name, _ in made]
        # What is assigned again is another value later.
        self._makers = {name: s for name, s in made if names.count(name) == 1}
        self._tiles = {tile.name: tile for s in every for tile in produced(s)}
        self._only_chosen = self._without_other_use(every)

    def changed(self, name: str) -> str | float:
        """The tile that is 0 where a tile has the elements that lie in memory; a number if that is so everywhere."""
        if name not in self._known:
            self._known[name] = self._changed(name)
        return self._known[name]

    def applied(self, body: tuple[Statement, ...], changed: str) -> tuple[Statement, ...]:
        """The body with a store of the elements that change: where a whole tile stays, nothing is computed for it."""
        if not any(s is self.store for s in body):
            return tuple(self._applied_within(s, changed) for s in body)
        apart, alone = self._divided(body)
        found, tests = self._tiles[changed], list[Statement]()
        for axis in found.axes:
            rest = [(a, n) for a, n in zip(found.axes, found.shape, strict=True) if a != axis]
            folded = self._new(tuple(a for a, _ in rest), tuple(n for _, n in rest))
            tests.append(Reduce(folded, found.name, axis, "max"))
            found = folded
        name = self._unused_name()
        marks = self._new((name,), (1,))
        tests.append(Map(marks, "add", (found.name, 0.0)))
        stored = replace(self.store, where=changed)
        return *apart, *self.masks, *tests, For(f"{name}.0", 1, (*alone, stored), marks=marks.name)

    def _applied_within(self, s: Statement, changed: str) -> Statement:
        match s:
            case For(body=body):
                return replace(s, body=self.applied(body, changed))
            case If(then=then, otherwise=otherwise):
                return replace(s, then=self.applied(then, changed), otherwise=self.applied(otherwise, changed))
            case _:
                return s

    def _divided(self, body: tuple[Statement, ...]) -> tuple[list[Statement], list[Statement]]:
        """The statements that others or the masks need too, and those that only the store needs."""
        apart, alone = list[Statement](), list[Statement]()
        needed = {name for mask in self.masks for name in read(mask)}
        for s in reversed(body):
            if s is self.store:
                continue
            made = {tile.name for tile in produced(s)}
            if made and made <= self._makers.keys() and not made & needed:
                unread = isinstance(s, Load) and s.dst.name in self._only_chosen
                alone.append(Fill(s.dst, 0) if isinstance(s, Load) and unread else s)
            else:
                needed.update(name for inner in statements((s,)) for name in read(inner))
                apart.append(s)
        return apart[::-1], alone[::-1]

    def _changed(self, name: str) -> str | float:
        maker = self._makers.get(name)
        if not _is_choice(maker):
            return 0.0 if self._is_unchanged(name) else 1.0
        condition, *branches = maker.arguments
        yes, no = (self.changed(b) if isinstance(b, str) else 1.0 for b in branches)
        if yes == no or not isinstance(condition, str):
            return yes if yes == no or condition else no
        axes = {a for n in (condition, yes, no) if isinstance(n, str) for a in self._tiles[n].axes}
        extents = dict(zip(maker.dst.axes, maker.dst.shape, strict=True))
        kept = tuple(a for a in maker.dst.axes if a in axes)
        tile = self._new(kept, tuple(extents[a] for a in kept))
        self.masks.append(Map(tile, "where", (condition, yes, no)))
        return tile.name

    def _without_other_use(self, every: list[Statement]) -> set[str]:
        """The tiles of no other use than to be stored, or chosen to be stored: choices, and unchanged loads.

        Where one of them has another use, so have those that it is chosen from.
        """
        found = {self.store.src}
        rest = [self.store.src]
        while rest:
            maker = self._makers.get(rest.pop())
            if _is_choice(maker):
                rest += [b for b in maker.arguments[1:] if isinstance(b, str) and b not in found]
                found.update(rest)
        found = {name for name in found if self._is_unchanged(name) or _is_choice(self._makers.get(name))}
        while used := {name for name in found if any(not self._chooses(s, name, found) for s in every)}:
            found -= used
        return found

    def _is_unchanged(self, name: str) -> bool:
        maker = self._makers.get(name)
        return isinstance(maker, Load) and maker.buffer in self.unchanged and not maker.guarded

    def _chooses(self, s: Statement, name: str, chosen: Collection[str]) -> bool:
        """True unless a statement uses a tile otherwise."""
        if name not in read(s) or s is self.store:
            return True
        return _is_choice(s) and name != s.arguments[0] and s.dst.name in chosen

    def _new(self, axes: tuple[str, ...], shape: tuple[int, ...]) -> Tile:
        tile = Tile(self._unused_name(), axes, shape, "float32")
        self._tiles[tile.name] = tile
        return tile

    def _unused_name(self) -> str:
        numbers = (f"changed{n}" for n in range(len(self._tiles) + 1))
        return next(name for name in numbers if name not in self._tiles)


def _is_choice(s: Statement | None) -> TypeGuard[Map]:
    return isinstance(s, Map) and s.operator == "where"
