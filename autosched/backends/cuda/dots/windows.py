"""Layouts of halos in shared memory, and of the operands that are windows of them.

halo: (h 10, w 18, k 64) float16     180 rows of 128 bytes, each padded to an odd number of chunks
a = halo[r + m // 16, s + m % 16]    row m is row (r * 18 + s) + (m / 16 * 18 + m % 16) of these

halo: (h 10, w 18, g 8, k 8)         180 rows of 128 bytes, which have a run of 16 bytes for each product of a batch
a, a2, a3, 0 along k                 chunk c of a row is that of tap c: the distance of two taps is the same

Each row of a matrix instruction's operand has an address of its own (ldmatrix), so that any window is one, and any of
its chunks may be of another tap. Runs that are shorter than a chunk are read in words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.stages import CHUNK
from autosched.backends.cuda.language.index import scaled, sum_of
from search_spaces.programs.statements import Dot, Fill, Interleave, Load, Statement, View
from search_spaces.programs.tile_program import Buffer, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine

# Bytes along k of one step of a matrix instruction.
_STEP_BYTES = 2 * CHUNK


@dataclass(frozen=True)
class Halo:
    """Layout of a halo: rows of `products` runs of `width` elements each, an odd number of pieces apart.

    Neighbouring rows then begin in different banks. A piece is what is copied at once: a chunk, of several runs
    `together` if these are shorter and in memory so, or such a run.
    """

    rows: int
    products: int
    width: int
    element_bytes: int
    together: int = 1

    @property
    def run_bytes(self) -> int:
        return self.width * self.element_bytes

    @property
    def piece(self) -> int:
        """Bytes of a piece."""
        return min(CHUNK, self.together * self.run_bytes)

    @property
    def pieces_of_run(self) -> int:
        return -(-self.run_bytes // self.piece)

    @property
    def pieces(self) -> int:
        """Pieces of a row with elements."""
        return self.products // self.together * self.pieces_of_run

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return self.piece * (self.pieces | 1)

    @property
    def bytes(self) -> int:
        return -(-self.rows * self.pitch // CHUNK) * CHUNK


@dataclass(frozen=True)
class Window:
    """The layout of an operand that is made of views of a halo, as `Stage` is that of one by itself.

    `rows`: the places of the first view, each with the distance in rows of its neighbours; `taps`: the views that
    follow one another along k, `apart` bytes from each other; `product_bytes`: from one product of a batch to the next.
    """

    halo: Halo
    axes: tuple[str, str]
    shape: tuple[int, int]
    rows: tuple[tuple[Slice, int], ...]
    product_bytes: int = 0
    taps: int = 1
    apart: int = 0

    @property
    def element_bytes(self) -> int:
        return self.halo.element_bytes

    @property
    def pitch(self) -> int:
        return self.halo.pitch

    @property
    def bytes(self) -> int:
        """It takes no memory but its halo's."""
        return 0

    @property
    def start(self) -> Affine:
        """Bytes from the halo's first row to the window's."""
        return sum((piece.start * (apart * self.pitch) for piece, apart in self.rows), Affine())

    @property
    def run_bytes(self) -> int:
        """Bytes along k of one tap."""
        return self.halo.run_bytes

    @property
    def in_words(self) -> bool:
        """True if a tap's row is no whole chunk."""
        return self.run_bytes < CHUNK

    @property
    def ends_within_step(self) -> bool:
        """True if the second half of the last step is beyond the last tap."""
        return self.taps > 1 and self.taps * self.run_bytes // CHUNK % 2 > 0

    def chunk(self, row: str, chunk: str) -> str:
        if self.taps == 1:
            return sum_of(scaled(self._row(row), self.pitch), scaled(chunk, CHUNK))
        each = self.run_bytes // CHUNK
        tap, within = (chunk, "0") if each == 1 else (f"{chunk} / {each}", f"{chunk} % {each}")
        # What is beyond the last tap is not multiplied, but its address exists.
        tap = f"min({tap}, {self.taps - 1})" if self.ends_within_step else tap
        return sum_of(scaled(self._row(row), self.pitch), scaled(tap, self.apart), scaled(within, CHUNK))

    def tap(self, row: str, tap: str) -> str:
        """The place of a row of a tap."""
        return sum_of(scaled(self._row(row), self.pitch), scaled(tap, self.apart))

    def element(self, row: str, column: str) -> str:
        return sum_of(scaled(self._row(row), self.pitch), scaled(column, self.element_bytes))

    def _row(self, row: str) -> str:
        """Row of the halo, relative to the window's first one."""
        moving = [(piece, apart * piece.step) for piece, apart in self.rows if piece.axis == self.axes[0]]
        return sum_of(*(scaled(_digit(piece, row), apart) for piece, apart in moving))


