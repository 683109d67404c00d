"""The body of a contraction: the pipelined main loop of one output tile, and its epilogue.

acc, acc2 = 0, 0
for k0 …:                                 over the reduced axes that are not tiled
  for k.0 (pipelined):
    a = prologue(x_tile, …)               loop invariants are computed before the loop
    acc += dot(a, b_tile); acc2 += dot(a, c_tile)      or scale * dot(…), which is the same along k.0's tile
store out_tile = epilogue(acc, acc2), whole or cut into subtiles
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Literal

from search_spaces.anchors.contractions.class_tiles import ClassTiles, class_tiles
from search_spaces.anchors.contractions.interleaved_tiles import interleaved
from search_spaces.anchors.contractions.joined_tiles import joined, places_of, views_at
from search_spaces.anchors.contractions.operand_tiles import LOADS, Iteration, Operands, iteration_of
from search_spaces.anchors.contractions.output_tiles import OutputTile
from search_spaces.anchors.loops.contributions import Guards, ranges
from search_spaces.anchors.loops.fused_loops import counted, of_outermost
from search_spaces.anchors.loops.loop_parts import LoopPart, Mask, parts_of
from search_spaces.anchors.loops.range_ends import bound
from search_spaces.decisions.programs.persistence import ONE_TILE, PERSISTENT
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.halos import HALO, halo_of
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.statements import Dot, Fill, For, Load, Map, Statement, produced, statements
from search_spaces.programs.tiles import Bound, Digits, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.axes import Structure
from search_spaces.structure.contraction import Contraction, accumulator_dtype
from search_spaces.workloads.dtypes import accumulator_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload


@dataclass(frozen=True)
class Steps:
    """The statements of every iteration, and those before the loop."""

    before: tuple[Statement, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class DotTile:
    """One output tile of a contraction and its reduction, by the knobs of a schedule."""

    workload: Workload
    form: Contraction
    values: Values

    @property
    def splits(self) -> int:
        """Number of parts of the reduction, each in a program of its own."""
        return self.values.integer("split")

    @property
    def streamed(self) -> bool:
        return self.values["grid"] == "stream_k"

    @property
    def shared(self) -> bool:
        """True if several programs share the reduction of a tile."""
        return self.splits > 1 or self.streamed

    @cached_property
    def reduced(self) -> ClassTiles:
        """The tiles of the reduced axes."""
        return class_tiles(self.form, self.values, "k")

    @property
    def has_tail(self) -> bool:
        """True if the last of several iterations along k reaches beyond its end."""
        return self.reduced.count > 1 and self.reaches

    @property
    def reaches(self) -> bool:
        """True if the last iteration along k reaches beyond its end."""
        return self.reduced.reaches

    @property
    def loops(self) -> int:
        """Number of nested loops of the reduction: if a tile has all of k, the loop around it is the innermost."""
        return len(self._loops)

    @property
    def _loops(self) -> list[tuple[str, int]]:
        reduced = self.reduced
        around = [] if reduced.in_one_loop else [(f"{x.name}.0", x.extent) for x in reduced.others]
        whole = around and reduced.count == self.splits == 1
        return [*around, *([] if whole else [("k.0", -(-reduced.count // self.splits))])]

    @property
    def uneven(self) -> bool:
        """True if some parts of the reduction have fewer iterations than others."""
        return self.reduced.count % self.splits != 0

    @cached_property
    def output(self) -> OutputTile:
        return OutputTile(self.form, self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the accumulators."""
        return self.output.shape

    @property
    def extents(self) -> dict[str, int]:
        """Length of the tiles along each of their axes."""
        output = dict(zip(self.output.all_axes, self.output.whole_shape, strict=True))
        return {self.form.k.name: self.values.tile("k"), **output}

    @cached_property
    def accumulators(self) -> tuple[Tile, ...]:
        """The sums of every dot."""
        names, element = Names(), accumulator_dtype(self.form)
        axes, shape = self.output.all_axes, self.output.whole_shape
        return tuple(Tile(names.fresh("acc"), axes, shape, element) for _ in self.form.dots)

    @cached_property
    def _outside(self) -> tuple[Tile, ...]:
        """NaN if an operand of a dot was at no place, otherwise 0."""
        return tuple(Tile(f"{acc.name}_outside", (), ()) for acc in self.accumulators)

    def names(self) -> Names:
        """The names in use before anything is computed."""
        return Names({t.name for t in (*self.accumulators, *self._outside)})

    @property
    def grid(self) -> Grid:
        """The output tiles, and the parts of the reduction."""
        return self.output.grid([GridAxis("k.split", self.splits)] if self.splits > 1 else [])

    @property
    def pieces(self) -> int:
        """Number of pieces of work that programs can share: tiles, or for stream-K the iterations of all of them."""
        return self.grid.tiles * (self.reduced.count if self.streamed else 1)

    def accumulate(self, operands: Operands, names: Names) -> list[Statement]:
        """Add up the products of the tile's rows and columns."""
        if any(self.values[x] == HALO for x in LOADS):
            return self._of_halos(operands, names)
        peeled, reduced, loops = self.values["tail"] == "peeled", self.reduced, self._loops
        (variable, extent), size = loops[-1], 1 if reduced.in_one_loop else reduced.size
        parts = (("k.split", extent * size),) if self.splits > 1 else ()
        number = start_of(("k.0", size), *parts) if variable == "k.0" else start_of()
        digits = Digits(number, reduced.digits) if reduced.in_one_loop else None
        start = start_of((reduced.digits[-1][0], reduced.sides[reduced.tiled.name])) if digits else number
        whole, ends = self._bound_ranges(names)
        mask, place = mask_of(self.form), {**self.place(start), **ends}
        if digits:
            mask = of_outermost(mask, digits, place, self.form.reduced)
        along = digits.radix[0][0] if digits else variable
        loop = For(
            variable,
            extent - peeled,
            (),
            bound=Bound(number, reduced.count if digits else reduced.positions) if self.uneven else None,
            useful=counted(mask.useful(place, along), digits),
            digits=digits,
        )
        for part in parts_of(reduced.tiled, mask, place, along, even=True) if self.parted else (LoopPart(),):
            # Between the ends of a range nothing is beyond that of the axis.
            within = any(form.step(reduced.tiled.name) < 0 for form in ranges(part.known))
            taken = operands.changed(partial(mask.unmasked, known=part.known))
            iteration = self._iteration(taken, names, start, beyond=not peeled and not within)
            until, since = counted(part.until, digits), tuple(counted(group, digits) for group in part.since)
            body: tuple[Statement, ...] = (replace(loop, body=iteration.body, until=until, since=since),)
            for around, positions in reversed(loops[:-1]):
                body = (For(around, positions, body),)
            whole += [*iteration.before, *body]
        if peeled:
            iteration = self._iteration(operands, names, Affine(offset=(reduced.count - 1) * reduced.size), beyond=True)
            whole += [*iteration.before, *iteration.body]
        made = {t for s in statements(tuple(whole)) for t in produced(s)}
        outside = [(acc, x) for acc, x in zip(self.accumulators, self._outside, strict=True) if x in made]
        sums = [Fill(tile, 0.0) for tile in (*self.accumulators, *(x for _, x in outside))]
        return [*sums, *whole, *(Map(acc, "add", (acc.name, x.name)) for acc, x in outside)]

    @property
    def parted(self) -> bool:
        """True if iterations at the ends of a range have loops of their own, and those between have one without a mask.

        That is where one loop is all of a program's. Operands without a mask may lack the axis of several products.
        """
        alone = len(self._loops) == 1 and self.values["grid"] in (ONE_TILE, PERSISTENT)
        return alone and not self.output.batch

    def _bound_ranges(self, names: Names) -> tuple[list[Statement], dict[str, Slice]]:
        """Statements that bind the ends of ranges, and their place."""
        mask = mask_of(self.form)
        emitter = Emitter(self.output.place, {t.name: t.dtype for t in self.workload.inputs}, names)
        ends = bound(mask.forms, mask.guards.ends, emitter)
        return emitter.body, ends

    def _of_halos(self, operands: Operands, names: Names) -> list[Statement]:
        """The same with the taps of all windows inside of the loop over blocks of channels."""
        *taps, (variable, blocks) = self.reduced.digits
        count, side = blocks // self.splits, self.reduced.sides[self.form.k.name]
        parts = (("k.split", count * side),) if self.splits > 1 else ()
        place = self.place(start_of((variable, side), *parts))
        iteration = self._at(operands, place, names, self._end(beyond=True))
        sides = zip(LOADS, iteration.tiles, strict=True)
        windows = {t.name for x, tiles in sides if self.values[x] == HALO for t in tiles.values()}
        halos, body, within = list[Statement](), list[Statement](), {f"{x.name}.0": x.extent for x in self.form.around}
        for s in iteration.body:
            if isinstance(s, Load) and s.dst.name in windows:
                halo, s = halo_of(s, within, names)
                halos.append(halo)
            body.append(s)
        views = views_at(replace(iteration, body=tuple(body)), self.reduced.joined, names)
        steps = self._steps([joined(views, self.reduced, names)], names)
        digits = Digits(start_of(("k.0", 1)), tuple(taps))
        loop = For("k.0", math.prod(size for _, size in taps), steps.body, digits=digits)
        sums = (Fill(acc, 0.0) for acc in self.accumulators)
        return [*sums, *steps.before, For(variable, count, (*halos, loop))]

    def place(self, start: Affine) -> dict[str, Slice]:
        """Slices of an iteration, with its tile of the reduced axes at this start."""
        reduced = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.reduced.others}
        return {**self.output.place, **reduced, **self.reduced.place(start)}

    def _iteration(self, operands: Operands, names: Names, start: Affine, beyond: bool) -> Steps:
        """The loads of an iteration at this start, and its dots; `beyond`: true if it may reach beyond the end of k."""
        place, end = self.place(start), self._end(beyond)
        places = places_of(self.reduced, place)
        if not self.reduced.unrolled and not self.reduced.interleaved:
            parts = [self._at(operands, x, names, end) for x in places]
            return self._steps([joined(parts, self.reduced, names)], names)
        shared = Neighbours({t.name: t.effective_strides for t in self.workload.inputs})
        if self.reduced.interleaved:
            at = partial(self._at, names=names, end=end, shared=shared)
            return self._steps([interleaved(self.form, self.reduced, operands, place, at, names)], names)
        return self._steps([self._at(operands, x, names, end, shared) for x in places], names)

    def _end(self, beyond: bool) -> Axis | None:
        return self.reduced.outermost if beyond and self.reaches else None

    def _at(
        self,
        operands: Operands,
        place: Mapping[str, Slice],
        names: Names,
        end: Axis | None,
        shared: Neighbours | None = None,
    ) -> Iteration:
        ways, free = (self.values.word("a_load"), self.values.word("b_load")), self.output.all_axes
        return iteration_of(self.form, operands, place, ways, free, names, end, shared)

    def _steps(self, parts: Sequence[Iteration], names: Names) -> Steps:
        """The loads of all parts of an iteration, then their dots."""
        loads = [s for part in parts for s in part.body]
        return Steps(tuple(s for part in parts for s in part.before), (*loads, *self._dots(parts, names)))

    def _dots(self, parts: Sequence[Iteration], names: Names) -> Iterator[Statement]:
        """The dots of an iteration, each added to its sums; those that are scaled are a sum of their own before.

        part = 0; part += dot(a, b); acc = acc + part * scale
        """
        k, precision = self.form.k.name, precision_of(self.workload)
        for acc, outside, d in zip(self.accumulators, self._outside, self.form.dots, strict=True):
            missing = (x.outside[e] for x in parts for e in (d.a, d.b) if e in x.outside)
            yield from (Map(outside, "add", (outside.name, tile.name)) for tile in missing)
            operands = [(x.tiles[0][d.a].name, x.tiles[1][d.b].name) for x in parts]
            if d.scale is None:
                yield from (Dot(acc, a, b, k, precision) for a, b in operands)
                continue
            part = replace(acc, name=names.fresh("partial"), dtype=accumulator_of(self.form.dtype))
            scaled = replace(acc, name=names.fresh("scaled"))
            yield Fill(part, 0)
            yield from (Dot(part, a, b, k, precision) for a, b in operands)
            yield Map(scaled, "mul", (part.name, parts[0].scales[d.scale].name))
            yield Map(acc, "add", (acc.name, scaled.name))

    def finish(self, names: Names) -> list[Statement]:
        """Apply the epilogue to the accumulators and store the outputs."""
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        body: list[Statement] = []
        for parts, place in self.output.subtiles(self.accumulators, names, body):
            tiles = {d.stage: part for d, part in zip(self.form.dots, parts, strict=True)}
            emitter = Emitter(place, dtypes, names, tiles)
            for name, value in self.form.results:
                result = emitter.tile(value, "out")
                emitter.body.append(self.output.store(name, result, place))
            body += [self.output.addressed(s) for s in emitter.body]
        return body

    def store_partial(self, buffers: Mapping[str, str], index: Slice, atomic: bool, names: Names) -> list[Statement]:
        """Store every accumulator to its `buffer[index, axes …]`, or add it there."""
        body: list[Statement] = []
        for parts, place in self.output.subtiles(self.accumulators, names, body):
            for acc, part in zip(self.accumulators, parts, strict=True):
                body.append(self.output.store(buffers[acc.name], part, place, [index], atomic))
        return body


@lru_cache(256)
def mask_of(form: Contraction) -> Mask:
    """The ranges outside of which all products are 0 by a factor, whatever the other one is."""
    guards = Guards(Structure(form.workload, form.axes, form.reduced))
    sides = ((ranges(guards.equal(d.a, 0.0)), ranges(guards.equal(d.b, 0.0))) for d in form.dots)
    return Mask(guards, frozenset.intersection(*(a | b for a, b in sides)))


def precision_of(workload: Workload) -> Literal["ieee", "tf32", "fast"]:
    """The precision of the workload's dots."""
    match workload.precision:
        case "tf32" | "fast" as precision:
            return precision
        case _:
            return "ieee"
