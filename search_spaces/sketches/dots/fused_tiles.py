"""The body of a fused contraction: one reduction loop with several dots and their prologues, and what is then stored.

acc, acc2 = 0, 0
for k.0 (pipelined):
  a = prologue(x_tile, …)                 what does not depend on k is computed before the loop
  acc += dot(a, b_tile); acc2 += dot(a, c_tile)
store out_tile = epilogue(acc, acc2), whole or cut into subtiles
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from search_spaces.programs.lowering import Emitter, Names, start_of
from search_spaces.programs.tile_program import Dot, Fill, For, Launch, Load, Slice, Statement, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.sketches.dots.dot_tiles import precision_of
from search_spaces.sketches.dots.output_tiles import OutputTile, loaded
from search_spaces.structure.fused_contraction import FusedContractionForm, is_computed
from search_spaces.workloads import expression as ex
from search_spaces.workloads.expression import ROUNDINGS, Access, Apply, Expression, Gather, Literal
from search_spaces.workloads.workload import Workload


@dataclass(frozen=True)
class _Brought:
    """The tiles of some operands, the statements that make them in every iteration, and those before the loop."""

    tiles: dict[Expression, Tile]
    before: list[Statement]
    turn: list[Statement]


@dataclass(frozen=True)
class FusedTile:
    """One output tile of a fused contraction, and how its reduction is done, as the knobs of a schedule have it."""

    workload: Workload
    form: FusedContractionForm
    values: Values

    @cached_property
    def output(self) -> OutputTile:
        return OutputTile(self.form.batch, self.form.m, self.form.n, self.values)

    @property
    def extents(self) -> dict[str, int]:
        """How long the tiles are along every axis that they have."""
        tile = dict(zip(self.output.axes, self.output.shape, strict=True))
        return {self.form.k.name: self.values.tile("k"), **tile}

    def launch(self) -> Launch:
        return Launch(
            num_warps=self.values.integer("warps"),
            num_stages=self.values.integer("stages"),
            max_registers=self.values.integer("max_registers"),
        )

    def body(self) -> tuple[Statement, ...]:
        """Sum up the products of all dots, apply the epilogue, and store the output."""
        values, form, names = self.values, self.form, Names()
        accumulators = [Tile(names.fresh("acc"), self.output.axes, self.output.shape) for _ in form.dots]
        rows, columns = form.operands
        a = self._brought(rows, values.word("a_load"), names)
        b = self._brought(columns, values.word("b_load"), names)
        precision = precision_of(self.workload)
        dots = [
            Dot(acc, a.tiles[d.a].name, b.tiles[d.b].name, form.k.name, precision)
            for acc, d in zip(accumulators, form.dots, strict=True)
        ]
        loop = For(
            "k.0",
            values.tiling("k")[0],
            (*a.turn, *b.turn, *dots),
            pipeline_stages=values.integer("stages"),
            flatten=values["grid"] == "persistent_flat",
        )
        filled = [Fill(acc, 0.0) for acc in accumulators]
        return (*filled, *a.before, *b.before, loop, *self._finish(accumulators, names))

    def _brought(self, operands: tuple[Expression, ...], how: str, names: Names) -> _Brought:
        """Load and compute the operands of one side, each once an iteration."""
        k, tile = self.form.k, self.values.tile("k")
        place = {**self.output.place, k.name: Slice(start_of(("k.0", tile)), tile)}
        # Tiles are computed the way round in which the first of them lies in memory.
        order = next((x for e in operands for x in whole_tiles(e, k.name)), None)
        first = [i.terms[0][0] for i in order.index] if order else []
        place = {x: place[x] for x in (*(x for x in place if x not in first), *first)}
        emitter = Emitter(place, {t.name: t.dtype for t in self.workload.inputs}, names)
        written = {e: self._written(e) for e in operands}
        for e in written.values():
            for part in _parts_without(e, k.name):
                emitter.emit(part)
        before, emitter.body = emitter.body, []
        tiles = {e: emitter.tile(w, "operand") for e, w in written.items()}
        free = self.output.axes
        turn = [
            loaded(s, how if len(s.dst.axes) > 1 else "pointer", free) if isinstance(s, Load) else s
            for s in emitter.body
        ]
        return _Brought(tiles, before, turn)

    def _written(self, operand: Expression) -> Expression:
        """The operand as every iteration computes it: 0 beyond the end of k, and rounded to what dots multiply.

        What is loaded beyond the end is 0, but what is computed from that need not be, nor be finite.
        """
        form = self.form
        if not is_computed(operand):
            return operand
        rounding = next((r for r, to in ROUNDINGS.items() if to == form.dtype), None)
        if isinstance(operand, Apply) and operand.operator == rounding:
            (operand,) = operand.arguments
        if form.k.extent % self.values.tile("k"):
            inside = ex.call("lt", ex.Position(ex.axis_index(form.k.name)), Literal(float(form.k.extent)))
            operand = ex.call("where", inside, operand, Literal(0.0))
        return ex.call(rounding, operand) if rounding else operand

    def _finish(self, accumulators: list[Tile], names: Names) -> list[Statement]:
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        body: list[Statement] = []
        for parts, place in self.output.subtiles(accumulators, names, body):
            tiles = {d.stage: part for d, part in zip(self.form.dots, parts, strict=True)}
            emitter = Emitter(place, dtypes, names, tiles)
            result = emitter.tile(self.form.result, "out")
            body += [self.output.addressed(s) for s in emitter.body]
            body.append(self.output.store(self.workload.output.name, result, place))
        return body


def whole_tiles(operand: Expression, k: str) -> Iterator[Access]:
    """The tensors that an operand reads along k and another axis of the dot: what descriptors can move."""
    for access in ex.accesses(operand):
        names = {i.terms[0][0] for i in access.index}
        if k in names and names & {"m", "n"}:
            yield access


def _parts_without(expression: Expression, axis: str) -> Iterator[Expression]:
    """The largest parts of the expression whose values are the same all along the axis, constants left out."""
    if isinstance(expression, Literal):
        return
    if axis not in ex.variables(expression):
        yield expression
        return
    match expression:
        case Apply(_, arguments):
            for argument in arguments:
                yield from _parts_without(argument, axis)
        case Gather():
            for index in expression.looked_up:
                yield from _parts_without(index, axis)
