"""Which axes a kernel without a dot has: rows, one after the other, and columns, which are vectorised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from autosched.backends.backend import CompileError
from search_spaces.programs.statements import (
    For,
    Gather,
    Load,
    Map,
    Position,
    Reduce,
    Scan,
    Statement,
    Store,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import is_integer


@dataclass(frozen=True)
class RowAxes:
    """`column` is the vectorised axis, `row` the other one ("" for none); `of` names the axis that every slice cuts."""

    row: str
    column: str
    of: Mapping[Slice, str]


def row_axes(kernel: Kernel) -> RowAxes:
    """The axes of a kernel without a dot: it reduces its columns, or stores them as the last axis of what has most.

    Raises:
        CompileError: it has more than two axes, or none.
    """
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    of = _axes_of_slices(kernel, tiles)
    reduced = [s.axis for s in statements(kernel.body) if isinstance(s, Reduce | Scan)]
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    stored = max(([of[p] for p in s.slices if p.extent is not None] for s in reversed(stores)), key=len, default=[])
    axes = dict.fromkeys([*(x for t in tiles.values() for x in t.axes), *of.values()])
    last = dict.fromkeys(reduced or stored[-1:] or [t.axes[-1] for t in tiles.values() if t.axes])
    if len(last) != 1 or len(axes) > 2:
        raise CompileError(f"kernel {kernel.name}: tiles over the axes {sorted(axes)}; expected rows and columns")
    column = next(iter(last))
    return RowAxes(next((x for x in axes if x != column), ""), column, of)


def with_whole_stores(kernel: Kernel) -> Kernel:
    """The kernel with every tile that is stored having all axes of its place.

    Before:  store out[r.0*4 : +4, c.0*64 : +64] = t              t has no axis c
    After:   t.whole = cast t;  store out[…] = t.whole            t.whole has both
    """
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    of = _axes_of_slices(kernel, tiles)

    def whole(body: tuple[Statement, ...]) -> Iterator[Statement]:
        for s in body:
            if isinstance(s, For):
                yield replace(s, body=tuple(whole(s.body)))
            elif isinstance(s, Store):
                place = {of[p]: p.extent for p in s.slices if p.extent is not None}
                if len(place) > len(tiles[s.src].axes):
                    dtype = "int64" if is_integer(tiles[s.src].dtype) else "float32"
                    dst = Tile(f"{s.src}.whole", tuple(place), tuple(place.values()), dtype)
                    yield Map(dst, "cast", (s.src,))
                    s = replace(s, src=dst.name)
                yield s
            else:
                yield s

    return replace(kernel, body=tuple(whole(kernel.body)))


def _axes_of_slices(kernel: Kernel, tiles: Mapping[str, Tile]) -> dict[Slice, str]:
    """The axis of every slice that cuts one: as what is read says, else what is left for it."""
    of: dict[Slice, str] = {}
    body = list(statements(kernel.body))
    for s in body:
        if isinstance(s, Load):
            of.update(zip((p for p in s.slices if p.extent is not None), s.dst.axes, strict=True))
        elif isinstance(s, Position) and s.dst.axes:
            of[s.piece] = s.dst.axes[0]
        elif isinstance(s, Gather):
            of.update(zip((i for i in s.index if isinstance(i, Slice) and i.extent is not None), s.axes, strict=True))
    for s in body:
        if isinstance(s, Store):
            pieces = [p for p in s.slices if p.extent is not None]
            _share_out(of, pieces, list(s.axes or tiles[s.src].axes))
            # Nothing is known along an axis that only an output has.
            of.update({p: f"{s.buffer}.{d}" for d, p in enumerate(pieces) if p not in of})
    return of


def _share_out(of: dict[Slice, str], pieces: list[Slice], axes: list[str]) -> None:
    """Name the slices that have no axis yet: in the order of the axes where they are as many, else after those axes
    that no slice has, if these are as many."""
    if len(pieces) == len(axes):
        of.update((piece, axis) for piece, axis in zip(pieces, axes, strict=True) if piece not in of)
    unnamed, free = [p for p in pieces if p not in of], [x for x in axes if x not in of.values()]
    if len(unnamed) == len(free):
        of.update(zip(unnamed, free, strict=True))
