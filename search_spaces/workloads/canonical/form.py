"""The canonical form of a workload: its computation on memory, without names and choices of its author.

    acc[m, n] = sum over k of mul(a[m, k], b[n, k])           0 over 8 × 4, at 4 i0 + i1 = sum over 16 of
    out[m, n] = add(acc[m, n], bias[n])                   →       mul(input 0 at 16 i0 + i2, input 1 at 16 i1 + i2)
                                                              1 over 8 × 4, at 4 i0 + i1 =
                                                                  add(stage 0 at 4 i0 + i1, input 2 at i1)

Tensors are memory here: shapes and strides only give the address of an access, as an affine form of the axes; of tables
alone, which are looked up in, the shapes remain. Axes are numbered, outermost in memory first; axes of extent 1 are
left out, and neighbours that are contiguous in all memory become one (`axis_merging`). Stages come in the order in
which they are found from the outputs on, backwards, and inputs as these read them; stages without readers are left out,
and so are stages that only name an expression (`inlining`); an input that nothing reads comes last, since a call passes
it. The two arguments of a sum or a product, which may be exchanged, are ordered by their structure; alike ones keep
their order. Constants are those of float32.

Workloads of the same form compute the same elements, rounded alike, from the same memory: inputs in the order of the
form (`Canonical.inputs`) can be given to a kernel of any other workload of the form, in that one's order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from search_spaces.workloads.canonical.argument_order import ArgumentOrder, constant_text, digest
from search_spaces.workloads.canonical.axis_merging import mergeable
from search_spaces.workloads.canonical.inlining import at_index, inlined
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)
from search_spaces.workloads.expressions.walking import accesses, distinct, distinct_accesses, own_forms, segments
from search_spaces.workloads.scans import needed_members, of_some
from search_spaces.workloads.stages import Axis, Stage, Tensor
from search_spaces.workloads.strides import dense_strides

_KEY_DIGITS = 16

# Data for JSON.
_Data = str | int | None | list["_Data"]


@dataclass(frozen=True)
class Canonical:
    """`key`: hash of the form. `family`: the kinds of its reductions.

    Schedules of workloads of one family may inform each other, whatever the shapes and element types. `inputs`: the
    workload's input that is the form's first, second …. `shapes`: of the first reduction, or else of an output; then of
    these inputs, by the axes that read them.
    """

    key: str
    family: str
    inputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    # The key is of both.
    memory: Sequence[_Data] = field(repr=False, compare=False)
    lines: Sequence[_Data] = field(repr=False, compare=False)


def canonical(
    inputs: Sequence[Tensor], stages: Sequence[Stage], outputs: Sequence[Tensor], precision: str
) -> Canonical:
    """The canonical form of a workload; `outputs` are its stored stages, as tensors in memory."""
    stages = inlined([_folding(_scanning(s)) for s in stages], precision, [t.name for t in outputs])
    form = _Form({t.name: t for t in inputs}, {s.name: s for s in stages})
    lines = form.of({t.name: t.effective_strides for t in reversed(outputs)})
    shapes = form.read | {t.name: (t.span,) for t in inputs if t.name not in form.read}
    names = [t.name for t in inputs]
    order = tuple(names.index(name) for name in shapes)
    memory: list[_Data] = [[inputs[n].dtype, inputs[n].span, *_words(inputs[n])] for n in order]
    # The last lines are those of the outputs.
    several = [len(outputs)] if len(outputs) > 1 else []
    key = digest(json.dumps([precision, memory, lines, *several, *_timing(inputs, stages)]))[:_KEY_DIGITS]
    return Canonical(key, " ".join(sorted(form.kinds)), order, (form.loop, *shapes.values()), memory, lines)


def _words(tensor: Tensor) -> list[_Data]:
    """ "constant", and a histogram, only where they apply: keys of older versions stay valid."""
    return [*(["constant"] if tensor.constant else []), *([tensor.histogram] if tensor.histogram else [])]


def _timing(inputs: Sequence[Tensor], stages: Sequence[Stage]) -> list[_Data]:
    """A word on work on segments that names no histogram: its earlier records are of segments of like lengths alone."""
    is_segmented = any(s.cut or any(segments(s.expression)) for s in stages)
    return ["several histograms"] if is_segmented and not any(t.histogram for t in inputs) else []


def _folding(stage: Stage) -> Stage:
    """The stage; a fold of one element is that element, unless it is a sum of integers, which nothing else makes."""
    if stage.reduction is None or _long(stage.reduction.axes) or not is_float(stage.dtype):
        return stage
    kept = {a.name: axis_index(a.name) for a in stage.axes} | {a.name: Affine() for a in stage.reduction.axes}
    return replace(stage, reduction=None, expression=at_index(stage.expression, kept))


def _scanning(stage: Stage) -> Stage:
    """The stage; a scan along an axis of one index is none."""
    return replace(stage, scan=None) if stage.scan and stage.extents[stage.scan.axis] == 1 else stage


@dataclass(frozen=True)
class _Ordered:
    """A stage whose axes have places and whose arguments are in order.

    `axes`: its own, and those that it folds. `data`: of parts of its expression, by identity.
    """

    stage: Stage
    expression: Expression
    axes: tuple[list[str], list[str]]
    extents: Mapping[str, int]
    strides: Mapping[str, int]
    data: dict[int, _Data] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate([*self.axes[0], *self.axes[1]])}

    def shape(self, form: Affine) -> tuple[int, ...]:
        """The extents of the axes of a form."""
        return tuple(self.extents[v] for v in self.places if v in dict(form.terms))


def _address(inputs: Mapping[str, Tensor], laid_out: Mapping[str, tuple[int, ...]], access: Access) -> Affine:
    """The address of an access, in elements from the first one of the tensor; of a stage as it is laid out."""
    strides = _strides(inputs, laid_out, access.tensor)
    terms = ((v, c * s) for i, s in zip(access.index, strides, strict=True) for v, c in i.terms)
    offset = sum(i.offset * s for i, s in zip(access.index, strides, strict=True))
    return Affine.of(*terms, offset=offset)


def _strides(inputs: Mapping[str, Tensor], laid_out: Mapping[str, tuple[int, ...]], tensor: str) -> tuple[int, ...]:
    if tensor not in inputs:
        return laid_out[tensor]
    table = inputs[tensor]
    # The stride of a dimension of size 1 means nothing, and yet a read outside may be indexed there.
    return tuple(s if n > 1 else 0 for n, s in zip(table.shape, table.effective_strides, strict=True))


@dataclass
class _Form:
    """The form under construction.

    `read`: the inputs in their order, and their shapes there. `kinds`: kinds of the stages' folds. `loop`: the extents
    of the first reduction's own axes, or of the output's. `laid_out`: of every stage visited, the last one first, the
    stride of each of its dimensions, as if all were in memory; one dictionary, which `arguments` reads, too.
    """

    inputs: Mapping[str, Tensor]
    stages: Mapping[str, Stage]
    read: dict[str, tuple[int, ...]] = field(default_factory=dict)
    loop: tuple[int, ...] = ()
    kinds: list[str] = field(default_factory=list)
    laid_out: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def arguments(self) -> ArgumentOrder:
        # Of what it needs alone: a method would make a cycle, and what the form holds garbage to be collected.
        return ArgumentOrder(self.inputs, self.stages, partial(_address, self.inputs, self.laid_out))

    def of(self, outputs: Mapping[str, tuple[int, ...]]) -> list[_Data]:
        """Every stage that the outputs need, these last, in the opposite order; `outputs` have their strides."""
        self.laid_out.update(outputs)
        backwards: list[_Ordered] = []
        while len(backwards) < len(self.laid_out):
            backwards.append(self._ordered(self.stages[list(self.laid_out)[len(backwards)]]))
        first = next((ordered for ordered in reversed(backwards) if not ordered.stage.is_pointwise), backwards[0])
        self.loop = tuple(first.extents[name] for name in first.axes[0])
        self.kinds = [kind for ordered in backwards if (kind := self._kind(ordered))]
        return [self._line(ordered) for ordered in reversed(backwards)]

    def _kind(self, ordered: _Ordered) -> str:
        """Kind of a stage's fold; `dot` for a product of factors that each have own axes; "" without a fold."""
        stage = ordered.stage
        if stage.reduction is None:
            return "scan" if stage.scan else ""
        match ordered.expression:
            case Apply("mul", (a, b)) if stage.reduction.operator == "sum":
                of_a, of_b = self._moving(a, ordered), self._moving(b, ordered)
                if of_a - of_b and of_b - of_a:
                    return "dot"
        return stage.reduction.operator

    def _moving(self, factor: Expression, ordered: _Ordered) -> set[str]:
        """The axes along which a factor changes."""
        walks = [self._walk(a) for a in distinct_accesses(factor)]
        parts = distinct(factor)
        others = [dict(form.terms) for e in parts if not isinstance(e, Access | Apply) for form in own_forms(e)]
        return {name for found in (*walks, *others) for name in found if name in ordered.places}

    def _ordered(self, stage: Stage) -> _Ordered:
        """The stage in order, with its operands laid out accordingly."""
        for member in self._members(stage):
            self.laid_out.setdefault(member, self.laid_out[stage.name])
        # Stages of one scan have the axes of the one visited first.
        together = [self.stages[name] for name in self.laid_out if name in (stage.scan.members if stage.scan else ())]
        together = together or [stage]
        placed = [self._strides_along(each) for each in together]
        reads = [a for each in together for a in accesses(each.expression)]
        walks = self._walks(reads)
        own = sorted(_long(stage.axes), key=lambda name: -placed[0][name])
        folded = _long(stage.reduction.axes) if stage.reduction else []
        over = sorted(folded, key=lambda name: sorted(-walk.get(name, 0) for walk in walks))
        before = [*self.laid_out]
        self._lay_out(reads, [*own, *over])
        extents = dict(stage.extents)
        scanned = frozenset({stage.scan.axis} if stage.scan else ())
        values = [value for each in together for value in self._values(each)]
        moves = map(self._walk, {id(a): a for a in reads}.values())
        axes = _merged((own, over), [*placed, *moves, *values], extents, scanned)
        colours = {name: str(place) for place, name in enumerate(axes[0])} | {v: f"r{extents[v]}" for v in axes[1]}
        in_order = {each.name: self.arguments.ordered(each.expression, colours) for each in together}
        met = [
            *before,
            *(a.tensor for e in in_order.values() for a in distinct_accesses(e) if a.tensor in self.laid_out),
        ]
        laid_out = {name: self.laid_out[name] for name in dict.fromkeys(met)}
        self.laid_out.clear()
        self.laid_out.update(laid_out)
        return _Ordered(stage, in_order[stage.name], axes, extents, self._strides_along(stage))

    def _strides_along(self, stage: Stage) -> dict[str, int]:
        """Strides along each of its axes."""
        return {a.name: s for a, s in zip(stage.axes, self.laid_out[stage.name], strict=True)}

    def _members(self, stage: Stage) -> list[str]:
        """The members of the stage's scan that it needs, in the order in which its combination reads them."""
        if stage.scan is None:
            return []
        numbers = needed_members(self.arguments.combined(stage.scan), stage.scan.members.index(stage.name))
        return [stage.scan.members[n] for n in numbers]

    def _lay_out(self, reads: Sequence[Access], axes: Sequence[str]) -> None:
        """Lay out the stages that these accesses are the first to read, in the order of these axes."""
        order = {name: place for place, name in enumerate(axes)}
        for access in reads:
            if access.tensor in self.inputs or access.tensor in self.laid_out:
                continue
            shape = self.stages[access.tensor].shape
            walked = [[sorted((order[v], c) for v, c in i.terms if v in order), i.offset] for i in access.index]
            dims = sorted((d for d, size in enumerate(shape) if size > 1), key=lambda d: walked[d])
            steps = dict(zip(dims, dense_strides(tuple(shape[d] for d in dims)), strict=True))
            self.laid_out[access.tensor] = tuple(steps.get(d, 0) for d in range(len(shape)))

    def _line(self, ordered: _Ordered) -> _Data:
        own, over = ordered.axes
        fold = ordered.stage.reduction
        return [
            ordered.stage.dtype,
            [[ordered.extents[name], ordered.strides[name]] for name in own],
            [fold.operator, *(ordered.extents[name] for name in over)] if fold else None,
            self._data(ordered.expression, ordered),
            *self._scanned(ordered),
        ]

    def _scanned(self, ordered: _Ordered) -> list[_Data]:
        """The scan of the stage, with its members in their order."""
        scan, members = ordered.stage.scan, self._members(ordered.stage)
        if scan is None:
            return []
        combine = of_some(self.arguments.combined(scan), [scan.members.index(m) for m in members])
        numbers: list[_Data] = [self._of_stage(m) for m in members]
        return [["scan", ordered.places[scan.axis], int(scan.reverse), numbers, self._combination(combine[0], ordered)]]

    def _combination(self, e: Expression, stage: _Ordered) -> _Data:
        match e:
            case Access(side, (number,)):
                return [side, number.offset]
            case Apply(operator, arguments):
                return [operator, *[self._combination(a, stage) for a in arguments]]
            case _:
                return self._data(e, stage)

    def _of_stage(self, name: str) -> int:
        """The number of a stage in the form, which lists them backwards."""
        return len(self.laid_out) - 1 - list(self.laid_out).index(name)

    def _address(self, access: Access) -> Affine:
        return _address(self.inputs, self.laid_out, access)

    def _strides(self, tensor: str) -> tuple[int, ...]:
        return _strides(self.inputs, self.laid_out, tensor)

    def _walk(self, access: Access) -> dict[str, int]:
        return dict(self._address(access).terms)

    def _walks(self, reads: Iterable[Access]) -> list[dict[str, int]]:
        """Strides of every read of an input, repeated for repeated reads."""
        of_inputs = [a for a in reads if a.tensor in self.inputs]
        known = {id(a): self._walk(a) for a in {id(a): a for a in of_inputs}.values()}
        return [known[id(a)] for a in of_inputs]

    def _data(self, e: Expression, stage: _Ordered) -> _Data:
        found = stage.data.get(id(e))
        if found is None:
            found = stage.data[id(e)] = self._of(e, stage)
        return found

    def _of(self, e: Expression, stage: _Ordered) -> _Data:
        match e:
            case Access(fill=fill) if fill is not None:
                ends = self._guards(e, stage.stage)
                sized = sorted([size, _form(i, stage.places), step] for size, i, step in ends)
                inside = self._of(replace(e, fill=None), stage)
                return ["guarded", inside, constant_text(fill), *sized] if sized else inside
            case Access(tensor) if tensor in self.inputs:
                address = self._address(e)
                return ["input", self._number(tensor, stage.shape(address)), _form(address, stage.places)]
            case Access(tensor):
                return ["stage", self._of_stage(tensor), _form(self._address(e), stage.places)]
            case Gather(tensor, index):
                table = self._table(tensor, index)
                number = self._number(tensor, tuple(size for size, _, _ in table if size > 1))
                return ["gather", number, *(self._dimension(*each, stage) for each in table)]
            case Segment(tensor, position, size):
                return ["segment", self._number(tensor, (size,)), size, self._place(position, stage)]
            case Position(form):
                return ["position", _form(form, stage.places)]
            case Literal(value):
                return ["literal", constant_text(value)]
            case Integer(value):
                return ["integer", value]
            case Apply(operator, arguments):
                return [operator, *[self._data(a, stage) for a in arguments]]

    def _guards(self, access: Access, stage: Stage) -> list[tuple[int, Affine, int]]:
        """The dimensions along which an access of the stage may be outside: sizes, indices, strides."""
        if access.fill is None:
            return []
        shape = (self.inputs if access.tensor in self.inputs else self.stages)[access.tensor].shape
        dimensions = zip(shape, access.index, self._strides(access.tensor), strict=True)
        return [
            (n, i, step) for n, i, step in dimensions if i.minimum(stage.extents) < 0 or i.maximum(stage.extents) >= n
        ]

    def _values(self, stage: Stage) -> list[dict[str, int]]:
        """Strides of values along the axes: of positions, of look-up indices, and of indices that may be outside."""
        found: list[dict[str, int]] = []
        for e in distinct(stage.expression):
            if isinstance(e, Access):
                found += [dict(i.terms) for _, i, _ in self._guards(e, stage)]
            else:
                found += [dict(form.terms) for form in own_forms(e)]
        return found

    def _number(self, tensor: str, shape: tuple[int, ...]) -> int:
        self.read.setdefault(tensor, shape)
        return list(self.read).index(tensor)

    def _table(self, tensor: str, index: Sequence[Affine | Expression]) -> list[tuple[int, int, Affine | Expression]]:
        """Size, stride and index of every dimension of a table, outermost in memory first, looked up ones last.

        Those of size 1, which lie anywhere, are outermost: the last is that of neighbours in memory.
        """
        table = self.inputs[tensor]
        # The stride of a dimension of size 1 is never used.
        strides = [s if n > 1 else 0 for n, s in zip(table.shape, table.effective_strides, strict=True)]
        dimensions = zip(table.shape, strides, index, strict=True)
        return sorted(dimensions, key=lambda each: (each[0] > 1, -each[1], each[0], not isinstance(each[2], Affine)))

    def _dimension(self, size: int, stride: int, at: Affine | Expression, stage: _Ordered) -> _Data:
        return [size, stride, self._place(at, stage)]

    def _place(self, at: Affine | Expression, stage: _Ordered) -> _Data:
        return _form(at, stage.places) if isinstance(at, Affine) else self._data(at, stage)


def _merged(
    axes: tuple[list[str], list[str]],
    walks: Sequence[Mapping[str, int]],
    extents: dict[str, int],
    fixed: frozenset[str],
) -> tuple[list[str], list[str]]:
    """As few of the axes as possible; the inner one of two stands for both, and gets the extent of both.

    Those that are `fixed` stay as they are.
    """
    own, over = axes
    # A stride is 0 along an axis that does not occur.
    whole = [{name: walk.get(name, 0) for name in [*own, *over]} for walk in walks]
    while pair := mergeable((own, over), whole, extents, fixed):
        outer, inner = pair
        extents[inner] *= extents[outer]
        own, over = ([name for name in some if name != outer] for some in (own, over))
        whole = [{name: step for name, step in walk.items() if name != outer} for walk in whole]
    return own, over


def _long(axes: Iterable[Axis]) -> list[str]:
    """The axes with more than one index."""
    return [a.name for a in axes if a.extent > 1]


def _form(form: Affine, places: Mapping[str, int]) -> _Data:
    data: list[_Data] = [form.offset]
    return data + [[place, c] for place, c in sorted((places[v], c) for v, c in form.terms if v in places)]
