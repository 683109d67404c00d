"""Folds of rows of points on a CPU, and the operand of the next product, which replaces the points.

top = max of points;  points = exp(points - top);  total = sum of points

for pieces: top = max(top, max of points)                            if points come in pieces: a loop for each fold
for pieces: points = exp(points - top);  total += sum of points      that needs complete results of others
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.chains.cached.cached_pieces import Pieces
from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.rows.row_parts import combine_operator, folded_in, identity, spread
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Fill, Load, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.structure.chains.chain import Chain, ChainedProduct
from search_spaces.structure.folds.moving import reads
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage


@dataclass(frozen=True)
class CachedFolds:
    """The folds of one program, over `height` rows at `place`, whose points are in the buffer `points`."""

    chain: Chain
    names: Names
    points: str
    place: Mapping[str, Slice]
    height: int
    pieces: Pieces | None = None

    @cached_property
    def kept(self) -> Mapping[str, Buffer]:
        """Private buffers for the folded values of every row that results need."""
        read = {a.tensor for name, e in self.chain.results if self.has_columns(name) for a in accesses(e)}
        return {f.name: self._of_rows(f.name) for f in self._folds if f.name in read}

    @cached_property
    def first(self) -> Buffer | None:
        """The buffer of every row's weight at skipped points, unless that is a constant."""
        return None if self._ruled_out(self._carried.a) is None else self._of_rows("first")

    def _of_rows(self, name: str) -> Buffer:
        return Buffer(self.names.fresh(f"{name}_of_rows"), (self.height,), "float32", "own")

    def statements(self) -> list[Statement]:
        """The folds, and the store of the next product's operand."""
        return self._at_once() if self.pieces is None else self._in_pieces(self.pieces)

    def start_sums(self, sums: str, axis: Axis) -> list[Statement]:
        """Start of sums along an axis: 0, or NaN for fully masked rows."""
        columns = Slice(Affine(), axis.extent, axis.name)
        emitter = replace(self._emitter({}), place={**self.place, axis.name: columns})
        extents = {self.chain.m.name: self.height, axis.name: axis.extent}
        if self.first is not None:
            first = Tile(self.names.fresh("first"), (self.chain.m.name,), (self.height,))
            emitter.body.append(Load(first, self.first.name, (self._rows,)))
            start = spread(emitter, first, extents)
        else:
            start = Tile(self.names.fresh("start"), tuple(extents), tuple(extents.values()))
            emitter.body.append(Fill(start, 0.0))
        return [*emitter.body, Store(sums, (self._rows, columns), start.name)]

    def has_columns(self, name: str) -> bool:
        """True if an output depends on the carried product."""
        return self._carried.carried[0].name in self.axes(name)

    def axes(self, name: str) -> tuple[str, ...]:
        return tuple(x.name for s in self.chain.workload.stages if s.name == name for x in s.axes)

    @property
    def _carried(self) -> ChainedProduct:
        (product,) = self.chain.carried.values()
        return product

    @property
    def _folds(self) -> list[Stage]:
        return [f for f in self.chain.folds if f.name not in self.chain.carried]

    @property
    def _walked(self) -> set[str]:
        return {x.name for x in self.chain.walked}

    @property
    def _rows(self) -> Slice:
        return Slice(Affine(), self.height, self.chain.m.name)

    def _emitter(self, known: Mapping[str, Tile], walked: Mapping[str, Slice] | None = None) -> Emitter:
        dtypes = {t.name: t.dtype for t in self.chain.workload.inputs}
        return Emitter({**self.place, **(walked or {})}, dtypes, self.names, dict(known))

    def _loaded(self, known: Mapping[str, Tile], walked: Mapping[str, Slice], cached: Slice) -> Emitter:
        """An emitter that has loaded the points, and the ends of ranges."""
        emitter = self._emitter(known, walked)
        for end, buffer in ({} if self.pieces is None else self.pieces.ends).items():
            tile = Tile(self.names.fresh("end"), (self.chain.m.name,), (self.height,), buffer.dtype)
            emitter.body.append(Load(tile, buffer.name, (self._rows,)))
            emitter.know(end, tile)
        slices = (self._rows, cached)
        points = Tile.along(slices, self.names.fresh("point"), "float32")
        emitter.body.append(Load(points, self.points, slices))
        (inner,) = self.chain.inner
        emitter.tiles[inner.stage] = points
        return emitter

    def _at_once(self) -> list[Statement]:
        c = self.chain.c
        whole = Slice(Affine(), c.extent, c.name)
        emitter = self._loaded({}, {c.name: whole}, whole)
        for fold in self._folds:
            emitter.tiles[fold.name] = self._folded(emitter, fold, fold.name, whole)
        self._weigh(emitter, self._carried.a, whole)
        return self._kept(emitter)

    def _in_pieces(self, pieces: Pieces) -> list[Statement]:
        left, known, body = self._folds, dict[str, Tile](), list[Statement]()
        unmasked = mask_of(self.chain).unmasked
        weight: Expression | None = unmasked(self._carried.a, pieces.known)
        while left or weight is not None:
            later = {f.name for f in left}
            ready = [f for f in left if not reads(f.expression, later)]
            emitter, made = self._loaded(known, pieces.place, pieces.cached), dict[str, Tile]()
            for fold in ready:
                made[fold.name] = total = self._started(fold, known, body)
                inner = replace(fold, expression=unmasked(fold.expression, pieces.known))
                part = self._folded(emitter, inner, f"{fold.name}_part", pieces.cached)
                emitter.assign(total, combine_operator(fold), total, part)
            if weight is not None and not reads(weight, later):
                self._weigh(emitter, weight, pieces.cached)
                weight = None
            body += pieces.each(emitter.body)
            known |= made
            left = [f for f in left if f not in ready]
        return [*body, *self._kept(self._emitter(known))]

    def _folded(self, emitter: Emitter, fold: Stage, name: str, cached: Slice) -> Tile:
        assert fold.reduction is not None
        values = spread(emitter, emitter.tile(fold.expression, f"{fold.name}_body"), self._extents(cached))
        dst = Tile(self.names.fresh(name), (self.chain.m.name,), (self.height,), folded_in(fold))
        c, length = self.chain.c, cached.extent or 1
        end = Bound(cached.start, c.extent) if c.extent % length else None
        emitter.body.append(Reduce(dst, values.name, c.name, fold.reduction.operator, bound=end))
        return dst

    def _weigh(self, emitter: Emitter, weight: Expression, cached: Slice) -> None:
        weights = spread(emitter, emitter.tile(weight, "weight"), self._extents(cached))
        emitter.body.append(Store(self.points, (self._rows, cached), weights.name))

    def _extents(self, cached: Slice) -> dict[str, int]:
        return {self.chain.m.name: self.height, self.chain.c.name: cached.extent or 1}

    def _kept(self, emitter: Emitter) -> list[Statement]:
        """Keep the folded values of rows, and store the results that depend on nothing else."""
        for name, buffer in self.kept.items():
            emitter.body.append(Store(buffer.name, (self._rows,), emitter.tiles[name].name))
        first = self._ruled_out(self._carried.a)
        if self.first is not None and first is not None:
            emitter.body.append(Store(self.first.name, (self._rows,), emitter.tile(first, "first").name))
        for name, result in self.chain.results:
            if not self.has_columns(name):
                emitter.store(name, self.axes(name), emitter.tile(result, "result"))
        return emitter.body

    def _started(self, fold: Stage, known: Mapping[str, Tile], body: list[Statement]) -> Tile:
        """A fold before its first point."""
        tile = Tile(self.names.fresh(fold.name), (self.chain.m.name,), (self.height,), folded_in(fold))
        emitter, first = self._emitter(known), self._ruled_out(fold.expression)
        if first is None:
            emitter.body.append(Fill(tile, identity(fold)))
        else:
            emitter.assign(tile, "cast", emitter.tile(first, "ruled_out"))
        body += emitter.body
        return tile

    def _ruled_out(self, e: Expression) -> Expression | None:
        """Value of an expression at every point of a skipped row; None if it is a constant.

        It changes no fold, unless the row is fully masked: exp(-inf - top) is 0, but NaN if top is -inf.
        """
        first = e if self.pieces is None else self.pieces.ruled_out(e)
        (inner,) = self.chain.inner
        constant = isinstance(first, Literal | Integer)
        return (
            None if first == e or constant or reads(first, {inner.stage}) or self._walked & variables(first) else first
        )