def _digit(piece: Slice, row: str) -> str:
    flat = piece.flat
    if flat is None:
        return row
    divided = f"{row} / {flat.divisor}" if flat.divisor > 1 else row
    return divided if flat.divisor * flat.size == piece.extent else f"{divided} % {flat.size}"


@dataclass(frozen=True)
class Views:
    """The operands of a kernel's dots that are views of halos, by name, and the halos.

    `taps`: the views of each, one after the other along k; `parts`: all tiles that only the dots see: views, zeros, and
    several of these as one; `windows`: the layout of each operand, and `halos` those of the loaded tiles.
    """

    taps: Mapping[str, tuple[View, ...]]
    parts: frozenset[str]
    windows: Mapping[str, Window]
    halos: Mapping[str, Halo]

    @staticmethod
    def of(program: TileProgram, body: Sequence[Statement], multiplied: Mapping[str, Tile]) -> Views:
        """Raises CompileError for views of other tiles, and for those that no layout has."""
        taps = _views_of_halos(program, body, multiplied)
        batch = {x for s in body if isinstance(s, Dot) for x in s.dst.axes[:-2]}
        loads = {s.dst.name: s for s in body if isinstance(s, Load)}
        views = {several[0].src: several[0] for several in taps.values()}
        halos = {x: _layout(loads[x], program.buffer(loads[x].buffer), view, batch) for x, view in views.items()}
        tiles = {x: loads[x].dst for x in views}
        windows = {x: _window_of(v, tiles[v[0].src], halos[v[0].src], batch) for x, v in taps.items()}
        return Views(taps, _parts_of(body, taps), windows, halos)

    @property
    def first(self) -> dict[str, View]:
        """The first view of each operand."""
        return {x: several[0] for x, several in self.taps.items()}

    @property
    def joined(self) -> list[str]:
        """The operands of several taps."""
        return sorted(x for x, several in self.taps.items() if len(several) > 1)

    def without_zeros(self, tile: Tile) -> Tile:
        """An operand without the steps beyond its last tap."""
        if tile.name not in self.joined:
            return tile
        views, size = self.taps[tile.name], dtype(tile.dtype).bytes
        steps = -(-len(views) * views[0].dst.shape[-1] * size // _STEP_BYTES)
        return replace(tile, shape=(*tile.shape[:-1], steps * _STEP_BYTES // size))


def _layout(load: Load, buffer: Buffer, view: View, batch: Collection[str]) -> Halo:
    """The layout of a halo with this view: a row has the last axis, and the products of a batch next to it."""
    *rest, beside, width = load.dst.shape
    products = beside if view.slices[-2].axis in batch else 1
    together = _together(load, buffer) if products % 2 == 0 else 1
    rows = math.prod(rest) * beside // products
    return Halo(rows, products, width, dtype(load.dst.dtype).bytes, together)


def _together(load: Load, buffer: Buffer) -> int:
    """Two, if runs of half a chunk are next to each other in memory, from whole chunks on; else one."""
    *outer, beside, _ = buffer.strides
    width, count, first = buffer.shape[-1], buffer.shape[-2], load.slices[-2].start
    chunk = CHUNK // dtype(load.dst.dtype).bytes
    adjacent = load.slices[-2].axis == load.dst.axes[-2]
    whole = adjacent and load.dst.shape[-1] == width == beside == chunk // 2
    even = not any(x % 2 for x in (count, first.offset, *(c for _, c in first.terms)))
    return 2 if whole and even and not any(x % chunk for x in outer) else 1


def _window_of(views: Sequence[View], halo: Tile, layout: Halo, batch: Collection[str]) -> Window:
    """The layout of an operand that is one view of a halo, or several along k.

    Raises CompileError for views that have other columns, or that are no taps at equal distances.
    """
    first = views[0]
    *pieces, columns = first.slices
    free = [x for x in first.dst.axes[:-1] if x not in batch]
    if len(free) != 1 or columns.start != Affine() or columns.axis != first.dst.axes[-1]:
        raise CompileError(f"{first.dst} is no window of {halo}")
    inner = len(pieces) - (layout.products > 1)
    apart = [math.prod(halo.shape[at + 1 : inner]) for at in range(inner)]
    rows = tuple(zip(pieces[:inner], apart, strict=True))
    along = [between * layout.pitch for piece, between in rows if piece.axis in batch]
    run = layout.pieces_of_run * layout.piece // layout.together
    product_bytes = run if layout.products > 1 else sum(along)
    width = first.dst.shape[-1] * len(views)
    made = Window(layout, (free[0], columns.axis), (first.dst.extent(free[0]), width), rows, product_bytes, len(views))
    return replace(made, apart=_apart(views, made)) if len(views) > 1 else made


def _apart(views: Sequence[View], window: Window) -> int:
    """Bytes between the taps of a window. Raises CompileError if they are not at equal distances."""
    pieces = len(window.rows)
    moved = [tuple(zip(v.slices[:pieces], (a for _, a in window.rows), strict=True)) for v in views]
    starts = [replace(window, rows=rows).start for rows in moved]
    step = starts[1] - starts[0]
    if step.terms or any(b - a != step for a, b in itertools.pairwise(starts)):
        raise CompileError(f"{views[0].dst.name} and {len(views) - 1} more are not at equal distances")
    return step.offset


def _views_of_halos(
    program: TileProgram, body: Sequence[Statement], multiplied: Mapping[str, Tile]
) -> dict[str, tuple[View, ...]]:
    """The operands of dots that are views of loaded tiles, by name: of one view, or of several and zeros along k."""
    loads = {s.dst.name: s for s in body if isinstance(s, Load)}
    views = {s.dst.name: s for s in body if isinstance(s, View)}
    zeros = {s.dst.name for s in body if isinstance(s, Fill) and s.value == 0}
    found: dict[str, tuple[View, ...]] = {x: (views[x],) for x in multiplied if x in views}
    for s in body:
        if isinstance(s, Interleave) and s.dst.name in multiplied and s.src[0] in views:
            parts = tuple(views[x] for x in s.src if x in views)
            whole = s.run == parts[0].dst.extent(s.axis) and s.axis == s.dst.axes[-1]
            ends = {*s.src[len(parts) :]} <= zeros and len({v.src for v in parts}) == 1
            if not (whole and ends and [v.dst.name for v in parts] == [*s.src[: len(parts)]]):
                raise CompileError(f"{s.dst} is made of views in another order than that of taps and zeros")
            found[s.dst.name] = parts
    for name, parts in found.items():
        load = loads.get(parts[0].src)
        if load is None or load.fill != 0 or program.buffer(load.buffer).dtype != load.dst.dtype:
            raise CompileError(f"{multiplied[name]} is a view of a tile that is computed; expected one that is loaded")
    return found


def _parts_of(body: Sequence[Statement], taps: Mapping[str, Sequence[View]]) -> frozenset[str]:
    """The tiles that are windows of halos, or join several of these: views, zeros, and all of them in a row."""
    joined = [s for s in body if isinstance(s, Interleave) and s.dst.name in taps]
    return frozenset({*taps, *(x for s in joined for x in s.src)})
