"""Elements of traced values as expressions of what is in memory, pulled from the output of a kernel downwards.

Reductions and products that are met on the way become stages; views only change the index.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.positions import affine_of, beyond, is_below, is_inside, moved
from autosched.tracing.values.reads import Reads, at_its_axes
from autosched.tracing.values.scanned import ScannedStages, along
from autosched.tracing.values.templates import filled
from autosched.tracing.values.tensor_reads import Lying, base_of, lying, overlaps
from autosched.tracing.values.values import (
    Counted,
    Index,
    Joined,
    LookedUp,
    Padded,
    Pointwise,
    Product,
    Reduced,
    Scanned,
    Value,
    View,
    as_read,
)
from autosched.tracing.values.views import AxisCutError, NotAffineError, Windows, expanded, reshaped
from search_spaces import Axis, Reduction, Stage
from search_spaces.structure.windows import MAX_WINDOW
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Expression, Literal, Position
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses, gathers, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.scans import needed_members, unchanging

# The axis of a result without dimensions.
ROW = "row"
# Parts that the expressions of one kernel may have. More takes longer to compile than it saves.
_MOST_PARTS = 3000
# Operators that may follow each other in one. What prints, writes and reads expressions calls itself, twice or three
# times for each, and Python allows a thousand such calls in all. So many take longer than moving a tensor to memory.
_MOST_DEPTH = 150

# What asks for elements of other values, one by one, and ends with an element of its own.
Pulling = Generator[tuple[Value, Index], Expression, Expression]


class NotOneKernelError(Exception):
    """A value and what it is computed from do not fit one kernel; with `stored` in memory they might.

    `needed`: nothing that is computed from `stored` like that has a kernel unless that is in memory. `reached`: what
    was looked at until then; storing anything else changes nothing.
    """

    def __init__(self, reason: str, stored: Value | None = None, *, needed: bool = False) -> None:
        super().__init__(reason)
        self.stored, self.needed = stored, needed
        self.reached: frozenset[Value] = frozenset()

    def having(self, reached: Iterable[Value]) -> NotOneKernelError:
        """The same, with what was looked at."""
        self.reached = frozenset(reached)
        return self


@dataclass(frozen=True)
class Fusing:
    """What of products one kernel may hold, beside what it does with one alone.

    `computed`: what is multiplied may be computed on the way, and there may be several products of one shape.
    `chained`: what is multiplied may be computed from products and folds, and products may be folded.
    """

    computed: bool = False
    chained: bool = False


@dataclass
class Elements:
    """What is known while the elements of one output are pulled from the values that are `stored`, with their strides.

    `cuts`: axes that are two, by the positions of the inner one. `output_axes` are those of the output that has most
    elements, in order; `columns` those along what is reduced, one range after the other, whichever dimensions these
    are. `prefix`: what the names of axes begin with that it makes itself. `factors`: what is pulled for products at the
    moment, one within the other, and `walks` the axes that these sum over; `summed`: how long such axes are.
    `products`: the stages of products. `reached`: what was looked at; `known`: at which elements.
    """

    stored: Mapping[Value, tuple[int, ...]]
    cuts: Mapping[str, int]
    fusing: Fusing
    prefix: str = ""
    extents: dict[str, int] = field(default_factory=dict)
    output_axes: tuple[str, ...] = ()
    columns: list[tuple[str, ...]] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    precision: str = "ieee"
    multiplies: bool = False
    factors: list[Value] = field(default_factory=list)
    walks: list[tuple[str, ...]] = field(default_factory=list)
    summed: dict[str, int] = field(default_factory=dict)
    products: set[str] = field(default_factory=set)
    reached: set[Value] = field(default_factory=set)
    known: dict[tuple[Value, Index], Expression] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    reads: Reads = field(init=False)
    scans: ScannedStages = field(init=False)

    def __post_init__(self) -> None:
        self.scans = ScannedStages(self.stages, self.names)
        self.reads = Reads(self.extents, self.names)

    def dimension(self, axis: str, size: int) -> Affine:
        """The index along a dimension: an axis, or the axes it is cut into; 0 where there is only one index."""
        if size == 1:
            return Affine()
        inner = self.cuts.get(axis)
        if inner is not None and size % inner == 0:
            return self.dimension(f"{axis}o", size // inner) * inner + self.dimension(f"{axis}i", inner)
        self.extents[axis] = size
        return axis_index(axis)

    def _unit(self, at: Affine | Expression, axis: str) -> Affine:
        """The index, with an axis of extent 1 where it has none."""
        if not isinstance(at, Affine):
            raise NotOneKernelError("an element of a product is looked up")
        if at.terms:
            return at
        self.extents[axis] = 1
        return at + axis_index(axis)

    def _units(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of the axes that products were given for dimensions of size 1."""
        return tuple(a for a in axes if self.extents[a] == 1)

    def axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        return tuple(Axis(n, self.extents[n]) for n in names)

    def ordered(self, names: Sequence[str]) -> tuple[str, ...]:
        """Rows before columns."""
        columns = dict.fromkeys(n for group in self.columns for n in group)
        return (*(n for n in names if n not in columns), *(n for n in columns if n in names))

    def element(self, value: Value, index: Index) -> Expression:
        """The element of the value at the index, as an expression of what is in memory.

        What it is computed from waits in a list, not on Python's stack: chains may be long.
        """
        waiting = [((value, index), self._made(value, index))]
        given: Expression | None = None
        while waiting:
            key, pulling = waiting[-1]
            try:
                wanted = next(pulling) if given is None else pulling.send(given)
            except StopIteration as end:
                waiting.pop()
                given = self.known[key] = self._bounded(key[0], end.value)
            else:
                given = self.known.get(wanted)
                if given is None:
                    waiting.append((wanted, self._made(*wanted)))
        assert given is not None
        return given

    def _bounded(self, value: Value, made: Expression) -> Expression:
        """The expression of an element of the value, unless it is too large for a kernel."""
        if ex.parts(made) <= _MOST_PARTS and ex.depth(made) <= _MOST_DEPTH:
            return made
        reason = f"the expression of {value.name} has over {_MOST_PARTS} parts, or {_MOST_DEPTH} within each other"
        sizes = {v: max(ex.parts(e) / _MOST_PARTS, ex.depth(e) / _MOST_DEPTH) for (v, _), e in self.known.items()}
        below = [base_of(o, self.stored) for o in value.operands]
        computed = [o for o in below if o.operands and o not in self.stored]
        largest = max(computed, key=lambda o: sizes.get(o, 0.0), default=None)
        raise NotOneKernelError(reason, largest, needed=largest is not None)

    def _made(self, value: Value, index: Index) -> Pulling:
        self.reached.add(value)
        if value in self.stored:
            return self._read(Lying(value, value.shape, self.stored[value], 0), index)
        match value:
            case View():
                return (yield from self._viewed(value, index))
            case Pointwise(arguments=arguments, expression=expression):
                elements = []
                for argument in arguments:
                    elements.append((yield argument, expanded(index, argument.shape)))
                return filled(expression, elements)
            case Counted(start=start, step=step):
                return _as_value(index[0], step, start, is_integer(value.dtype))
            case Reduced():
                return (yield from self._folded(value, index))
            case Scanned():
                return (yield from self._scanned(value, index))
            case Product():
                return (yield from self._multiplied(value, index))
            case LookedUp(table=table, index=chosen):
                at: list[Affine | Expression] = []
                for i in chosen:
                    if isinstance(i, int):
                        at.append(index[i])
                        continue
                    found = yield i, expanded(index, i.shape)
                    at.append(affine_of(found, self.extents) or found)
                return (yield table, tuple(at))
            case Padded():
                return (yield from self._padded(value, index))
            case Joined():
                return (yield from self._joined(value, index))
            case _:
                raise NotOneKernelError(f"{value.name} is left to PyTorch", value)

    def _viewed(self, view: View, index: Index) -> Pulling:
        lies = lying(view, self.stored)
        if lies is not None and overlaps(lies):
            lies = None
        inside = self.reads.is_inside(index, view.shape)
        if lies is not None and inside and self.factors:
            return self._read(lies, index)
        try:
            at = view.kind.source_index(index, self.extents)
        except (NotAffineError, AxisCutError) as error:
            if lies is not None:
                return self._read(lies, index)
            if isinstance(error, AxisCutError):
                raise
            base = base_of(view, self.stored)
            stored = None if base in self.stored else base
            raise NotOneKernelError(f"{view.name} is no affine view", stored) from None
        # Several views of one tensor are then one input; outside of a view, nobody asks for what is read.
        return (yield view.argument, at)

    def _padded(self, value: Padded, index: Index) -> Pulling:
        """An element of the argument, or the fill where there is none: read like that, if the argument is in memory."""
        argument = value.argument
        at = tuple(moved(i, -before) for i, before in zip(index, value.before, strict=True))
        inside: list[Expression] = []
        for i, size in zip(at, argument.shape, strict=True):
            if isinstance(i, Affine) and beyond(i, size, self.extents):
                return value.fill
            inside += is_inside(i, size, self.extents)
        lies = lying(argument, self.stored)
        affine = all(isinstance(i, Affine) for i in at)
        if lies is not None and affine and not overlaps(lies) and isinstance(value.fill, Literal | ex.Integer):
            return self._read(lies, at, value.fill.value)
        element = yield argument, at
        return ex.call("where", functools.reduce(ex.mul, inside), element, value.fill) if inside else element

    def _joined(self, value: Joined, index: Index) -> Pulling:
        """An element of the part that the position is in; where only some can be, the others are not looked at."""
        at, dim = index[value.dim], value.dim
        chosen: list[tuple[int, Expression]] = []
        begin, last = 0, value.parts[-1]
        for part in value.parts:
            end = begin + part.shape[dim]
            below = part is not last and isinstance(at, Affine) and at.minimum(self.extents) >= end
            if not below:
                element = yield part, (*index[:dim], moved(at, -begin), *index[dim + 1 :])
                chosen.append((end, element))
            if isinstance(at, Affine) and at.maximum(self.extents) < end:
                break
            begin = end
        _, found = chosen.pop()
        for end, element in reversed(chosen):
            found = ex.call("where", is_below(at, end), element, found)
        return found

    def _read(self, lies: Lying, index: Index, fill: float | int = 0) -> Expression:
        return self.reads.element(lies, index, fill, multiplied=bool(self.factors))

    # Stages

    def _folded(self, value: Reduced, index: Index) -> Pulling:
        """A reduction: a stage over the axes of its index."""
        sizes = [value.argument.shape[d] for d in value.dims]
        windowed = math.prod(sizes) <= MAX_WINDOW and _is_windowed(value.argument)
        rows = axes_in(index)
        columns = self._along_window(sizes) if windowed else self._along_columns(sizes, rows)
        whole: list[Affine | Expression] = list(index)
        for d, at in zip(value.dims, columns, strict=True):
            whole.insert(d, at)
        body = yield value.argument, tuple(whole)
        folded = axes_in(columns)
        if not folded:
            return body
        if self.fusing.chained:
            rows = (*rows, *(a for a in self._units(sorted(variables(body))) if a not in (*rows, *folded)))
        rows = tuple(a for a in self.output_axes if a in rows) + tuple(a for a in rows if a not in self.output_axes)
        if not rows:
            self.extents[ROW] = 1
            rows = (ROW,)
            self.output_axes = (ROW, *(a for a in self.output_axes if a != ROW))
        reduction = Reduction(value.operator, self.axes(folded))
        dtype = "int64" if is_integral(body) else "float32"
        return self._access(Stage(value.name, self.axes(rows), body, reduction, dtype), value)

    def _along_window(self, sizes: Sequence[int]) -> Index:
        """The index along dimensions of windows, by axes of their own."""
        axes = [f"{self.prefix}w{len(self.reads.windows) + n}" for n in range(len(sizes))]
        self.reads.windows |= {*axes}
        return tuple(self.dimension(axis, size) for axis, size in zip(axes, sizes, strict=True))

    def _along_columns(self, sizes: Sequence[int], rows: Sequence[str]) -> Index:
        """The index along reduced dimensions of these sizes, for rows with these axes."""
        count = math.prod(sizes)
        if count == 1:
            return tuple(Affine() for _ in sizes)
        for axes in self._known_columns(rows):
            extents = [self.extents[a] for a in axes]
            if axes and math.prod(extents) == count:
                if axes not in self.columns:
                    self.columns.append(axes)
                return reshaped([axis_index(a) for a in axes], extents, sizes, self.extents)
        first = sum(len(c) for c in self.columns)
        index = tuple(self.dimension(f"{self.prefix}r{n}", size) for n, size in enumerate(sizes, first))
        self.columns.append(axes_in(index))
        return index

    def _known_columns(self, rows: Sequence[str]) -> list[tuple[str, ...]]:
        """The axes that there are for what is reduced in these rows: in chains first those that are walked already."""
        free = tuple(a for a in self.output_axes if a not in rows and a != ROW)
        parts = [free[a:b] for b in range(len(free), 0, -1) for a in range(b)]
        walked = [c for c in (*reversed(self.walks), *self.columns) if not set(c) & set(rows)]
        return [*walked, *parts] if self.fusing.chained else [*parts, *walked]

    def _scanned(self, value: Scanned, index: Index) -> Pulling:
        """A scan: a stage over the axes of its index, and one for every value that it is combined with."""
        operation, size = value.operation, value.shape[value.operation.dim]
        way = along(operation, index, size, self.extents)
        if way is None:
            raise NotOneKernelError(f"{value.name} is a scan, and is read elsewhere than where it goes along", value)
        bodies: dict[int, Expression] = {}
        for number in needed_members(operation.combine, value.output):
            body = yield operation.elements[number], index
            outside = is_inside(index[operation.dim], size, self.extents)
            neutral = unchanging(operation.combine, is_integral(body))
            if outside and neutral is None:
                raise NotOneKernelError(f"{value.name} is a scan, and is read outside of it", value)
            if outside and neutral is not None:
                body = ex.call("where", functools.reduce(ex.mul, outside), body, neutral)
            bodies[number] = body
        rows = axes_in(index)
        axes = self.axes([*(a for a in self.output_axes if a in rows), *(a for a in rows if a not in self.output_axes)])
        if not any(way[0] in group for group in self.columns):
            self.columns.append((way[0],))
        self.scans.add(operation, index, bodies, axes, way)
        name = self.scans.known[operation, index][value.output]
        stage = next(s for s in self.stages if s.name == name)
        return as_read(at_its_axes(stage), value.dtype)

    def _multiplied(self, value: Product, index: Index) -> Pulling:
        """A contraction: a stage with the axes of the product, of which there are at least m and n."""
        *batch, m, n = index
        if not self.reads.is_inside(index, value.shape):
            raise NotOneKernelError(f"{value.name} is a product, and read at positions that it does not have", value)
        within = 1 if self.fusing.chained else 0
        if len(self.factors) > within:
            factor = self._missing(self.factors[-1])
            reason = f"{factor.name} is multiplied, and computed from a product"
            raise NotOneKernelError(reason, factor, needed=not self.fusing.computed)
        m, n = self._unit(m, "m"), self._unit(n, "n")
        own = axes_in((*batch, m, n))
        summed = self._summed_axis(value, own)
        k = self._unit(self.dimension(summed, value.a.shape[-1]), summed)
        if self.multiplies and not self.fusing.chained and own != self.output_axes:
            raise NotOneKernelError("there are products over different axes", value)
        self.walks.append(axes_in((k,)))
        a = yield from self._factor(value.a, (*batch, m, k))
        b = yield from self._factor(value.b, (*batch, k, n))
        self.walks.pop()
        if not set(self.output_axes) <= set(own) and not self.fusing.chained:
            raise NotOneKernelError("a product is read at other axes than it has", value)
        units = [a for a in self._units(own) if a not in self.output_axes]
        if not self.fusing.chained or {*own} == {*self.output_axes, *units}:
            # With those of size 1 that the output leaves out.
            self.output_axes = own
        else:
            self.output_axes = (*self.output_axes, *units)
        # Those of 16 bits are "ieee" however others are multiplied.
        self.precision = value.precision if self.precision == "ieee" else self.precision
        self.multiplies = True
        reduction = Reduction("sum", self.axes(axes_in((k,))))
        made = self._access(Stage(value.name, self.axes(own), ex.mul(a, b), reduction), value)
        self.products |= {a.tensor for a in accesses(made)}
        return made

    def _summed_axis(self, value: Product, own: Sequence[str]) -> str:
        """The axis that a product sums over: that of another one, if it is as long, and none of the product's own."""
        first, size = f"{self.prefix}k", value.a.shape[-1]
        if not self.fusing.chained:
            if self.multiplies and not (self.fusing.computed and size == self.extents.get(first)):
                raise NotOneKernelError("there are several products", value)
            return first
        names = (f"{first}{number or ''}" for number in itertools.count())
        # An axis may be cut in two.
        free = (n for n in names if not {n, f"{n}o", f"{n}i"} & {*own})
        return next(n for n in free if self.summed.setdefault(n, size) == size)

    def _factor(self, value: Value, index: Index) -> Pulling:
        """What a product multiplies: an element in memory, or what is computed where `fusing` allows it.

        What is in memory is read by every axis of the index, with a stride of 0 by those that it does not depend on.
        """
        self.factors.append(value)
        read = yield value, index
        self.factors.pop()
        if isinstance(read, ex.Apply) and read.operator == "to_integer":
            # Dots take integers as they are in memory.
            (read,) = read.arguments
        operand = self.reads.read_by(read)
        if operand is None and self._may_be_computed(read, value):
            return read
        if operand is None:
            raise NotOneKernelError(f"{value.name} is multiplied", self._missing(value), needed=True)
        if operand.value.dtype != value.dtype:
            reason = f"{value.name} is multiplied, and is {operand.value.dtype} in memory"
            raise NotOneKernelError(reason, value, needed=True)
        steps = [s for v, s in operand.strides if self.extents[v] > 1]
        if steps and min(steps) > 1 and isinstance(value, View):
            # Elements that all lie apart are better copied together once than read by every tile.
            reason = f"{value.name} is multiplied, and none of its elements are neighbours"
            raise NotOneKernelError(reason, value, needed=True)
        given = dict(operand.strides)
        repeated = tuple((a, 0) for a in axes_in(index) if a not in given)
        if not repeated or self.fusing.chained:
            return read
        operand = self.reads.operand(replace(operand, strides=(*repeated, *operand.strides), sizes=()))
        return at_its_axes(operand)

    def _may_be_computed(self, factor: Expression, value: Value) -> bool:
        """Whether a product may multiply what is no tensor in memory."""
        stages = {s.name for s in self.stages}
        folded = any(a.tensor in stages for a in accesses(factor)) or next(iter(gathers(factor)), None)
        return bool(self.fusing.chained and folded) or (self.fusing.computed and value.dtype != "float32")

    def _missing(self, factor: Value) -> Value:
        """What a product needs in memory: what the factor is a view or a copy of, or itself."""
        base = base_of(factor, self.stored)
        copied = base
        while isinstance(copied, Pointwise) and copied not in self.stored and copied.is_copy:
            copied = base_of(copied.arguments[0], self.stored)
        found = base if copied in self.stored else copied
        return factor if found in self.stored else found

    def _access(self, stage: Stage, value: Value) -> Expression:
        """An element of a stage, which is a new one unless another one computes the same."""
        same = next((s for s in self.stages if replace(s, name=stage.name) == stage), None)
        if same is None:
            same = replace(stage, name=self.names.fresh(stage.name))
            self.stages.append(same)
        return as_read(at_its_axes(same), value.dtype)


