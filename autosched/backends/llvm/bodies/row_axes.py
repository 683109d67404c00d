"""Axes of a kernel without a dot: rows, one after the other, and columns, which are vectorised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autosched.backends.backend import CompileError
from search_spaces.programs.statements import (
    For,
    Map,
    Reduce,
    Scan,
    Statement,
    Store,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import is_integer


@dataclass(frozen=True)
class RowAxes:
    """`column` is the vectorised axis, `row` the other one ("" for none)."""

    row: str
    column: str


def row_axes(kernel: Kernel) -> RowAxes:
    """The axes of a kernel without a dot: its columns are reduced, or the last axis of the largest store.

    Raises:
        CompileError: it has more than two axes, or none.
    """
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    reduced = [s.axis for s in statements(kernel.body) if isinstance(s, Reduce | Scan)]
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    stored = max((s.axes for s in reversed(stores)), key=len, default=())
    axes = dict.fromkeys([*(x for t in tiles.values() for x in t.axes), *(x for s in stores for x in s.axes)])
    last = dict.fromkeys(reduced or stored[-1:] or [t.axes[-1] for t in tiles.values() if t.axes])
    if len(last) != 1 or len(axes) > 2:
        raise CompileError(f"kernel {kernel.name}: tiles over the axes {sorted(axes)}; expected rows and columns")
    column = next(iter(last))
    return RowAxes(next((x for x in axes if x != column), ""), column)


def with_whole_stores(kernel: Kernel) -> Kernel:
    """The kernel with every tile that is stored having all axes of its place.

    Before:  store out[r.0*4 : +4, c.0*64 : +64] = t              t has no axis c
    After:   t.whole = cast t;  store out[…] = t.whole            t.whole has both
    """
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}

    def whole(body: tuple[Statement, ...]) -> Iterator[Statement]:
        for s in body:
            if isinstance(s, For):
                yield replace(s, body=tuple(whole(s.body)))
            elif isinstance(s, Store):
                if len(s.axes) > len(tiles[s.src].axes):
                    dtype = "int64" if is_integer(tiles[s.src].dtype) else "float32"
                    dst = Tile.along(s.slices, f"{s.src}.whole", dtype)
                    yield Map(dst, "cast", (s.src,))
                    s = replace(s, src=dst.name)
                yield s
            else:
                yield s

    return replace(kernel, body=tuple(whole(kernel.body)))
