"""Names that the functions of a kernel share: tiles in shared memory, and the barriers that guard them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from autosched.backends.gpu.arguments import Descriptor, described, loading_descriptor
from autosched.backends.printing.scope import Block
from autosched.backends.triton.gluon.protocol import Count, Protocol, SharedRing, Turns
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.scope import identifier
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.roles.chains import KEPT, ChainRoles, distinct
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import TileProgram, loop_extents
from search_spaces.programs.tiles import Tile

# Names of the variables of such a kernel's functions.
OWN = ("step", "slot", "round", HALF, "order", "turn", "tile", "piece", "held_full", "held_empty")


@dataclass(frozen=True)
class Places:
    """The rings of a chain, one for each load of an iteration; resident tiles have a place each."""

    program: TileProgram
    roles: ChainRoles
    descriptors: Mapping[Descriptor, str]

    @cached_property
    def rings(self) -> dict[str, SharedRing]:
        """The rings, by name."""
        rings, count = self.roles.streamed, Count("step")
        names = distinct([identifier(ring.name) for ring in rings])
        found = {
            ring.name: SharedRing(ring, f"{n}_full", f"{n}_empty", (f"{n}_ring",), count)
            for ring, n in zip(rings, names, strict=True)
        }
        return found | {KEPT: SharedRing(self.roles.whole, "held_full", "held_empty", self.kept, Count("turn"))}

    @property
    def kept(self) -> tuple[str, ...]:
        names = distinct([identifier(load.dst.name) for load in self.roles.kept])
        return tuple(f"{name}_held" for name in names)

    @property
    def names(self) -> list[str]:
        """All names, in the order of the functions' parameters."""
        order = ["order"] if self.roles.alternating else []
        kept = [*self.kept, "held_full", "held_empty"] if self.roles.kept else []
        each = ((*r.places, r.full, r.empty) for n, r in self.rings.items() if n != KEPT)
        return [*kept, *(n for names in each for n in names), *order]

    def descriptor(self, load: Load) -> str:
        extents = loop_extents(self.roles.moving)
        return self.descriptors[loading_descriptor(self.program.buffer(load.buffer), load, extents)]

    def protocol(self, block: Block, indexing: Indexing) -> Protocol:
        groups = self.roles.groups
        turns = Turns("round", "1 if half == 0 else 0", f"(half + 1) % {groups}")
        return Protocol(block, self.rings, turns, lambda load: (self.descriptor(load), self._starts(load, indexing)))

    def place(self, load: Load, ahead: int) -> str:
        """The place of a loaded tile, at the ring's position or `ahead` of it."""
        return next(r for r in self.rings.values() if load.dst.name in r.ring.tiles).place(load, ahead)

    def marks(self, printer: KernelPrinter) -> Callable[[str], tuple[Tile, str]]:
        """The tiles that mark iterations, and their names in the text."""
        return lambda name: (self.roles.tiles[name], printer.tiles.name(name))

    def _starts(self, load: Load, indexing: Indexing) -> str:
        slices = described(self.program.buffer(load.buffer), load.slices)
        return ", ".join(indexing.affine(p.start) for p in slices)

    def reshaped(self, load: Load) -> str:
        """A call that gives a place the shape of the tile if its descriptor has more dimensions."""
        whole = len(described(self.program.buffer(load.buffer), load.slices)) == len(load.dst.shape)
        return "" if whole else f".reshape({list(load.dst.shape)})"
