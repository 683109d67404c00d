"""Operands that are computed or looked up, stored by a kernel before the contraction: once, not by every tile.

Before:  grid m.0, n.0: for k.0: b = f(q[n, k], s[n]); acc += dot(x[m, k], b)
After:   grid n.0, k.0: b_stored[n, k] = f(q[n, k], s[n])      in the type that dots multiply, at every call
         the contraction of x and b_stored
So are rows at places that are data, x[token[m], k], also of products of segments.

Ansor's rule "cache stage" (Zheng et al., 2020, table 1) for what is computed. It costs the operand's bytes twice over,
and as much memory; for that the product is one of tensors, with descriptors, roles of warps and clusters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.contractions.dot_knobs import TILES
from search_spaces.devices.architectures import TMA
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.statements import Interleave, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Flat, Slice, Tile
from search_spaces.schedules.knobs import padded
from search_spaces.structure.contraction import Contraction, accumulator_dtype, contraction_as_named
from search_spaces.structure.looked_up import with_looked_up_tiles
from search_spaces.structure.operand_maps import OperandMap
from search_spaces.structure.operand_types import is_computed
from search_spaces.structure.segmented import segmented
from search_spaces.structure.stages import with_inputs_named
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, LookUp, mul
from search_spaces.workloads.expressions.walking import accesses, distinct, distinct_accesses, rewritten, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.strides import dense_strides
from search_spaces.workloads.workload import Axis, Stage, Tensor, Workload

# Rows and columns of a program's part, as of other copies: whole lines of the caches.
_TILE = (16, 256)
_WARPS = 4
# Numbers that share a byte, at most: of outer products memory would take longer than computing them again.
_MOST_OF_ONE = 8


@dataclass(frozen=True)
class StoredOperand:
    """An operand and the tensor that it is stored as: `axes` in order, neighbours of which may share a dimension."""

    workload: Workload
    operand: Expression
    axes: tuple[Axis, ...]
    made: Tensor
    constant: str = ""

    @property
    def workspace(self) -> Buffer:
        return Buffer(self.made.name, self.made.shape, self.made.dtype, "workspace", self.made.strides)

    @property
    def kernel(self) -> Kernel:
        """Tiles along the last two dimensions; the positions of a dimension's axes are digits of its own.

        Values that share an element, as of four bits, are computed of one load of it, and interleaved.
        """
        place, grid, stored = dict[str, Slice](), list[GridAxis](), list[Slice]()
        dimensions = self._dimensions
        outer, tiled = dimensions[:-2], dimensions[-2:]
        for axes in outer:
            place |= {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in axes}
            grid += [GridAxis(f"{x.name}.0", x.extent) for x in axes]
            stored.append(Slice(Affine.of(*((f"{x}.0", step) for x, step in _radix(axes).items()))))
        sharing = self._sharing(tiled)
        for axes, longest in zip(tiled, _TILE[-len(tiled) :], strict=True):
            name, size = axes[-1].name, math.prod(x.extent for x in axes)
            tile, together = min(padded(size), longest), axes[-1].extent if axes[-1] == sharing else 1
            begin = start_of((f"{name}.0", tile // together))
            place |= _digits(axes[:-1] if axes[-1] == sharing else axes, Slice(begin, tile // together, name))
            grid.append(GridAxis(f"{name}.0", -(-size // tile)))
            stored.append(Slice(begin * together, tile, name))
        place |= {x: Slice(start_of()) for x in variables(self.operand) if x not in place}
        emitter = Emitter(place, {t.name: t.dtype for t in self.workload.inputs}, Names(), short=True)
        made = self._interleaved(emitter, sharing) if sharing else emitter.tile(self.operand, "stored")
        body = (*emitter.body, Store(self.made.name, tuple(stored), made.name))
        name = f"{self.workload.name}_{self.made.name}"
        return Kernel(name, Grid(tuple(grid)), body, Launch(num_warps=_WARPS), auxiliary=True)

    def _sharing(self, dimensions: Iterable[Sequence[Axis]]) -> Axis | None:
        """The innermost axis of one of these dimensions along which every element that is read stays the same."""
        moving = {x for e in distinct(self.operand) if isinstance(e, Access | LookUp) for x in variables(e)}
        inner = (axes[-1] for axes in dimensions if len(axes) > 1)
        return next((x for x in inner if x.name not in moving and padded(x.extent) == x.extent), None)

    def _interleaved(self, emitter: Emitter, axis: Axis) -> Tile:
        """The operand at all positions of the axis, which alternate along the tile's of this name."""
        for access in distinct_accesses(self.operand):
            emitter.emit(access)
        parts = list[Tile]()
        for n in range(axis.extent):
            one = emitter.within()
            one.place = {**emitter.place, axis.name: Slice(Affine(offset=n))}
            parts.append(one.tile(self.operand, "part"))
            emitter.body += one.body
        first = parts[0]
        shape = (
            size * axis.extent if x == axis.name else size for x, size in zip(first.axes, first.shape, strict=True)
        )
        made = Tile(emitter.names.fresh("stored"), first.axes, tuple(shape), first.dtype)
        emitter.body.append(Interleave(made, tuple(p.name for p in parts), axis.name))
        return made

    @property
    def _dimensions(self) -> list[tuple[Axis, ...]]:
        """The axes of each dimension."""
        rest, found = list(self.axes), list[tuple[Axis, ...]]()
        for size in self.made.shape:
            axes = [rest.pop(0)]
            while math.prod(x.extent for x in axes) < size:
                axes.append(rest.pop(0))
            found.append(tuple(axes))
        return found


