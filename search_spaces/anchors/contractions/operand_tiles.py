"""The operand tiles of one iteration: loaded in place, or computed from loaded tiles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from search_spaces.anchors.contractions.class_tiles import place_of_windows
from search_spaces.anchors.contractions.looked_up_tiles import Places, with_places
from search_spaces.anchors.contractions.operand_copies import COPIED, OperandCopy, copied_operand
from search_spaces.anchors.contractions.output_tiles import loaded
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.statements import Load, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Literal, Segment
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, rewritten, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload

# The knobs of loading operands, of rows and of columns.
LOADS = ("a_load", "b_load")


@dataclass(frozen=True)
class Operands:
    """The operands of the dots, rows and columns: each with the expression that is read for it.

    The two differ if a copy is read. `dtypes` are those of all reads; `copies` are made before.
    """

    sides: tuple[Mapping[Expression, Expression], Mapping[Expression, Expression]]
    dtypes: Mapping[str, str]
    copies: tuple[OperandCopy, ...]

    def changed(self, change: Callable[[Expression], Expression]) -> Operands:
        """The operands with a change of what is read for each."""
        rows, columns = ({e: change(read) for e, read in side.items()} for side in self.sides)
        return replace(self, sides=(rows, columns))

    def of_side(self, side: int) -> Operands:
        """The operands of the rows (side 0) alone, or of the columns (1)."""
        rows, columns = self.sides
        return replace(self, sides=(rows, {}) if side == 0 else ({}, columns))


@dataclass(frozen=True)
class Iteration:
    """Operand tiles of rows and of columns, the statements of every iteration, and those before the loop.

    `scales`: of those dots that have one; `outside`: NaN or 0, of operands as stored whose places are data.
    """

    tiles: tuple[Mapping[Expression, Tile], Mapping[Expression, Tile]]
    before: tuple[Statement, ...]
    body: tuple[Statement, ...]
    scales: Mapping[Expression, Tile]
    outside: Mapping[Expression, Tile] = field(default_factory=dict)


def operands_of(workload: Workload, form: Contraction, values: Values) -> Operands:
    """The operands as a schedule reads them: in place, or from copies."""
    sides, copies = list[dict[Expression, Expression]](), list[OperandCopy]()
    for side, knob in zip(form.operands, LOADS, strict=True):
        way = values.word(knob)
        made = {a: copied_operand(form, a, way) for a in copied_reads(form, side)} if way in COPIED else {}
        sides.append({e: _with_copies(e, made) for e in side})
        copies += made.values()
    dtypes = {t.name: t.dtype for t in workload.inputs} | {c.workspace.name: c.workspace.dtype for c in copies}
    return Operands((sides[0], sides[1]), dtypes, tuple(dict.fromkeys(copies)))


def _with_copies(operand: Expression, copies: Mapping[Access, OperandCopy]) -> Expression:
    def change(e: Expression) -> Expression | None:
        return copies[e].read if isinstance(e, Access) and e in copies else None

    return rewritten(operand, change)


def iteration_of(
    form: Contraction,
    operands: Operands,
    place: Mapping[str, Slice],
    ways: tuple[str, str],
    free: Collection[str],
    names: Names,
    end: Axis | None,
    neighbours: Neighbours | None = None,
) -> Iteration:
    """The tiles of operands of any kind; `end`: the axis whose end they reach beyond, if any.

    `neighbours`: of places in one iteration, which share what they load.
    """
    places = Places.of(form, place, operands.dtypes, names)
    place = places.emitter.place
    made = [
        _side(form, side, operands.dtypes, place, how, free, names, end, neighbours)
        for side, how in zip(operands.sides, ways, strict=True)
    ]
    (rows, before_a, a), (columns, before_b, b) = made
    emitter = Emitter(place, operands.dtypes, names, neighbours=neighbours)
    scales = {d.scale: emitter.tile(d.scale, "scale") for d in form.dots if d.scale}
    found = ((e, places.outside(_written(form, read, end))) for side in operands.sides for e, read in side.items())
    outside = {e: tile for e, tile in found if tile}
    before, body = (*places.before, *before_a, *before_b), (*places.body, *a, *b, *emitter.body)
    return Iteration((rows, columns), before, body, scales, outside)


def _side(
    form: Contraction,
    operands: Mapping[Expression, Expression],
    dtypes: Mapping[str, str],
    place: Mapping[str, Slice],
    how: str,
    free: Collection[str],
    names: Names,
    end: Axis | None,
    neighbours: Neighbours | None,
) -> tuple[dict[Expression, Tile], list[Statement], list[Statement]]:
    """Load and compute the operands of one side, each once an iteration."""
    if how == "im2col":
        (access,) = (e for e in operands if isinstance(e, Access))
        place = place_of_windows(form, place, access)
    # Tiles are computed in the memory layout of the first of them.
    order = next((x for e in operands.values() for x in whole_tiles(e, form)), None)
    tiled = {x for x, piece in place.items() if piece.axis}
    first = [*filter(None, (i.along(tiled) for i in order.index))] if order else []
    ordered = {x: place[x] for x in (*(x for x in place if x not in first), *first)}
    emitter = Emitter(ordered, dtypes, names, neighbours=neighbours, short=True)
    written = {e: with_places(form, _written(form, read, end)) for e, read in operands.items()}
    for e in written.values():
        for part in _parts_without(e, {x.name for x in form.reduced}):
            emitter.emit(part)
    before, emitter.body = emitter.body, []
    tiles = {e: emitter.tile(w, "operand") for e, w in written.items()}
    body = [
        loaded(s, how if len(s.dst.axes) > 1 else "pointer", free) if isinstance(s, Load) else s for s in emitter.body
    ]
    return tiles, before, body


def _written(form: Contraction, operand: Expression, end: Axis | None) -> Expression:
    """The operand as computed in every iteration: 0 beyond the end of k, and rounded to the operand type of the dot.

    Elements loaded beyond the end are 0 outside of their tensor, but values computed from them need not be, nor be
    finite.
    """
    if isinstance(operand, Access) and (end is None or _ends(form, operand, end)):
        return operand
    rounding = next((r for r, to in ROUNDINGS.items() if to == form.dtype), None)
    if isinstance(operand, Apply) and operand.operator == rounding:
        (operand,) = operand.arguments
    if end is not None:
        inside = ex.call("lt", ex.Position(axis_index(end.name)), Literal(float(end.extent)))
        if is_integer(form.dtype):
            chosen = ex.call("where", inside, ex.call("to_integer", operand), ex.Integer(0))
            return ex.call(f"wrap_{form.dtype}", chosen)
        operand = ex.call("where", inside, operand, Literal(0.0))
    return ex.call(rounding, operand) if rounding else operand


def _ends(form: Contraction, operand: Access, end: Axis) -> bool:
    """True if only zeros are read beyond the end of the axis, as in a copy, which has no more elements."""
    is_copy = all(operand.tensor != t.name for t in form.workload.inputs)
    return is_copy or form.map_of(operand).is_zero_beyond(end, form.extents)


def whole_tiles(operand: Expression, form: Contraction) -> Iterator[Access]:
    """The tensors that an operand reads along k and another axis of the dot, as descriptors can."""
    for access in accesses(operand):
        names = {x for i in access.index for x in i.axes}
        if form.k.name in names and names & {form.m.name, form.n.name}:
            yield access


def copied_reads(form: Contraction, side: Iterable[Expression]) -> tuple[Access, ...]:
    """The reads of a side's operands that copies replace: operands as stored, and whole tiles of computed ones."""
    return tuple(dict.fromkeys(a for e in side for a in ((e,) if isinstance(e, Access) else whole_tiles(e, form))))


