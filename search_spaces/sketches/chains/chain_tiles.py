"""The body of a chain: one tile of rows, and the walk over what they are multiplied with.

q = load of the rows
top, total, acc = lowest, 0, 0
for c.0 (pipelined):                              once for each part of the walk (`walk_parts`)
  s = 0;  s += dot(q, k_tile) over d              in a loop of its own where d is long
  top, total, acc are moved and added to          (`rows.moving`); acc by a dot
store out_tile = acc / total
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    If,
    Load,
    Map,
    Position,
    Reduce,
    Statement,
    Store,
    fold_identity,
)
from search_spaces.programs.tile_program import Launch
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.schedules.knobs import Values, padded
from search_spaces.sketches.chains.walk_parts import Mask, WalkPart, mask_of, parts_of
from search_spaces.sketches.dots.dot_tiles import precision_of
from search_spaces.sketches.rows.moving import Added, MovingFolds, Running
from search_spaces.sketches.rows.row_parts import folded_in, spread
from search_spaces.structure.chains import Chain, ChainedProduct
from search_spaces.structure.dependent_folds import Fold
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    call,
)
from search_spaces.workloads.expressions.expression import Position as PositionOf
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage

_ROUNDED_BY = {dtype: operator for operator, dtype in ROUNDINGS.items()}


@dataclass(frozen=True)
class ChainTile:
    """The rows of one program, and how it walks, as the knobs of a schedule have it.

    `portion`: so many positions a program has of the one axis that is carried, where that is not all of them.
    """

    chain: Chain
    values: Values
    portion: int = 0

    @property
    def splits(self) -> int:
        """How many programs share the walk of some rows."""
        return self.values.integer("split")

    @property
    def width(self) -> int:
        return self.values.tile("c")

    @property
    def steps(self) -> int:
        """How many iterations a program has of the walked axis that tiles lie along."""
        return -(-self.values.tiling("c")[0] // (1 if self.chain.walked[:-1] else self.splits))

    @property
    def even(self) -> bool:
        """Whether what a program walks needs no mask at the end: tiles end there, or rows see nothing beyond it."""
        return self.chain.c.extent % self.width == 0 or mask_of(self.chain).ends

    @property
    def held(self) -> bool:
        """Whether a tile holds all that is walked, and nothing is brought by a warp of its own."""
        whole = self.values.tiling("c")[0] == 1 and len(self.chain.walked) == 1
        return whole and self.values["specialize"] == "none"

    @property
    def share(self) -> int:
        """How many iterations a program has of the outermost loop."""
        return -(-self.chain.walked[0].extent // self.splits) if self.chain.walked[:-1] else self.steps

    @property
    def columns(self) -> Slice:
        if self.held:
            return Slice(Affine(), self.width)
        parts = (("c.split", self.steps * self.width),) if self.splits > 1 and not self.chain.walked[:-1] else ()
        return Slice(start_of(("c.0", self.width), *parts), self.width)

    @cached_property
    def rows(self) -> dict[str, Slice]:
        """Where the rows lie."""
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.chain.outer}
        count, height = self.values.tiling("m")
        if self.values["order"] == "ascending":
            start = start_of(("m.0", height))
        else:
            start = Affine.of(("m.0", -height), offset=(count - 1) * height)
        return {**place, self.chain.m.name: Slice(start, height)}

    @cached_property
    def place(self) -> dict[str, Slice]:
        """Where everything lies in an iteration: rows, columns, and all of what is summed or carried."""
        around = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.chain.walked[:-1]}
        if around and self.splits > 1:
            dealt = self.chain.walked[0].name
            around[dealt] = Slice(start_of((f"{dealt}.0", 1), ("c.split", self.share)))
        depths = {x.name: Slice(self._begin(x), self.depth(x)) for x in self.chain.depths}
        return {**self.rows, **around, self.chain.c.name: self.columns, **depths}

    def depth(self, axis: Axis) -> int:
        """How long tiles are along an axis that is summed or carried."""
        if axis in self.looped:
            return self.values.tile("d")
        return self.portion if axis in self.cut else padded(max(axis.extent, 16))

    def _begin(self, axis: Axis) -> Affine:
        return start_of((f"{axis.name}.0", self.portion)) if axis in self.cut else Affine()

    @property
    def cut(self) -> tuple[Axis, ...]:
        """The carried axis of which a program has a portion."""
        return tuple(x for p in self.chain.carried.values() for x in p.carried)[:1] if self.portion else ()

    @property
    def looped(self) -> tuple[Axis, ...]:
        """The axis of the inner products that has a loop of its own."""
        return tuple(x for p in self.chain.inner for x in p.summed if self.values.tiling("d")[0] > 1)[:1]

    def grid(self, num_sms: int) -> Grid:
        """All tiles of rows, and where there are several the parts of their walk."""
        rows = GridAxis("m.0", self.values.tiling("m")[0])
        outer = [GridAxis(f"{x.name}.0", x.extent) for x in self.chain.outer]
        axes = [*outer, rows, *([GridAxis("c.split", self.splits)] if self.splits > 1 else [])]
        axes += [GridAxis(f"{x.name}.0", -(-x.extent // self.portion)) for x in self.cut]
        persistent = num_sms * self.values.integer("per_sm") if self.values["grid"] == "persistent" else None
        size = self.values.integer("group")
        return Grid(tuple(axes), (outer[-1].variable, size) if size > 1 else None, persistent)

    def launch(self) -> Launch:
        return Launch(
            num_warps=self.values.integer("warps"),
            num_stages=self.values.integer("stages"),
            max_registers=self.values.integer("max_registers"),
            producer_warps=int(self.values["specialize"] != "none"),
            alternating=self.values["specialize"] == "pingpong",
            overlapped=self.values.flag("overlap"),
        )

    def statistic(self, name: str, dtype: str = "float32") -> Tile:
        """The running value of a fold: one number per row, or for each of what it carries."""
        carried = self.chain.carried[name].carried if name in self.chain.carried else ()
        sizes = {self.chain.m.name: self.values.tile("m"), **{x.name: self.depth(x) for x in carried}}
        return Tile(name, tuple(sizes), tuple(sizes.values()), dtype)


@dataclass(frozen=True)
class ChainBody:
    """The statements of one program."""

    tile: ChainTile
    names: Names

    @property
    def chain(self) -> Chain:
        return self.tile.chain

    @cached_property
    def mask(self) -> Mask:
        return mask_of(self.chain)

    @cached_property
    def folds(self) -> MovingFolds:
        return MovingFolds(self.chain.walk, self.names)

    @cached_property
    def running(self) -> Running:
        """The tiles of all folds."""
        self.names.taken.update(f.name for f in self.chain.walk.folds)
        sizes = self.tile.statistic("")
        folds = {
            f.name: Tile(f.name, (), ()) if f.counts else self.tile.statistic(f.name, folded_in(f.stage))
            for f in self.chain.walk.folds
        }
        return folds | {n: replace(sizes, name=self.names.fresh(n)) for n in self.folds.held}

    @cached_property
    def points(self) -> Mapping[str, Tile]:
        """The tiles of the inner products, the same in all loops."""
        axes = {self.chain.m.name: self.tile.values.tile("m"), self.chain.c.name: self.tile.width}
        products = (p.stage for p in self.chain.inner)
        return {name: Tile(self.names.fresh(f"{name}_points"), tuple(axes), tuple(axes.values())) for name in products}

    def emitter(self) -> Emitter:
        """For what is at the rows, and at the columns of an iteration."""
        dtypes = {t.name: t.dtype for t in self.chain.workload.inputs}
        return Emitter(self.tile.place, dtypes, self.names)

    def walked(self) -> list[Statement]:
        """Fold all columns of the program into the running values."""
        before = self.emitter()
        body = [*self.folds.start(self.running)]
        for e in dict.fromkeys(self._invariants()):
            before.emit(e)
        body += [self._moved(s, "rows_load", self.chain.row_tensors) for s in before.body]
        known = {f"{name} before": tile for name, tile in self.running.items()}
        parts = parts_of(self.chain, self.mask, self.tile.place, "c.0", self.tile.even)
        # Dots that overlap need an iteration to begin with; the boundary behind whole tiles always has one.
        for part in parts[::-1] if self.tile.values.flag("overlap") else parts:
            body += self._loop(before, part)
        settling = replace(self.emitter(), tiles=known)
        return [*body, *self.folds.settle(settling, self.running)]

    def held(self) -> list[Statement]:
        """Fold all columns at once, one fold after the other, and store the outputs."""
        emitter = self.emitter()
        turn = _Turn(self, emitter, WalkPart(reaches=not self.tile.even))
        turn.fold_all()
        tensors = self.chain.row_tensors
        loads = dict.fromkeys(tensors, "rows_load") | dict.fromkeys(self.chain.walked_tensors, "walked_load")
        body = [self._moved(s, loads.get(s.buffer, "store"), loads) if isinstance(s, Load) else s for s in emitter.body]
        emitter.body = []
        return [*body, *self._stored(emitter)]

    def finished(self) -> list[Statement]:
        """Complete the folds and store the outputs."""
        emitter = replace(self.emitter(), tiles=dict(self.running))
        self.folds.complete(emitter)
        return self._stored(emitter)

    def _stored(self, emitter: Emitter) -> list[Statement]:
        """Compute the outputs where the emitter is, and store them."""
        stages = {s.name: s for s in self.chain.workload.stages}
        cut = {*self.tile.cut}
        once = [(n, e) for n, e in self.chain.results if not cut <= {*stages[n].axes}]
        for name, result in self.chain.results:
            if (name, result) not in once:
                emitter.store(name, tuple(x.name for x in stages[name].axes), emitter.tile(result, "result"))
        body = [self._moved(s, "store", stages) for s in emitter.body]
        first = emitter.within()
        for name, result in once:
            first.store(name, tuple(x.name for x in stages[name].axes), first.tile(result, "result"))
        return [*body, *(If(f"{x.name}.0", 0, tuple(first.body)) for x in self.tile.cut if once)]

    def _moved(self, s: Statement, knob: str, tensors: Collection[str]) -> Statement:
        """A statement as it is addressed: whole tiles of these tensors by descriptor where the schedule says so."""
        if not isinstance(s, Load | Store) or s.buffer not in tensors or self.tile.values[knob] != "descriptor":
            return s
        return replace(s, via="descriptor") if sum(piece.extent is not None for piece in s.slices) > 1 else s

    # Before the walk

    def _invariants(self) -> Iterator[Expression]:
        """What is the same in every iteration: rows of the inner products, and parts of what is folded."""
        walked = {x.name for x in self.chain.walked}
        changing = {p.stage for p in self.chain.inner} | {f.name for f in self.chain.walk.folds}
        changing |= {r.name for r in self.chain.walk.relatives}
        for product in self.chain.inner:
            if not {*product.summed} & {*self.tile.looped}:
                yield self._operand(product.a, product.dtype)
        for fold in self.chain.walk.folds:
            yield from _parts_without(fold.stage.expression, walked, changing)

    def _operand(self, e: Expression, dtype: str, reaches: bool = False) -> Expression:
        """What a dot multiplies: 0 beyond the ends of what it is summed over, and rounded to what dots multiply.

        What is loaded beyond an end is 0, but what is computed from that need not be, nor be finite.
        """
        if isinstance(e, Access):
            return e
        rounding = _ROUNDED_BY.get(dtype)
        if isinstance(e, Apply) and e.operator == rounding:
            (e,) = e.arguments
        ends = [x for x in self.chain.depths if x.extent % self.tile.depth(x)] + [self.chain.c] * reaches
        beyond = [x for x in ends if x.name in variables(e)]
        if isinstance(e, Gather) and not beyond:
            return e
        for axis in beyond:
            e = _inside(e, axis, 0.0)
        return call(rounding, e) if rounding else e

    # The walk

    def _loop(self, before: Emitter, part: WalkPart) -> list[Statement]:
        """One of the loops over the columns."""
        turn = _Turn(self, before.within(), part)
        body = tuple(self._moved(s, "walked_load", self.chain.walked_tensors) for s in turn.statements())
        tile, stages, around = self.tile, self.tile.values.integer("stages"), self.chain.walked[:-1]
        loop = For(
            "c.0",
            tile.steps,
            body,
            pipeline_stages=0 if any(isinstance(s, For) for s in body) else stages,
            bound=None if around else self._bound(self.chain.c, tile.values.tiling("c")[0]),
            useful=self.mask.useful(tile.place, "c.0"),
            until=part.until,
            since=part.since,
        )
        for number, axis in reversed([*enumerate(around)]):
            # Of nested loops the innermost that turns has iterations in flight.
            inner = stages if loop.extent == 1 and loop.pipeline_stages else 0
            loop = replace(loop, pipeline_stages=0) if inner else loop
            extent, bound = (tile.share, self._bound(axis, axis.extent)) if number == 0 else (axis.extent, None)
            loop = For(f"{axis.name}.0", extent, (loop,), pipeline_stages=inner, bound=bound)
        return [loop]

    def _bound(self, axis: Axis, iterations: int) -> Bound | None:
        """Where the iterations of an axis end that programs share unevenly."""
        if self.tile.splits == 1 or iterations % self.tile.splits == 0:
            return None
        return Bound(self.tile.place[axis.name].start, axis.extent)


@dataclass(frozen=True)
class _Turn:
    """One iteration."""

    body: ChainBody
    emitter: Emitter
    part: WalkPart

    @property
    def chain(self) -> Chain:
        return self.body.chain

    def statements(self) -> list[Statement]:
        for product in self.chain.inner:
            self._multiply(product)
        return self.body.folds.add(self.emitter, self.body.running, self._value)

    def fold_all(self) -> None:
        """Fold the points of all columns, which are those of this iteration."""
        for product in self.chain.inner:
            self._multiply(product)
        for stage in self.chain.folds:
            carried = self.chain.carried.get(stage.name)
            if carried is None:
                self.emitter.tiles[stage.name] = self._folded(stage, stage.name)
                continue
            sums = self.body.tile.statistic(stage.name)
            self.emitter.body += [Fill(sums, 0.0), self._dot(self.emitter, carried, sums, self.chain.c)]
            self.emitter.tiles[stage.name] = sums

    def _multiply(self, product: ChainedProduct) -> None:
        """Points of an inner product."""
        emitter, tile = self.emitter, self.body.tile
        points = self.body.points[product.stage]
        emitter.body.append(Fill(points, 0.0))
        (depth,) = product.summed
        if depth not in tile.looped:
            emitter.body.append(self._dot(emitter, product, points, depth))
        else:
            steps, length = tile.values.tiling("d")
            place = {**tile.place, depth.name: Slice(start_of(("d.0", length)), length)}
            inner = replace(emitter.within(), place=place)
            inner.body.append(self._dot(inner, product, points, depth))
            tensors = {*self.chain.row_tensors, *self.chain.walked_tensors}
            moved = tuple(self.body._moved(s, "walked_load", tensors) for s in inner.body)
            emitter.body.append(For("d.0", steps, moved, pipeline_stages=tile.values.integer("stages")))
        emitter.tiles[product.stage] = points

    def _dot(self, emitter: Emitter, product: ChainedProduct, sums: Tile, over: Axis) -> Dot:
        operands = [self._operand(emitter, x, product.dtype) for x in (product.a, product.b)]
        return Dot(sums, operands[0].name, operands[1].name, over.name, precision_of(self.chain.workload))

    def _operand(self, emitter: Emitter, e: Expression, dtype: str) -> Tile:
        tile = emitter.tile(self.body._operand(e, dtype, self.part.reaches), "operand")
        if tile.dtype == dtype:
            return tile
        wide = Tile(self.body.names.fresh(tile.name), tile.axes, tile.shape, dtype)
        emitter.body.append(Map(wide, "cast", (tile.name,)))
        return wide

    def _value(self, fold: Fold) -> Added:
        """What the points of the iteration add to a fold."""
        assert fold.stage.reduction is not None
        product = self.chain.carried.get(fold.name)
        if fold.counts:
            return self._number()
        e = self.body.mask.unmasked(fold.stage.expression, self.part.known)
        if product is not None:
            assert isinstance(e, Apply)
            rows, columns = e.arguments
            sums = self.body.running[fold.name]
            return self._dot(self.emitter, replace(product, a=rows, b=columns), sums, self.chain.c)
        return self._folded(replace(fold.stage, expression=e), f"{fold.name}_part")

    def _folded(self, stage: Stage, name: str) -> Tile:
        """The fold of the iteration's points."""
        assert stage.reduction is not None
        e, operator = stage.expression, stage.reduction.operator
        if self.part.reaches:
            e = _inside(e, self.chain.c, fold_identity(operator, is_integral(e)))
        points = spread(self.emitter, self.emitter.tile(e, f"{stage.name}_body"), self._extents)
        rest = tuple(x for x in points.axes if x != self.chain.c.name)
        shape = tuple(points.extent(x) for x in rest)
        dst = Tile(self.body.names.fresh(name), rest, shape, folded_in(stage))
        self.emitter.body.append(Reduce(dst, points.name, self.chain.c.name, operator))
        return dst

    @property
    def _extents(self) -> dict[str, int]:
        return {self.chain.m.name: self.body.tile.values.tile("m"), self.chain.c.name: self.body.tile.width}

    def _number(self) -> Tile | float:
        """How many columns an iteration has."""
        width = self.body.tile.width
        if not self.part.reaches:
            return float(width)
        first = Tile(self.body.names.fresh("first"), (), ())
        self.emitter.body.append(Position(first, Slice(self.body.tile.columns.start)))
        left = self.emitter.map("sub", float(self.chain.c.extent), first)
        return self.emitter.map("minimum", left, float(width), name="number")


def _inside(e: Expression, axis: Axis, outside: float | int) -> Expression:
    """The expression where the axis has a position, and what is given beyond its end."""
    here = call("lt", PositionOf(axis_index(axis.name)), Literal(float(axis.extent)))
    return call("where", here, e, Integer(outside) if isinstance(outside, int) else Literal(outside))


def _parts_without(e: Expression, axes: Collection[str], changing: Collection[str]) -> Iterator[Expression]:
    """The largest parts of an expression that are the same along the axes and read nothing that changes."""
    if isinstance(e, Literal | Integer):
        return
    if not variables(e) & {*axes} and not any(a.tensor.removesuffix(" before") in changing for a in accesses(e)):
        yield e
        return
    within: tuple[Expression, ...] = ()
    match e:
        case Apply(_, arguments):
            within = arguments
        case Gather():
            within = e.looked_up
    for part in within:
        yield from _parts_without(part, axes, changing)