def _radix(axes: Sequence[Axis]) -> dict[str, int]:
    """The distance of two positions of each axis, dense and row-major."""
    return dict(zip((x.name for x in axes), dense_strides(tuple(x.extent for x in axes)), strict=True))


def _digits(axes: Sequence[Axis], piece: Slice) -> dict[str, Slice]:
    """The positions of each axis at a slice of the dimension that they share."""
    if len(axes) == 1:
        return {axes[0].name: piece}
    # The outermost digit has all that is left.
    sizes = [0, *(x.extent for x in axes[1:])]
    flats = (Flat(piece.start, step, size) for step, size in zip(_radix(axes).values(), sizes, strict=True))
    return {x.name: Slice(start_of(), piece.extent, piece.axis, flat=flat) for x, flat in zip(axes, flats, strict=True)}


def with_stored_operands(workload: Workload) -> tuple[Workload, tuple[StoredOperand, ...]]:
    """The contraction of stored operands in its canonical form, with the names of this one's inputs; and these.

    Raises:
        UnmatchedError: no operand is computed by several tiles, or those that are take too much memory.
    """
    of = segmented(workload)
    form = contraction_as_named(of.form.workload if of else workload)
    if form is None:
        raise UnmatchedError("its sums are no products of rows and columns over common axes")
    if form.is_scaled or form.workload.precision == "fast":
        raise UnmatchedError("scales are factors of parts of its sums, or operands are 8-bit floats")
    names = Names({t.name for t in form.workload.inputs} | {s.name for s in form.workload.stages})
    # What is computed of the entry of a table is another matrix for each segment.
    operands = {e: _layout(form, e) for e in _computed_often(form) if not of or isinstance(e, Gather)}
    if not operands:
        raise UnmatchedError(
            "none of its operands is looked up, or computed by several tiles, of tensors with about as many elements"
        )
    made = {
        e: _made(form, axes, names.fresh(f"{_largest(form, e).tensor.name}_stored")) for e, axes in operands.items()
    }
    reads = {e: Access(made[e].name, tuple(axis_index(x.name) for x in axes)) for e, axes in operands.items()}
    stages = _read_instead(workload, reads) if of else _with_operands(form, reads, made.values())
    changed = _respelled(_of_stages(workload if of else form.workload, stages, made.values()))
    spelled = {t.name: t for t in changed.inputs}
    if not {t.name for t in made.values()} <= spelled.keys():
        raise UnmatchedError("the products of its segments read operands at other axes")
    read = {a.tensor for e in operands for a in accesses(e)}
    if other := next((t.name for t in form.workload.inputs if t.name in read and spelled.get(t.name, t) != t), None):
        raise UnmatchedError(f"{other} has other dimensions where it is no operand")
    return changed, tuple(StoredOperand(form.workload, e, operands[e], spelled[made[e].name]) for e in operands)


def _computed_often(form: Contraction) -> Iterator[Expression]:
    """Operands of several rows that several of the longest tiles of the other side look up, or compute of few elements.

    A single row would be a vector, which a product of tensors does not read.
    """
    classes = (form.rows, form.columns)
    for side, own, others in zip(form.operands, classes, classes[::-1], strict=True):
        if math.prod(x.extent for x in own) > 1 and math.prod(x.extent for x in others) > TILES[-1]:
            computed = filter(is_computed, side)
            yield from (e for e in computed if _is_compact(form, e) or _is_looked_up(form, e))


def _is_compact(form: Contraction, operand: Expression) -> bool:
    """True if an operand has few elements for each of its largest tensor, and none is of several, as of taps."""
    if any(isinstance(part, LookUp) for part in distinct(operand)) or not accesses(operand):
        return False
    largest = _largest(form, operand)
    own, every = (math.prod(form.extents[x] for x in variables(e)) for e in (largest.access, operand))
    return own <= largest.tensor.elements and 1 < every <= _MOST_OF_ONE * own


