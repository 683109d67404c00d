"""Statements that compute tiles element by element: positions, constants, pointwise operators; and folds of them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.backend import CompileError
from autosched.backends.cuda.language import operators
from autosched.backends.cuda.language.index import sum_of
from autosched.backends.cuda.language.operators import converted
from autosched.backends.cuda.language.types import constant, held_type
from autosched.backends.cuda.registers.exchange import Exchange
from autosched.backends.cuda.registers.layouts import Layout, Spread, vector
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.reduce import Folds
from autosched.backends.cuda.registers.tiles import Tiles
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import Fill, Map, Position, Reduce, Statement, fold_identity
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import is_integer


class Arithmetic:
    """Prints such statements of one kernel."""

    def __init__(self, tiles: Tiles, positions: Positions, exchange: Exchange, folds: Folds) -> None:
        self._tiles = tiles
        self._positions = positions
        self._exchange = exchange
        self._folds = folds

    def position(self, s: Position) -> None:
        """Print the positions of a piece."""
        dst = self._tiles.declare(s.dst)
        value = self._positions.position(s.piece, dst.layout)
        at = self._tiles.at(s.dst.axes, dst.layout)
        self._tiles.each(dst.layout, s.dst.axes, [f"{dst.element(at)} = {held_type(s.dst.dtype)}({value});"])

    def fill(self, s: Fill) -> None:
        """Print a tile of one number."""
        dst = self._tiles.declare(s.dst)
        at = self._tiles.at(s.dst.axes, dst.layout)
        self._tiles.each(dst.layout, s.dst.axes, [f"{dst.element(at)} = {constant(s.value, s.dst.dtype)};"])

    def loop_of(self, s: Statement) -> object:
        """Key of statements that share a loop over registers; None for those with loops of their own."""
        if not isinstance(s, Map):
            return None
        layout = self._tiles.layout(s.dst.name)
        return [(x, layout[x]) for x in s.dst.axes]

    def maps(self, run: Sequence[Map]) -> None:
        """Print pointwise statements on tiles of one layout."""
        lines = [self._map(s) for s in run]
        dst = run[0].dst
        self._tiles.each(self._tiles.layout(dst.name), dst.axes, lines)

    def _map(self, s: Map) -> str:
        """One element of the statement's result."""
        layout = self._tiles.layout(s.dst.name)
        at = self._tiles.at(s.dst.axes, layout)
        arguments: list[tuple[str, str] | float | int] = []
        for argument in s.arguments:
            if isinstance(argument, str):
                held = self._exchange.as_in(self._tiles[argument], layout)
                arguments.append((held.element(at), held.tile.dtype))
            else:
                arguments.append(argument)
        dst = self._tiles.declare(s.dst)
        return f"{dst.element(at)} = {operators.mapped(s, arguments)};"

    def reduce(self, s: Reduce) -> None:
        """Print a fold; elements outside its bound are left out."""
        source = self._tiles[s.src]
        rest = tuple(a for a in source.tile.axes if a != s.axis)
        if s.dst.axes != rest:
            raise CompileError(f"{s.operator} of {s.src} over {s.axis} has axes {list(rest)}, not {list(s.dst.axes)}")
        at = self._tiles.at(source.tile.axes, source.layout)
        value = converted(source.element(at), source.tile.dtype, s.dst.dtype)
        if s.bound is not None:
            piece = Slice(s.bound.start, source.tile.extent(s.axis), s.axis, skew=s.bound.skew)
            bounded = Dimension.of(piece, s.bound.size, self._positions.indexing.extents)
            tests = self._tests(bounded, source.layout)
            if tests:
                left_out = constant(fold_identity(s.operator, is_integer(s.dst.dtype)), s.dst.dtype)
                value = f"{tests} ? {value} : {left_out}"
        if value != source.element(at):
            tile = Tile(s.src, source.tile.axes, source.tile.shape, s.dst.dtype)
            folded = self._tiles.temporary(tile, f"{source.name}_folded", source.layout)
            self._tiles.each(source.layout, tile.axes, [f"{folded.element(at)} = {value};"])
            source = folded
        dst = self._tiles.declare(s.dst)
        own = {x: source.layout[x] for x in rest}
        made = dst if dst.layout == own else self._tiles.temporary(s.dst, f"{dst.name}_made", own)
        self._folds.fold(s.operator, source, s.axis, made)
        if made is not dst:
            self._exchange.move(made, dst)

    def _tests(self, d: Dimension, layout: Layout) -> str:
        if _is_cut_at_vectors(d, layout[d.axis]):
            within = self._positions.of_vector(d.axis, layout[d.axis])
            at = sum_of(self._positions.indexing.affine(d.slice.start), within)
        else:
            at = self._positions.position(d.slice, layout)
        return " && ".join(f"{at} {t}" for t in reversed(d.tests))


def _is_cut_at_vectors(d: Dimension, spread: Spread) -> bool:
    """True if the neighbours that a thread has are all inside a dimension, or all outside."""
    starts = (d.slice.start.offset, *(coefficient for _, coefficient in d.slice.start.terms))
    return d.slice.skew is None and all(x % vector(spread) == 0 for x in (d.size, *starts))
