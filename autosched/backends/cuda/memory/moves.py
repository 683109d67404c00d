"""The statements that move tiles between memory and registers, by pointers, in vectors of up to 16 bytes.

    const float* const x_from = x_ptr + (m_0 * 16 + own_m) * 4096 + own_n;
    #pragma unroll
    for (int r_n = 0; r_n < 32; r_n += 4)
        load<4, 1>(x + r_n, x_from + r_n / 4 * 512);

A tile whose layout would move less than a sector of memory at once is moved in another layout, through shared memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.backends.cuda.language.index import sum_of
from autosched.backends.cuda.language.operators import converted
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.language.types import constant, held_dtype, memory_type
from autosched.backends.cuda.memory.assignment import moving_layout
from autosched.backends.cuda.memory.places import Place, Places
from autosched.backends.cuda.registers.exchange import Exchange
from autosched.backends.cuda.registers.layouts import Layout, copies, thread_digit
from autosched.backends.cuda.registers.tiles import Held, Tiles
from autosched.backends.printing.scope import Block, Identifiers
from search_spaces.programs.addressing import address
from search_spaces.programs.statements import Gather, Load, Store
from search_spaces.programs.tile_program import Buffer, TileProgram
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import is_float

# Above every index (`search_spaces.workloads.workload.MAX_EXTENT`), in float32.
_MAX_INDEX = "2147483648.0f"


@dataclass(frozen=True)
class Move:
    """A load: its buffer and place there, its layout, and the variables that count a thread's elements."""

    dst: Tile
    buffer: Buffer
    layout: Layout
    place: Place
    at: Mapping[str, str]

    @property
    def held(self) -> Held:
        return Held("", self.dst, {x: self.layout[x] for x in self.dst.axes})

    @property
    def index(self) -> str:
        """Number of the element among a thread's."""
        return self.held.index(self.at)

    @property
    def apart(self) -> int:
        """Distance in a thread's elements from one along the vectors' axis to the next."""
        return self.held.apart(self.place.axis) if self.place.axis else 1


