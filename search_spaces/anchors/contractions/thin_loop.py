"""The loop over k of a contraction with a thin side: sums of products in float32, without a dot.

    for k.0:                                                    int4 weights of groups of 128, two in a byte
      q = load bytes[k.0*64 : +64, n tile]; x_0, x_1 = deinterleave(load x[i, k.0*128 : +128])
      for each of the two values in a byte:                     positions of `together`, unrolled
        w = ((q >> 4*value) & 15) * scale[k.0, n tile]          computed once for all thin rows
        for each row i, unrolled:  acc_i += x_value * w

With several reduced axes the tiles of an iteration lie within one position of all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from search_spaces.anchors.contractions.thin_form import ThinForm, iterations_of
from search_spaces.decisions.loops.folding import ROW
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.statements import Fill, For, Map, Reduce, Statement
from search_spaces.programs.tiles import Bound, Digits, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Workload


def place_of(form: ThinForm, values: Values, row: int) -> dict[str, Slice]:
    """Slices of one of the rows of a program's output."""
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.whole.outer}
    for axis in (form.whole.m, form.whole.n):
        if axis is form.thin:
            place[axis.name] = Slice(start_of((f"{axis.name}.0", values.tile("thin"))) + Affine(offset=row))
        else:
            tile = values.tile("wide")
            place[axis.name] = Slice(start_of((f"{axis.name}.0", tile)), tile, axis.name)
    return place


def accumulated(workload: Workload, form: ThinForm, values: Values, names: Names) -> tuple[list[Tile], list[Statement]]:
    """The sums over a program's part of k, a tile along `wide` for each row, and the statements that compute them."""
    iteration = _Iteration(workload, form, values, names)
    rows = range(values.tile("thin"))
    sums = [Tile(names.fresh(f"sum_{i}"), (form.wide.name,), (values.tile("wide"),)) for i in rows]
    by_row = values["accumulate"] == ROW
    held = sums if by_row else [iteration.tile(f"acc_{i}") for i in rows]
    loop, pieces = _loop(form, values)
    iteration.add(held, pieces)
    body: list[Statement] = [*(Fill(t, 0.0) for t in held), replace(loop, body=tuple(iteration.body))]
    if not by_row:
        body += [Reduce(total, acc.name, form.k.name, "sum") for total, acc in zip(sums, held, strict=True)]
    return sums, body


def _loop(form: ThinForm, values: Values) -> tuple[For, list[dict[str, Slice]]]:
    """The loop without its body, and slices of reduced axes for each of the tiles of an iteration."""
    tile, unroll, k = values.tile("k"), values.integer("unroll"), form.k.name
    split, iterations = values.integer("split"), iterations_of(form, values)
    step = 1 if form.around else unroll * tile
    number = start_of(("k.0", step), *([("k.split", iterations * step)] if split > 1 else []))
    if not form.around:
        uneven = split * iterations * step >= form.k.extent + step
        pieces = [{k: Slice(number + Affine(offset=u * tile), tile, k)} for u in range(unroll)]
        return For("k.0", iterations, (), bound=Bound(number, form.k.extent) if uneven else None), pieces
    first, *others = form.around
    counts = {f"{first.name}.0": first.extent // unroll, **{f"{x.name}.0": x.extent for x in others}}
    radix = (*counts.items(), ("k.1", values.tiling("k")[0]))
    total = math.prod(count for _, count in radix)
    inner = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in others}
    inner[k] = Slice(start_of(("k.1", tile)), tile, k)
    starts = [start_of((f"{first.name}.0", unroll)) + Affine(offset=u) for u in range(unroll)]
    bound = Bound(number, total) if split * iterations > total else None
    loop = For("k.0", iterations, (), bound=bound, digits=Digits(number, radix))
    return loop, [{first.name: Slice(start), **inner} for start in starts]


@dataclass(frozen=True)
class _Iteration:
    """The statements of one iteration of the loop over k."""

    workload: Workload
    form: ThinForm
    values: Values
    names: Names
    body: list[Statement] = field(default_factory=list)

    def tile(self, name: str) -> Tile:
        """A new tile with the axes of the large operand's."""
        extents = {self.form.wide.name: self.values.tile("wide"), self.form.k.name: self.values.tile("k")}
        return Tile(self.names.fresh(name), self._axes, tuple(extents[x] for x in self._axes))

    @property
    def _axes(self) -> tuple[str, ...]:
        """The axes of tiles, in the order in which the large operand is stored."""
        return tuple(
            filter(None, self.form.whole.map_of(self.form.large).axes((self.form.wide.name, self.form.k.name)))
        )

    def add(self, held: list[Tile], pieces: list[dict[str, Slice]]) -> None:
        """Load all tiles of the large operand, so that they are in flight together; then multiply each by every row."""
        form, together = self.form, self.form.together
        digits = [{together.name: Slice(Affine(offset=n))} if together else {} for n in range(form.digits)]
        rows = [place_of(form, self.values, row) for row in range(len(held))]
        read = form.whole.map_of(form.rows)
        neighbours = Neighbours({form.rows.tensor: read.tensor.effective_strides} if together else {})
        places = [
            [self._emitter({**row, **piece, **digit}, neighbours) for row in rows]
            for piece in pieces
            for digit in digits
        ]
        for first, *_ in places:
            first.emit(form.large)
        for emitters in places:
            large = emitters[0].tile(form.computed, "large")
            for total, emitter in zip(held, emitters, strict=True):
                self._add(total, large, emitter)

    def _emitter(self, place: Mapping[str, Slice], neighbours: Neighbours) -> Emitter:
        ordered = {x: place[x] for x in (*(x for x in place if x not in self._axes), *self._axes)}
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        called = {self.form.large.tensor: "large", self.form.rows.tensor: ROW}
        return Emitter(ordered, dtypes, self.names, body=self.body, neighbours=neighbours, short=True, called=called)

    def _add(self, total: Tile, large: Tile, emitter: Emitter) -> None:
        """`total += scale * large * row`, summed over k if the total has no such axis."""
        added = emitter.map("mul", large, emitter.emit(self.form.rows, ROW), name="product")
        if total.axes != added.axes:
            part = Tile(self.names.fresh("part"), total.axes, total.shape)
            self.body.append(Reduce(part, added.name, self.form.k.name, "sum"))
            added = part
        (dot,) = self.form.whole.dots
        if dot.scale:
            added = emitter.map("mul", added, emitter.emit(dot.scale, "scale"))
        self.body.append(Map(total, "add", (total.name, added.name)))
