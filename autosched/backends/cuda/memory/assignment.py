"""Layouts of all tiles of a kernel: those of accumulators are given by dots, the others suit memory.

Tiles that statements combine element by element (an operator and its arguments, a fold and its operand) are a family
with one layout. A family with an accumulator has that of the accumulator; a part of another family's tile (halves,
every other element, axes split into several) has the part of its layout; any other is blocked: the axis along which
memory has neighbours is counted by vectors, then by lanes, then by warps.

Layouts decide the speed of a kernel, never its correctness: where two different ones meet, the printer exchanges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from autosched.backends.cuda.language.index import Indexing
from autosched.backends.cuda.language.types import element_bytes
from autosched.backends.cuda.memory.places import vectors
from autosched.backends.cuda.registers.layouts import Layout, Spread, blocked, extent, simplified
from autosched.backends.cuda.registers.parts import after_digits, cut, first_half, interleaved
from autosched.backends.gpu.warps import WARP
from search_spaces.programs.addressing import Address, address
from search_spaces.programs.statements import (
    Deinterleave,
    Gather,
    Interleave,
    Load,
    Map,
    Reduce,
    Regroup,
    Scan,
    Split,
    Statement,
    Store,
    produced,
    read,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Tile

# Two sectors, the unit of memory transfers (CUDA programming guide, "Device Memory Accesses"). With fewer bytes at
# once, a warp's access takes as many passes as it has lines.
_RUN_BYTES = 64


def assigned(
    program: TileProgram, kernel: Kernel, indexing: Indexing, anchored: Mapping[str, Layout]
) -> dict[str, Layout]:
    """The layout of every tile. `anchored`: the given ones, of accumulators say."""
    return _Assignment(program, kernel, indexing, anchored).layouts()


class _Assignment:
    def __init__(
        self, program: TileProgram, kernel: Kernel, indexing: Indexing, anchored: Mapping[str, Layout]
    ) -> None:
        self._program, self._indexing, self._warps = program, indexing, kernel.launch.num_warps
        self._body = [*statements(kernel.body)]
        self._tiles = {t.name: t for s in self._body for t in produced(s)}
        self._anchored = anchored
        self._family = {name: name for name in self._tiles}
        for s in self._body:
            for other in _tied(s):
                self._join(produced(s)[0].name, other)
        self._known: dict[str, dict[str, Spread]] = {}

    def layouts(self) -> dict[str, Layout]:
        for name, layout in self._anchored.items():
            if name in self._tiles:
                known = self._known.setdefault(self._root(name), {})
                known |= {x: spread for x, spread in layout.items() if x not in known}
        self._derive()
        for name in sorted(self._tiles, key=lambda n: -self._tiles[n].elements):
            if self._root(name) not in self._known:
                self._known[self._root(name)] = self._blocked(self._root(name))
                self._derive()
        return {name: self._layout(tile) for name, tile in self._tiles.items()}

    def _root(self, name: str) -> str:
        while self._family[name] != name:
            name = self._family[name]
        return name

    def _join(self, a: str, b: str) -> None:
        if a in self._family and b in self._family:
            self._family[self._root(b)] = self._root(a)

    def _layout(self, tile: Tile) -> Layout:
        """The part of the family's layout for the tile; if there is none, one of its own."""
        if tile.name in self._anchored:
            return {x: self._anchored[tile.name][x] for x in tile.axes}
        known = self._known[self._root(tile.name)]
        own = {x: known[x] for x in tile.axes if x in known and extent(known[x]) == tile.extent(x)}
        if len(own) == len(tile.axes) and not _overlap(own):
            return own
        return blocked({x: tile.extent(x) for x in reversed(tile.axes)}, self._warps)

    # Parts of other tiles

    def _derive(self) -> None:
        """Give families of parts of other tiles their layouts, as far as these are known."""
        changed = True
        while changed:
            changed = False
            for s in self._body:
                for tile, layout in self._parts(s):
                    if self._root(tile) not in self._known and layout is not None:
                        self._known[self._root(tile)] = dict(layout)
                        changed = True

    def _parts(self, s: Statement) -> Iterator[tuple[str, Layout | None]]:
        if not isinstance(s, Split | Regroup | Deinterleave | Interleave):
            return
        source = s.src[0] if isinstance(s, Interleave) else s.src
        if source not in self._tiles or self._root(source) not in self._known:
            return
        layout = self._layout(self._tiles[source])
        match s:
            case Split(first=first, axis=axis):
                half = first_half(layout[axis])
                yield first.name, None if half is None else {**layout, axis: half}
            case Deinterleave(dst=dst, axis=axis):
                rest = after_digits(layout[axis], len(dst))
                yield dst[0].name, None if rest is None else {**layout, axis: rest}
            case Interleave(dst=dst, axis=axis):
                yield dst.name, {**layout, axis: interleaved(layout[axis], len(s.src))}
            case Regroup(dst=dst, axis=axis):
                made = [x for x in dst.axes if x not in layout or x == axis]
                pieces = cut(layout[axis], [dst.extent(x) for x in reversed(made)])
                rest_of = {x: spread for x, spread in layout.items() if x != axis}
                if pieces is not None:
                    yield dst.name, {**rest_of, **dict(zip(reversed(made), pieces, strict=True))}

    # Blocked layouts

    def _blocked(self, root: str) -> dict[str, Spread]:
        members = [t for name, t in self._tiles.items() if self._root(name) == root]
        largest = max(members, key=lambda t: t.elements)
        weights: dict[str, int] = {}
        widths: dict[str, int] = {}
        for tile, at in self._moves({t.name for t in members}):
            for axis, most in vectors(at, self._indexing).items():
                weights[axis] = weights.get(axis, 0) + tile.elements * element_bytes(at.buffer.dtype)
                if tile.elements == largest.elements and most > 1:
                    # The widest elements in vectors; narrower ones move fewer bytes at once, but side by side.
                    widths[axis] = min(widths.get(axis, most), most)
        # Among equals the last first.
        axes = largest.axes
        order = sorted(axes, key=lambda x: (-weights.get(x, 0), -axes.index(x)))
        extents = {x: largest.extent(x) for x in order}
        for tile in members:
            extents |= {x: e for x, e in zip(tile.axes, tile.shape, strict=True) if x not in extents}
        held = max(1, largest.elements // (WARP * self._warps))
        width = min(widths.get(order[0], 1), 1 << (held.bit_length() - 1)) if order else 1
        width = max(width, self._turns(members, order[0]) if order else 1)
        return dict(blocked(extents, self._warps, width))

    def _turns(self, members: Sequence[Tile], axis: str) -> int:
        """Neighbours along the axis that a thread needs so that deinterleaving moves nothing."""
        names = {t.name for t in members}
        parts = [len(s.dst) for s in self._body if isinstance(s, Deinterleave) and s.src in names and s.axis == axis]
        put = [s for s in self._body if isinstance(s, Interleave) and s.dst.name in names]
        return max([1, *parts, *(len(s.src) for s in put if s.axis == axis)])

    def _moves(self, names: set[str]) -> Iterator[tuple[Tile, Address]]:
        for s in self._body:
            match s:
                case Load(dst=tile, buffer=name, slices=index) | Gather(dst=tile, buffer=name, index=index):
                    pass
                case Store(src=src, buffer=name, slices=index):
                    tile = self._tiles[src]
                case _:
                    continue
            if tile.name in names:
                yield tile, address(self._program.buffer(name), index, self._indexing.extents)


def _tied(s: Statement) -> Sequence[str]:
    """The tiles that share the layout of the statement's result, as far as they have its axes."""
    match s:
        case Map() | Reduce() | Gather():
            return read(s)
        case Scan(dsts=dsts):
            return (*read(s), *(t.name for t in dsts))
        case Split(second=second):
            return (second.name,)
        case Deinterleave(dst=dst):
            return tuple(t.name for t in dst)
        case _:
            return ()


def _overlap(layout: Layout) -> bool:
    """True if two axes are counted by the same lanes or warps."""
    digits = sorted((d.kind, d.place, d.size) for s in layout.values() for d in s if d.kind != "register")
    return any(a[0] == b[0] and a[1] * a[2] > b[1] for a, b in itertools.pairwise(digits))


def moving_layout(tile: Tile, layout: Layout, at: Address, indexing: Indexing, warps: int) -> Layout:
    """The layout in which to move a tile to or from memory: its own, unless another moves more at once."""
    own = {x: layout[x] for x in tile.axes}
    if tile.elements < WARP * warps:
        return own
    for axis, most in vectors(at, indexing).items():
        size, row = element_bytes(at.buffer.dtype), _row(axis, tile, at)
        wanted = min(_RUN_BYTES, math.prod(map(tile.extent, row)) * size)
        if _run(own, row) * size >= wanted:
            return own
        order = [*row, *(x for x in reversed(tile.axes) if x not in row)]
        other = blocked({x: tile.extent(x) for x in order}, warps, most)
        if _run(other, row) * size >= wanted:
            return other
    return own


def _row(axis: str, tile: Tile, at: Address) -> list[str]:
    """The axes whose positions are one row in memory, from this one on: each begins where the one before it ends."""
    row, length = [axis], tile.extent(axis)
    while more := next((x for x in tile.axes if x not in row and at.between(x) == length), None):
        row.append(more)
        length *= tile.extent(more)
    return row


def _run(layout: Layout, row: Sequence[str]) -> int:
    """Neighbours of a row that a warp has at once: those of a thread, and of the next lanes."""
    run = 1
    for n, axis in enumerate(row):
        digits = simplified(layout[axis])
        own = digits[0].size if n == 0 and digits and digits[0].kind == "register" else 1
        lanes = itertools.takewhile(lambda digit: digit.kind == "lane", digits[own > 1 :])
        along = own * math.prod(digit.size for digit in lanes)
        run *= along
        if along < extent(layout[axis]):
            break
    return run
