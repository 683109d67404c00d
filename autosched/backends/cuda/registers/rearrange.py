"""Statements that rearrange a tile: parts of it, halves, every other element, axes split into several.

The source is converted to the layout in which a thread has the elements of its result; if it has that already, as
layout assignment arranges, a thread's elements are only renumbered, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Mapping

from autosched.backends.backend import CompileError
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.registers.exchange import Exchange
from autosched.backends.cuda.registers.layouts import Digit, registers, simplified
from autosched.backends.cuda.registers.parts import after_digits, interleaved
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.tiles import Held, Tiles
from search_spaces.programs.statements import Deinterleave, Interleave, Regroup, Split, View


class Rearranging:
    """Prints such statements of one kernel."""

    def __init__(self, tiles: Tiles, positions: Positions, exchange: Exchange) -> None:
        self._tiles = tiles
        self._positions = positions
        self._exchange = exchange

    def view(self, s: View) -> None:
        source, dst = self._tiles[s.src], self._tiles.declare(s.dst)
        whole = all(not p.start.terms and p.start.offset == 0 and p.step == 1 for p in s.slices)
        if whole and dst.tile.axes == source.tile.axes and dst.tile.shape == source.tile.shape:
            self._take(self._exchange.as_in(source, dst.layout), dst, {})
            return
        placed = zip(source.tile.axes, s.slices, strict=True)
        positions = {x: self._positions.position(piece, dst.layout) for x, piece in placed}
        self._exchange.read(dst, self._exchange.written(source, source.tile.axes[-1:]), positions)

    def split(self, s: Split) -> None:
        for number, tile in enumerate((s.first, s.second)):
            dst = self._tiles.declare(tile)
            spread = dst.layout[s.axis]
            halves = simplified((*spread, Digit("register", 2)))
            source = self._exchange.as_in(self._tiles[s.src], {**dst.layout, s.axis: halves})
            own = self._tiles.at([s.axis], dst.layout)[s.axis]
            self._take(source, dst, {s.axis: sum_of(own, str(number * registers(spread)))})

    def take_apart(self, s: Deinterleave) -> None:
        parts = len(s.dst)
        for number, tile in enumerate(s.dst):
            dst = self._tiles.declare(tile)
            turns = interleaved(dst.layout[s.axis], parts)
            source = self._exchange.as_in(self._tiles[s.src], {**dst.layout, s.axis: turns})
            own = self._tiles.at([s.axis], dst.layout)[s.axis]
            self._take(source, dst, {s.axis: sum_of(scaled(own, parts), str(number))})

    def put_together(self, s: Interleave) -> None:
        if s.run > 1:
            raise CompileError(f"{s.dst.name} has runs of {s.run} of its parts; expected single positions in turn")
        dst = self._tiles.declare(s.dst)
        parts = len(s.src)
        rest = after_digits(dst.layout[s.axis], parts)
        made = dst
        if rest is None:
            rest = self._tiles.layout(s.src[0])[s.axis]
            layout = {**dst.layout, s.axis: interleaved(rest, parts)}
            made = self._tiles.temporary(s.dst, f"{dst.name}_turns", layout)
        for number, name in enumerate(s.src):
            layout = {**made.layout, s.axis: rest}
            source = self._exchange.as_in(self._tiles[name], layout)
            at = self._tiles.at(s.dst.axes, layout)
            to = {**at, s.axis: sum_of(scaled(at[s.axis], parts), str(number))}
            self._tiles.each(layout, s.dst.axes, [f"{made.element(to)} = {source.element(at)};"])
        if made is not dst:
            self._exchange.move(made, dst)

    def regroup(self, s: Regroup) -> None:
        dst = self._tiles.declare(s.dst)
        axes = self._tiles[s.src].tile.axes
        # Axes in place of the axis, the one with neighbours first.
        made = [x for x in reversed(s.dst.axes) if x not in axes or x == s.axis]
        whole = simplified(d for x in made for d in dst.layout[x])
        layout = {**{x: spread for x, spread in dst.layout.items() if x not in made}, s.axis: whole}
        at = self._tiles.at(made, dst.layout)
        number, apart = list[str](), 1
        for x in made:
            number.append(scaled(at[x], apart))
            apart *= registers(dst.layout[x])
        self._take(self._exchange.as_in(self._tiles[s.src], layout), dst, {s.axis: sum_of(*number)})

    def _take(self, source: Held, dst: Held, numbers: Mapping[str, str]) -> None:
        """Set every element to the source's element with the same numbers, except for these along some axes."""
        at = self._tiles.at(dst.tile.axes, dst.layout)
        line = f"{dst.element(at)} = {source.element({**at, **numbers})};"
        self._tiles.each(dst.layout, dst.tile.axes, [line])