@dataclass(frozen=True)
class MemoryPrinter:
    """Prints the statements of one kernel that read and write memory.

    `parameters`: the names of buffers; `written`: those that it writes.
    """

    program: TileProgram
    parameters: Mapping[str, str]
    written: Collection[str]
    warps: int
    tiles: Tiles
    places: Places
    exchange: Exchange
    identifiers: Identifiers
    block: Block
    _count: list[str] = field(default_factory=list)

    def move(self, s: Load) -> Move:
        """Addresses of the elements of a load, and their layout."""
        buffer = self.program.buffer(s.buffer)
        at = address(buffer, s.slices, self.places.indexing.extents)
        layout = moving_layout(s.dst, self.tiles.layout(s.dst.name), at, self.places.indexing, self.warps)
        return Move(s.dst, buffer, layout, self.places.place(at, layout), self.tiles.at(s.dst.axes, layout))

    def load(self, s: Load, source: str | None = None) -> None:
        """Print a load; from `source`, if its elements are there already, those outside being 0."""
        move = self.move(s)
        if source is not None and not s.fill:
            move = replace(move, place=replace(move.place, tests=()))
        evicted = source is None and s.eviction == "evict_first" and s.buffer not in self.written
        self._load(move, s.fill, evicted, source)

    def gather(self, s: Gather) -> None:
        buffer = self.program.buffer(s.buffer)
        layout = self.tiles.layout(s.dst.name)
        index = {at: self._as_index(at, layout) for at in s.index if isinstance(at, str)}
        at = address(buffer, s.index, self.places.indexing.extents)
        place = self.places.place(at, layout, looked_up=index)
        move = Move(s.dst, buffer, layout, place, self.tiles.at(s.dst.axes, layout))
        self._load(move, s.outside(buffer.dtype), evicted=False)

    def _as_index(self, name: str, layout: Layout) -> Held:
        """The tile's values as integers of 64 bits; values that cannot be an index, such as NaN, as -1."""
        held = self.exchange.as_in(self.tiles[name], layout)
        if held.tile.dtype == "int64":
            return held
        tile = Tile(held.tile.name, held.tile.axes, held.tile.shape, "int64")
        index = self.tiles.temporary(tile, f"{held.name}_at", held.layout)
        at = self.tiles.at(tile.axes, held.layout)
        value = held.element(at)
        if is_float(held.tile.dtype):
            value = f"{value} >= 0.0f && {value} < {_MAX_INDEX} ? int64({value}) : -1"
        self.tiles.each(held.layout, tile.axes, [f"{index.element(at)} = {value};"])
        return index

    def _load(self, move: Move, fill: float | int, evicted: bool, source: str | None = None) -> None:
        made = held = self.tiles.declare(move.dst)
        if move.layout != held.layout or move.dst.dtype != move.buffer.dtype:
            tile = replace(move.dst, dtype=move.buffer.dtype)
            made = self.tiles.temporary(tile, f"{held.name}_loaded", move.layout)
        arguments = [made.address(move.at), self.pointer(move) if source is None else source]
        if move.place.tests:
            arguments += [" && ".join(move.place.tests), *([constant(fill, move.buffer.dtype)] if fill else [])]
        function = "load_streaming" if evicted else "load"
        apart = made.apart(move.place.axis) if move.place.axis else 1
        self.each_vector(move, [call(f"{function}<{move.place.vector}, {apart}>", *arguments) + ";"])
        self._converted(made, held)

    def each_vector(self, move: Move, lines: Sequence[str]) -> None:
        """Write the lines for every vector that a thread moves."""
        steps = {move.place.axis: move.place.vector} if move.place.axis else {}
        self.tiles.each(move.layout, move.dst.axes, lines, steps)

    def pointer(self, move: Move) -> str:
        """Pointer to an element of a load."""
        return self._pointer(move.buffer.name, self.tiles.name(move.dst.name), move.place)

    def _converted(self, made: Held, held: Held) -> None:
        """Set a tile to the elements loaded for it, in its own type and layout."""
        if made is held:
            return
        made = self.exchange.as_in(made, held.layout)
        at = self.tiles.at(held.tile.axes, held.layout)
        value = converted(made.element(at), made.tile.dtype, held.tile.dtype)
        self.tiles.each(held.layout, held.tile.axes, [f"{held.element(at)} = {value};"])

    def store(self, s: Store) -> None:
        buffer, held = self.program.buffer(s.buffer), self.tiles[s.src]
        where = address(buffer, s.slices, self.places.indexing.extents)
        layout = moving_layout(held.tile, held.layout, where, self.places.indexing, self.warps)
        if held_dtype(held.tile.dtype) != held_dtype(buffer.dtype) or layout != held.layout:
            # Elements are rounded before an exchange.
            tile = replace(held.tile, dtype=buffer.dtype)
            rounded = self.tiles.temporary(tile, f"{held.name}_stored", held.layout)
            at = self.tiles.at(tile.axes, held.layout)
            value = converted(held.element(at), held.tile.dtype, buffer.dtype)
            self.tiles.each(held.layout, tile.axes, [f"{rounded.element(at)} = {value};"])
            held = self.exchange.as_in(rounded, layout)
        place = self.places.place(where, layout, stored=True)
        at = self.tiles.at(held.tile.axes, layout)
        pointer = self._pointer(s.buffer, held.name, place)
        tests = [*place.tests, *self._first_copy(held)]
        if s.where:
            chosen = self.exchange.as_in(self.tiles[s.where], layout)
            tests.append(f"{chosen.element(at)} != 0")
            if place.axis in chosen.tile.axes:
                place = replace(place, vector=1)
        if s.atomic:
            lines, steps = [f"add_atomically({pointer}, {held.element(at)});"], dict[str, int]()
        else:
            apart = held.apart(place.axis) if place.axis else 1
            function = f"{'store_streaming' if s.streaming else 'store'}<{place.vector}, {apart}>"
            lines = [call(function, pointer, held.address(at)) + ";"]
            steps = {place.axis: place.vector} if place.axis else {}
        if tests:
            lines = [f"if ({' && '.join(tests)})\n    " + lines[0].replace("\n", "\n    ")]
        self.tiles.each(layout, held.tile.axes, lines, steps)

    def _first_copy(self, held: Held) -> list[str]:
        """The condition that a thread is the first of those with the same elements."""
        own = {x: held.layout[x] for x in held.tile.axes}
        return [f"{thread_digit(d, self.warps)} == 0" for d in copies(own, self.warps)]

    def _pointer(self, buffer: str, tile: str, place: Place) -> str:
        """Pointer to an element; the part common to all of a thread's elements is defined before the loop."""
        name = self.parameters[buffer]
        if place.start == "0":
            return sum_of(name, place.offset)
        if place.offset == "0":
            return sum_of(name, place.start)
        element = memory_type(self.program.buffer(buffer).dtype)
        constant = "" if buffer in self.written else "const "
        self._count.append(name)
        start = self.identifiers.of(("start", len(self._count)), f"{tile}_at")
        self.block.write(f"{constant}{element}* const {start} = {name} + {place.start};")
        return sum_of(start, place.offset)