def _is_looked_up(form: Contraction, operand: Expression) -> bool:
    """True for elements of a tensor at places that are data, unless these are places of whole tiles."""
    in_parts = (e for side in with_looked_up_tiles(form).operands for e in side)
    return isinstance(operand, Gather) and operand in in_parts


def _largest(form: Contraction, operand: Expression) -> OperandMap:
    """The map of the largest tensor that an operand reads; of one that is looked up, as far as it is affine."""
    if isinstance(operand, Gather):
        index = (i if isinstance(i, Affine) else Affine() for i in operand.index)
        return form.map_of(Access(operand.tensor, tuple(index)))
    return max(map(form.map_of, distinct_accesses(operand)), key=lambda x: x.tensor.elements)


def _layout(form: Contraction, operand: Expression) -> tuple[Axis, ...]:
    """The axes of an operand in the order of its largest tensor's memory; one that this lacks follows its class."""
    largest, known = _largest(form, operand), variables(operand)
    axes = [x for x in (*form.axes, *form.reduced) if x.name in known and x.extent > 1]
    steps = {x: largest.between(x.name) for x in axes}
    ordered = sorted((x for x in axes if steps[x]), key=lambda x: -abs(steps[x]))
    for axis in (x for x in axes if not steps[x]):
        alike = [n for n, x in enumerate(ordered, 1) if _are_of_one_class(form, x, axis)]
        ordered.insert(alike[-1] if alike else 0, axis)
    return tuple(ordered)


def _are_of_one_class(form: Contraction, a: Axis, b: Axis) -> bool:
    return any(a in axes and b in axes for axes in (form.batch, form.rows, form.columns, form.reduced))


def _made(form: Contraction, axes: tuple[Axis, ...], name: str) -> Tensor:
    """The tensor of an operand, with rows that descriptors can address: those of the last axis and its class."""
    shape, aligned = tuple(x.extent for x in axes), TMA.vector(dtype(form.dtype).bytes)
    first = next(n for n in reversed(range(len(axes))) if n == 0 or not _are_of_one_class(form, axes[n - 1], axes[-1]))
    rows = dense_strides((*shape[:first], -(-math.prod(shape[first:]) // aligned) * aligned))
    return Tensor(name, shape, form.dtype, (*rows[:-1], *dense_strides(shape[first:])))


def _of_stages(workload: Workload, stages: Sequence[Stage], made: Iterable[Tensor]) -> Workload:
    """The workload of these stages, with the inputs that they read."""
    read = {e.tensor for s in stages for e in distinct(s.expression) if isinstance(e, Access | LookUp)}
    inputs = tuple(t for t in (*workload.inputs, *made) if t.name in read)
    return replace(workload, inputs=inputs, stages=tuple(stages), arguments=())


def _read_instead(workload: Workload, reads: Mapping[Expression, Access]) -> list[Stage]:
    """The stages with these reads for what is looked up."""
    return [replace(s, expression=rewritten(s.expression, reads.get)) for s in workload.stages]


def _with_operands(form: Contraction, reads: Mapping[Expression, Access], made: Iterable[Tensor]) -> list[Stage]:
    """The stages with these reads as operands: sums of products, and what follows them."""
    workload = form.workload
    stages = {s.name: s for s in workload.stages}
    names = Names({*stages, *(t.name for t in (*workload.inputs, *made))})
    results = dict(form.results)
    sums, called = list[Stage](), dict[str, str]()
    for dot in form.dots:
        own = stages[dot.stage]
        whole = results.get(dot.stage) in (None, Access(dot.stage, tuple(axis_index(x.name) for x in own.axes)))
        called[dot.stage] = dot.stage if whole else names.fresh(dot.stage)
        product = mul(*(reads.get(e, e) for e in (dot.a, dot.b)))
        element = own.dtype if whole else accumulator_dtype(form)
        sums.append(replace(own, name=called[dot.stage], expression=product, dtype=element))

    def renamed(e: Expression) -> Expression | None:
        return replace(e, tensor=called[e.tensor]) if isinstance(e, Access) and e.tensor in called else None

    rest = [
        replace(stages[name], expression=rewritten(e, renamed), reduction=None)
        for name, e in results.items()
        if called.get(name) != name
    ]
    return [*sums, *rest]


def _respelled(workload: Workload) -> Workload:
    """The canonical form of a workload, in which axes are as few as memory allows, with the inputs' own names."""
    found = workload.scheduled
    names = {t.name: workload.inputs[n].name for t, n in zip(found.inputs, workload.canonical.inputs, strict=True)}
    if {*names.values()} & {s.name for s in found.stages}:
        raise UnmatchedError("an input has the name of a stage")
    return with_inputs_named(found, names)
