"""What parts of a kernel call what they share: tiles in shared memory, and the barriers that guard them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.gpu.arguments import Descriptor, described, loading_descriptor
from autosched.backends.gpu.specialized.halves import HALF
from autosched.backends.triton.gluon.walks.form import WalkForm
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.scope import identifier
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import TileProgram, loop_extents

# What every function of such a kernel calls its own variables.
OWN = ("step", "slot", "round", HALF, "order", "turn", "tile", "piece", "held_full", "held_empty")


@dataclass(frozen=True)
class Ring:
    """The slots of a tile that iterations load, and for each the barriers that it is full, and that it is empty."""

    name: str
    stages: int

    @property
    def names(self) -> tuple[str, str, str]:
        return f"{self.name}_ring", f"{self.name}_full", f"{self.name}_empty"

    def slot(self, step: str) -> str:
        return f"{self.name}_ring.index({step} % {self.stages})"

    def full(self, step: str) -> str:
        return f"{self.name}_full.index({step} % {self.stages})"

    def empty(self, step: str) -> str:
        return f"{self.name}_empty.index({step} % {self.stages})"

    def parity(self, step: str) -> str:
        """Whether so many turns of the ring are odd; both ask for a barrier's phase by that."""
        return f"{step} // {self.stages} & 1"


@dataclass(frozen=True)
class Places:
    """The rings of a walk, one for each load of an iteration; tiles that are held have a place each."""

    program: TileProgram
    form: WalkForm
    descriptors: Mapping[Descriptor, str]

    @property
    def rings(self) -> tuple[Ring, ...]:
        return tuple(Ring(name, self.form.stages) for name in _distinct(self.form.rings))

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(f"{name}_held" for name in _distinct(self.form.held))

    @property
    def names(self) -> list[str]:
        """Everything, in the order in which functions take it."""
        order = ["order"] if self.form.alternating else []
        kept = [*self.held, "held_full", "held_empty"] if self.held else []
        return [*kept, *(n for ring in self.rings for n in ring.names), *order]

    def descriptor(self, load: Load) -> str:
        extents = loop_extents(self.form.moving)
        return self.descriptors[loading_descriptor(self.program.buffer(load.buffer), load, extents)]

    def starts(self, load: Load, indexing: Indexing) -> str:
        slices = described(self.program.buffer(load.buffer), load.slices)
        return ", ".join(indexing.affine(p.start) for p in slices)

    def reshaped(self, load: Load) -> str:
        """The call that gives a place the shape of the tile, where its descriptor has more dimensions."""
        whole = len(described(self.program.buffer(load.buffer), load.slices)) == len(load.dst.shape)
        return "" if whole else f".reshape({list(load.dst.shape)})"


def _distinct(loads: Sequence[Load]) -> list[str]:
    """A name for each, by that of its tile."""
    names: list[str] = []
    for load in loads:
        name = identifier(load.dst.name)
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names
