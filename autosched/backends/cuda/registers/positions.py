"""Positions of a thread's elements along the axes of a tile, as C++ text in the variables that count them.

A thread's part of an axis is defined once, the part of its registers is constant where loops over these are unrolled:

    const int own_n = lane * 4 + warp * 128;
    n_0 * 1024 + own_n + (r_n % 4 + r_n / 4 * 512)
"""

from __future__ import annotations

from collections.abc import Mapping

from autosched.backends.cuda.language.index import Indexing, grouped, scaled, sum_of
from autosched.backends.cuda.registers.layouts import Layout, Spread, register_offset, simplified, thread_offset
from autosched.backends.cuda.registers.tiles import Tiles
from autosched.backends.printing.scope import Block, Identifiers
from search_spaces.programs.tiles import Skew, Slice


class Positions:
    """Prints the positions of one kernel's tiles; definitions go into its block."""

    def __init__(self, indexing: Indexing, tiles: Tiles, identifiers: Identifiers, block: Block, warps: int) -> None:
        self.indexing = indexing
        self._tiles = tiles
        self._identifiers = identifiers
        self._block = block
        self._warps = warps

    def own(self, axis: str, spread: Spread) -> str:
        """Position along an axis of the thread's first element."""
        text = thread_offset(spread, self._warps)
        if text == "0":
            return text
        digits = tuple(d for d in simplified(spread))
        name = self._identifiers.of(("own", axis, digits), f"own_{axis}")
        self._block.define(name, f"const int {name} = {text};", frozenset())
        return name

    def register(self, axis: str, spread: Spread) -> str:
        """Distance of one of the thread's elements from its first."""
        return register_offset(spread, self._tiles.at([axis], {axis: spread})[axis])

    def counting(self, layout: Layout) -> Mapping[str, str]:
        """The variables that count a thread's elements along the axes of a layout."""
        return self._tiles.at(layout, layout)

    def within(self, axis: str, spread: Spread) -> str:
        """Position along an axis of one of the thread's elements."""
        return sum_of(self.own(axis, spread), grouped(self.register(axis, spread)))

    def of_vector(self, axis: str, spread: Spread) -> str:
        """Position of the first one of an element's neighbours in the thread."""
        register = self._tiles.at([axis], {axis: spread})[axis]
        return sum_of(self.own(axis, spread), grouped(register_offset(spread, register, of_vector=True)))

    def within_at(self, axis: str, spread: Spread, number: str) -> str:
        """Position along an axis of the thread's element of this number."""
        return sum_of(self.own(axis, spread), grouped(register_offset(spread, grouped(number))))

    def position(self, piece: Slice, layout: Layout) -> str:
        """The position of one of the thread's elements in a dimension."""
        found = self._counted(piece, layout)
        for b in reversed(piece.before):
            at, then = (self.position(s, layout) for s in (b.at, b.then))
            found = f"({at} < {b.size} ? {then} : {found})"
        if piece.skew is not None:
            found = f"{found} - {self.behind(piece.skew, layout)}"
        return found

    def _counted(self, piece: Slice, layout: Layout) -> str:
        start = self.indexing.affine(piece.start)
        if piece.extent is None:
            return start
        count = self.within(piece.axis, layout[piece.axis])
        if piece.flat is not None:
            count = grouped(sum_of(self.indexing.affine(piece.flat.start), count))
            count = f"({count} {piece.flat.text('/')})"
        return sum_of(start, count if piece.step == 1 else scaled(count, piece.step))

    def behind(self, skew: Skew, layout: Layout) -> str:
        """Distance by which the positions of a row are moved back."""
        parts = [scaled(self.position(piece, layout), apart) for piece, apart in skew.terms]
        return f"{grouped(sum_of(*parts))} % {skew.vector}"
