"""Moves of tiles between memory and registers, as Triton text: loads, look-ups and stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autosched.backends.gpu.arguments import Descriptor, arguments, described, descriptor, loading_descriptor
from autosched.backends.printing.scope import Block, Identifiers, call
from autosched.backends.triton.language import operators
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.tiles import TRITON_TYPES, Tiles
from search_spaces.programs.addressing import Address, address
from search_spaces.programs.statements import Gather, Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice


class TileMoves(Protocol):
    """Printer of moves by descriptor, given the descriptor's name and the start of the tile."""

    def load(self, descriptor: str, starts: str, reshaped: str) -> str:
        """An expression; `reshaped`: the call that gives the tile its shape, if it is not the descriptor's."""
        ...

    def store(self, descriptor: str, starts: str, value: str) -> str:
        """Statements."""
        ...


class _TritonMoves:
    def load(self, descriptor: str, starts: str, reshaped: str) -> str:
        return f"{descriptor}.load([{starts}]){reshaped}"

    def store(self, descriptor: str, starts: str, value: str) -> str:
        return f"{descriptor}.store([{starts}], {value})"


TRITON_MOVES = _TritonMoves()


@dataclass(frozen=True)
class Parameters:
    """Names of a kernel's parameters: pointers by the names of buffers, then descriptors."""

    pointers: Mapping[str, str]
    descriptors: Mapping[Descriptor, str]

    @staticmethod
    def of(program: TileProgram, kernel: Kernel, identifiers: Identifiers) -> Parameters:
        taken = arguments(program, kernel)
        pointers = {b.name: identifiers.of(("buffer", b.name), f"{b.name}_ptr") for b in taken.pointers}
        return Parameters(pointers, {d: identifiers.of(d, f"{d.buffer.name}_desc") for d in taken.descriptors})

    @property
    def names(self) -> list[str]:
        """All names in order."""
        return [*self.pointers.values(), *self.descriptors.values()]


@dataclass(frozen=True)
class MemoryPrinter:
    """Prints the statements of one kernel that read and write memory."""

    program: TileProgram
    parameters: Parameters
    tiles: Tiles
    indexing: Indexing
    block: Block
    moves: TileMoves

    def load(self, s: Load) -> None:
        buffer = self.program.buffer(s.buffer)
        eviction = [f'eviction_policy="{s.eviction}"'] if s.eviction else []
        cast = f".to({TRITON_TYPES[s.dst.dtype]})" if s.dst.dtype != buffer.dtype else ""
        name = self.tiles.name(s.dst.name)
        if s.via == "descriptor":
            tiles = loading_descriptor(buffer, s, self.indexing.extents)
            shape = "" if s.dst.shape == tiles.block else f".reshape({list(s.dst.shape)})"
            starts = self._starts(described(buffer, s.slices))
            self.block.write(f"{name} = {self.moves.load(self.parameters.descriptors[tiles], starts, shape)}{cast}")
            return
        at = self._address(buffer, s.slices)
        place = self.indexing.place(self.parameters.pointers[buffer.name], at, s.dst.axes)
        masked = [f"mask={place.mask}", f"other={_outside(s.fill)}"] if place.mask else []
        self.block.write(call("tl.load", place.pointer, *masked, *eviction, before=f"{name} = ") + cast)
        self.tiles.repeat(s.dst, at.axes)

    def gather(self, s: Gather) -> None:
        buffer = self.program.buffer(s.buffer)
        index = {i: self.tiles.as_index(self.tiles[i], s.dst.axes) for i in s.index if isinstance(i, str)}
        pointer = self.parameters.pointers[buffer.name]
        place = self.indexing.looked_up(pointer, self._address(buffer, s.index), index, s.dst.axes)
        masked = [f"mask={place.mask}", f"other={_outside(s.outside(buffer.dtype))}"] if place.mask else []
        self.block.write(call("tl.load", place.pointer, *masked, before=f"{self.tiles.name(s.dst.name)} = "))

    def store(self, s: Store) -> None:
        buffer, tile = self.program.buffer(s.buffer), self.tiles[s.src]
        address = self._address(buffer, s.slices)
        axes = s.axes if s.via == "descriptor" else _in_memory_order(s.axes, address)
        value = self.tiles.operand(tile, axes, buffer.dtype)
        if s.via == "descriptor":
            tiles = descriptor(buffer, s.slices)
            if len(axes) != len(tiles.block):
                value = f"{value}.reshape({list(tiles.block)})"
            name, starts = self.parameters.descriptors[tiles], self._starts(described(buffer, s.slices))
            added = f"{name}.atomic_add([{starts}], {value})"
            self.block.write(added if s.atomic else self.moves.store(name, starts, value))
            return
        pointer = self.parameters.pointers[buffer.name]
        place = self.indexing.place(pointer, address, axes, stored=True)
        tests = [place.mask] if place.mask else []
        if s.where:
            tests.append(f"({self.tiles.operand(self.tiles[s.where], axes, 'float32')} != 0)")
        mask = [f"mask={' & '.join(tests)}"] if tests else []
        if s.atomic:
            self.block.write(call("tl.atomic_add", place.pointer, value, *mask, 'sem="relaxed"'))
            return
        eviction = ['eviction_policy="evict_first"'] if s.streaming else []
        self.block.write(call("tl.store", place.pointer, value, *mask, *eviction))

    def _address(self, buffer: Buffer, index: tuple[Slice | str, ...]) -> Address:
        return address(buffer, index, self.indexing.extents)

    def _starts(self, slices: tuple[Slice, ...]) -> str:
        return ", ".join(self.indexing.affine(piece.start) for piece in slices)


def _in_memory_order(axes: tuple[str, ...], address: Address) -> tuple[str, ...]:
    """The axes of a stored tile of more than two, neighbours last: Triton puts threads along them in this order."""
    nearest = {x: min(abs(d.between) for d in address.dimensions if d.axis == x) for x in axes}
    return axes if len(axes) < 3 else tuple(sorted(axes, key=lambda x: -nearest[x]))


def _outside(value: float | int) -> str:
    """Value of a masked-off element: a number of the elements' kind."""
    return str(value) if isinstance(value, int) else operators.constant(value)
