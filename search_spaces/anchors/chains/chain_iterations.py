"""One iteration of the main loop: points of the inner products, and their contributions to every fold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.chains.chain_program import ChainProgram, inside
from search_spaces.anchors.contractions.dot_tiles import precision_of
from search_spaces.anchors.loops.loop_parts import LoopPart
from search_spaces.anchors.rows.moving import Added
from search_spaces.anchors.rows.row_parts import folded_in, spread
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Map,
    Position,
    Reduce,
    Statement,
    fold_identity,
)
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.chains.chain import Chain, ChainedProduct
from search_spaces.structure.folds.dependent import Fold
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, rewritten
from search_spaces.workloads.workload import Axis, Stage

# Outputs by name, as expressions of folds.
Results = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Iteration:
    """One iteration."""

    program: ChainProgram
    emitter: Emitter
    part: LoopPart

    @property
    def chain(self) -> Chain:
        return self.program.chain

    def statements(self) -> list[Statement]:
        self._multiply(self.chain.inner)
        body = self.program.folds.add(self.emitter, self.program.running, self._value)
        return _dots_last(body, self.chain.carried) if len(self.chain.carried) > 1 else body

    def fold_at_once(self) -> Results:
        """Fold the points of all columns, which are those of this iteration; returns the completed results."""
        onto, results = self._joined()
        self._multiply((*self.chain.inner, *self.chain.beside))
        for stage in self.chain.folds:
            product = self.chain.carried.get(stage.name)
            made = self._carried(product, onto.get(stage.name)) if product else self._folded(stage, stage.name)
            self.emitter.tiles[stage.name] = made
        return results

    def _carried(self, product: ChainedProduct, onto: str | None) -> Tile:
        """The sums of a carried product over all columns, from 0 on, or onto those of another product."""
        if onto is None:
            sums = self.program.tile.statistic(product.stage)
            self.emitter.body.append(Fill(sums, 0.0))
        else:
            sums = self.emitter.tiles[onto]
        self.emitter.body.append(self._dot(self.emitter, product, sums, self.chain.c))
        return sums

    def _joined(self) -> tuple[dict[str, str], Results]:
        """Carried products that are accumulated onto products in `Chain.beside`; and the results.

        Before:  out = round(base) + round(more)
        After:   more is added to base;  out = base
        """
        beside, onto = {p.stage for p in self.chain.beside}, dict[str, str]()

        def joined(e: Expression) -> Expression | None:
            match e:
                case Apply("add", (a, b)):
                    read = [x for x in map(_unrounded, (a, b)) if isinstance(x, Access)]
                    of_base = [x for x in read if x.tensor in beside]
                    others = [x for x in read if x.tensor in self.chain.carried]
                    if of_base and others:
                        onto[others[0].tensor] = of_base[0].tensor
                        return of_base[0]
            return None

        results = tuple((name, rewritten(e, joined)) for name, e in self.chain.results)
        left = {a.tensor for _, e in results for a in accesses(e)}
        once = len({*onto.values()}) == len(onto) and left.isdisjoint(onto)
        shown = sum(a.tensor in onto.values() for _, e in self.chain.results for a in accesses(e))
        return (onto, results) if once and shown == len(onto) else ({}, self.chain.results)

    def _multiply(self, products: Sequence[ChainedProduct]) -> None:
        """Compute products of no folds: those over the axis with a loop of its own, in one loop."""
        emitter, tile = self.emitter, self.program.tile
        looped = [p for p in products if {*p.summed} & {*tile.looped}]
        for product in products:
            emitter.tiles[product.stage] = sums = self.program.points[product.stage]
            emitter.body.append(Fill(sums, 0.0))
            if product not in looped:
                emitter.body.append(self._dot(emitter, product, sums, product.summed[0]))
        if looped:
            steps, length = tile.values.tiling("d")
            (depth,) = tile.looped
            part = Slice(start_of(("d.0", length)), length, depth.name)
            inner = replace(emitter.within(), place={**tile.place, depth.name: part})
            for product in looped:
                inner.body.append(self._dot(inner, product, self.program.points[product.stage], depth))
            tensors = {*self.chain.row_tensors, *self.chain.walked_tensors}
            moved = tuple(self.program.moved(s, "walked_load", tensors) for s in inner.body)
            emitter.body.append(For("d.0", steps, moved, pipeline_stages=tile.values.integer("stages")))

    def _dot(self, emitter: Emitter, product: ChainedProduct, sums: Tile, over: Axis) -> Dot:
        operands = [self._operand(emitter, x, product.dtype) for x in (product.a, product.b)]
        return Dot(sums, operands[0].name, operands[1].name, over.name, precision_of(self.chain.workload))

    def _operand(self, emitter: Emitter, e: Expression, dtype: str) -> Tile:
        tile = emitter.tile(self.program.operand(e, dtype, self.part.reaches), "operand")
        if tile.dtype == dtype:
            return tile
        wide = Tile(self.program.names.fresh(tile.name), tile.axes, tile.shape, dtype)
        emitter.body.append(Map(wide, "cast", (tile.name,)))
        return wide

    def _value(self, fold: Fold) -> Added:
        """The contribution of the iteration's points to a fold."""
        assert fold.stage.reduction is not None
        product = self.chain.carried.get(fold.name)
        if fold.counts:
            return self._number()
        e = self.program.mask.unmasked(fold.stage.expression, self.part.known)
        if product is not None:
            assert isinstance(e, Apply)
            rows, columns = e.arguments
            sums = self.program.running[fold.name]
            return self._dot(self.emitter, replace(product, a=rows, b=columns), sums, self.chain.c)
        return self._folded(replace(fold.stage, expression=e), f"{fold.name}_part")

    def _folded(self, stage: Stage, name: str) -> Tile:
        """The fold of the iteration's points."""
        assert stage.reduction is not None
        e, operator = stage.expression, stage.reduction.operator
        if self.part.reaches:
            e = inside(e, self.chain.c, fold_identity(operator, is_integral(e)))
        points = spread(self.emitter, self.emitter.tile(e, f"{stage.name}_body"), self._extents)
        rest = tuple(x for x in points.axes if x != self.chain.c.name)
        shape = tuple(points.extent(x) for x in rest)
        dst = Tile(self.program.names.fresh(name), rest, shape, folded_in(stage))
        self.emitter.body.append(Reduce(dst, points.name, self.chain.c.name, operator))
        return dst

    @property
    def _extents(self) -> dict[str, int]:
        return {self.chain.m.name: self.program.tile.values.tile("m"), self.chain.c.name: self.program.tile.width}

    def _number(self) -> Tile | float:
        """Number of columns of an iteration."""
        width = self.program.tile.width
        if not self.part.reaches:
            return float(width)
        first = Tile(self.program.names.fresh("first"), (), ())
        self.emitter.body.append(Position(first, Slice(self.program.tile.columns.start)))
        left = self.emitter.map("sub", float(self.chain.c.extent), first)
        return self.emitter.map("minimum", left, float(width), name="number")


def _dots_last(body: Sequence[Statement], sums: Collection[str]) -> list[Statement]:
    """The statements with the dots that add to these sums after all others, so that they run together.

    Before:  p, acc += dot(p, v), s, other += dot(s, k)
    After:   p, s, acc += dot(p, v), other += dot(s, k)
    """
    last = [s for s in body if isinstance(s, Dot) and s.dst.name in sums]
    return [*(s for s in body if s not in last), *last]


def _unrounded(e: Expression) -> Expression:
    return e.arguments[0] if isinstance(e, Apply) and e.operator in ROUNDINGS else e