def _as_value(at: Affine | Expression, step: int, start: int, whole: bool) -> Expression:
    """`start + step * at`, as an integer if it is `whole`, or else as a float32; data is an integer."""
    if isinstance(at, Affine):
        form = at * step + Affine(offset=start)
        if not form.terms:
            return ex.Integer(form.offset) if whole else Literal(float(form.offset))
        return ex.call("to_integer", Position(form)) if whole else Position(form)
    scale = at if step == 1 else ex.mul(at, ex.Integer(step))
    number = scale if start == 0 else ex.add(scale, ex.Integer(start))
    return number if whole else ex.call("to_float", number)


def _is_windowed(value: Value) -> bool:
    """Whether it is windows of something, or computed from the elements of such alone."""
    while isinstance(value, View) or (isinstance(value, Pointwise) and len(value.arguments) == 1):
        if isinstance(value, View) and isinstance(value.kind, Windows):
            return True
        (value,) = value.operands
    return False


def axes_in(index: Index) -> tuple[str, ...]:
    """The axes of the index, in order."""
    forms = (at for at in index if isinstance(at, Affine))
    found = [v for form in forms for v, _ in sorted(form.terms, key=lambda term: -term[1])]
    inner = [v for at in index if not isinstance(at, Affine) for v in sorted(variables(at))]
    return tuple(dict.fromkeys([*found, *inner]))