def moved_by(form: Contraction, knob: str, way: str = "") -> tuple[tuple[Access, tuple[int, ...]], ...]:
    """The tensors whose whole tiles a decision moves, or copies of them, as they are read or stored; their strides."""
    workload = form.workload
    if knob in LOADS:
        moved = [a for e in form.operands[LOADS.index(knob)] for a in whole_tiles(e, form)]
        if way in COPIED:
            copies = (copied_operand(form, a, way) for a in dict.fromkeys(moved))
            return tuple((c.read, c.workspace.strides) for c in copies)
    elif knob == "store":
        moved = [Access(name, tuple(axis_index(x.name) for x in form.axes)) for name in workload.output_names]
    else:
        moved = whole_epilogue_tiles(form)
    strides = {t.name: t.effective_strides for t in (*workload.inputs, *workload.outputs)}
    return tuple((a, strides[a.tensor]) for a in dict.fromkeys(moved) if a.tensor in strides)


def whole_epilogue_tiles(form: Contraction) -> list[Access]:
    """The inputs that epilogues read along m and n: a residual, a gate."""
    read = (x for _, epilogue in form.results for x in accesses(epilogue))
    inputs = {t.name for t in form.workload.inputs}
    both = {form.m.name, form.n.name}
    return [x for x in read if x.tensor in inputs and both <= {*form.map_of(x).axes(both)}]


def _parts_without(expression: Expression, axes: Collection[str]) -> Iterator[Expression]:
    """The largest parts of the expression that are constant along the axes, without constants."""
    if isinstance(expression, Literal):
        return
    if not variables(expression) & {*axes}:
        yield expression
        return
    match expression:
        case Apply(_, arguments):
            for argument in arguments:
                yield from _parts_without(argument, axes)
        case Gather() | Segment():
            for index in expression.looked_up:
                yield from _parts_without(index, axes)
