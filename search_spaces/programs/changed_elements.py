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

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from search_spaces.programs.statements import Fill, For, If, Load, Map, Statement, Store, produced, read, statements
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
        """A body that computes the tile, before a store of the elements that change."""
        return tuple(made for s in body for made in self._replaced(s, changed))

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
        tile = Tile(self._unused_name(), kept, tuple(extents[a] for a in kept), "float32")
        self._tiles[tile.name] = tile
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

    def _replaced(self, s: Statement, changed: str) -> Iterator[Statement]:
        match s:
            case Load(dst=dst) if dst.name in self._only_chosen:
                yield Fill(dst, 0)
            case For(body=body):
                yield replace(s, body=self.applied(body, changed))
            case If(then=then, otherwise=otherwise):
                yield replace(s, then=self.applied(then, changed), otherwise=self.applied(otherwise, changed))
            case _ if s is self.store:
                yield from self.masks
                yield replace(self.store, where=changed)
            case _:
                yield s

    def _unused_name(self) -> str:
        numbers = (f"changed{n}" for n in range(len(self._tiles) + 1))
        return next(name for name in numbers if name not in self._tiles)


def _is_choice(s: Statement | None) -> TypeGuard[Map]:
    return isinstance(s, Map) and s.operator == "where"
