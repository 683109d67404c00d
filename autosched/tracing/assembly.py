"""One kernel of a traced function: from values to a workload.

Elements are pulled from the output: its element at index (i, j) is an expression of elements of what it is computed
from, and so on down to tensors that are in memory. Views only change the index on the way. What is in memory is read
through a strided view of its own, so that every index of the workload is a plain axis; axes that all tensors walk
alike become one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from autosched.tracing.axis_merging import Operand, merged_axes, reading
from autosched.tracing.values import Counted, Index, LookedUp, Pointwise, Product, Reduced, Source, Value, View
from autosched.tracing.view_rules import AxisCutError, NotAffineError, expanded, reshaped, scaled
from search_spaces import Axis, InputError, Reduction, Stage, Tensor, Workload
from search_spaces import expression as ex
from search_spaces.expression import Access, Affine, Expression, Gather, Literal, Position
from search_spaces.fused_contraction import fused_contraction_form
from search_spaces.structure import contraction_form, pointwise_form, row_form

# The axis of a result without dimensions.
_ROW = "row"
# Parts that the expressions of one kernel may have. More takes longer to compile than it saves.
_MOST_PARTS = 3000


class NotOneKernelError(Exception):
    """A value and what it is computed from do not fit one kernel; with `stored` in memory they might."""

    def __init__(self, reason: str, stored: Value | None = None) -> None:
        super().__init__(reason)
        self.stored = stored


@dataclass(frozen=True)
class ViewOf:
    """A strided view of a value in memory, in elements: what one input of a workload is given."""

    value: Value
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Assembled:
    """The workload that computes `value`, which it writes densely, and what its inputs are given."""

    value: Value
    workload: Workload
    inputs: tuple[ViewOf, ...]


def assemble(value: Value, stored: Mapping[Value, tuple[int, ...]], name: str, fused_products: bool) -> Assembled:
    """The workload that computes `value` from the values that are in memory; `stored` has their strides.

    `fused_products`: what is multiplied may be computed on the way, and there may be several products.

    Raises:
        NotOneKernelError: no sketch can compute it like that.
    """
    cuts: dict[str, int] = {}
    while True:
        try:
            return _Assembly(value, stored, cuts, fused_products).assembled(name)
        except AxisCutError as cut:
            cuts = {**cuts, cut.axis: cut.inner}
        except NotAffineError:
            raise NotOneKernelError(f"{value.name} is no affine view of what it is computed from") from None
        except RecursionError:
            raise NotOneKernelError(f"{value.name} is the end of too long a chain") from None


@dataclass
class _Assembly:
    """What is known while the elements of one output are pulled.

    `columns`: the index along what is reduced, whichever dimensions these are; there is one in a kernel.
    """

    value: Value
    stored: Mapping[Value, tuple[int, ...]]
    cuts: Mapping[str, int]
    fused_products: bool
    extents: dict[str, int] = field(default_factory=dict)
    output_axes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    operands: dict[tuple[Value, int, tuple[tuple[str, int], ...]], Operand] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    known: dict[tuple[Value, Index], Expression] = field(default_factory=dict)
    sizes: dict[Expression, int] = field(default_factory=dict)
    precision: str = "ieee"
    multiplies: bool = False

    def assembled(self, name: str) -> Assembled:
        index = tuple(self._dimension(f"d{d}", size) for d, size in enumerate(self.value.shape))
        self.output_axes = _variables(index)
        strides = self._output_strides(index)
        result = _without_rounding(self._element(self.value, index), self.value.dtype)
        if not self.operands:
            raise NotOneKernelError(f"{self.value.name} is computed from nothing in memory")
        self._finish(result)
        parts = [e for s in self.stages for e in ex.walk(s.expression)]
        read = {e.tensor for e in parts if isinstance(e, Access | Gather)}
        operands = sorted((o for o in self.operands.values() if o.name in read), key=_place)
        if _ROW in self.output_axes:
            operands = [_in_row(o, self.extents) for o in operands]
            self.stages = [reading(s, operands) for s in self.stages]
        axes = self.stages[-1].axes
        placed = {a.name: strides.get(a.name, 0) for a in axes}
        kept = merged_axes(self.stages, operands, placed, self.extents)
        return self._workload(name, *kept)

    def _finish(self, result: Expression) -> None:
        """The last stage: the output's own, unless it is the one before it as it stands."""
        if not self.output_axes:
            self.extents[_ROW] = 1
            self.output_axes = (_ROW,)
        axes = self._ordered(self.output_axes)
        last = self.stages[-1] if self.stages else None
        if last is not None and result == _at_its_axes(last) and [a.name for a in last.axes] == list(axes):
            self.stages[-1] = replace(last, dtype=self.value.dtype)
        else:
            self.stages.append(Stage("out", self._axes(axes), result, None, self.value.dtype))

    # Axes

    def _dimension(self, axis: str, size: int) -> Affine:
        """The index along a dimension: an axis, or the axes it is cut into; 0 where there is only one index."""
        if size == 1:
            return Affine()
        inner = self.cuts.get(axis)
        if inner is not None:
            return scaled(self._dimension(f"{axis}o", size // inner), inner) + self._dimension(f"{axis}i", inner)
        self.extents[axis] = size
        return ex.axis_index(axis)

    def _unit(self, at: Affine | Expression, axis: str) -> Affine:
        """The index, with an axis of extent 1 where it has none."""
        if not isinstance(at, Affine):
            raise NotOneKernelError("an element of a product is looked up", self.value)
        if at.terms:
            return at
        self.extents[axis] = 1
        return at + ex.axis_index(axis)

    def _axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        return tuple(Axis(n, self.extents[n]) for n in names)

    def _ordered(self, names: Sequence[str]) -> tuple[str, ...]:
        """Rows before columns."""
        return (*(n for n in names if n not in self.columns), *(n for n in self.columns if n in names))

    def _output_strides(self, index: Index) -> dict[str, int]:
        strides: dict[str, int] = {}
        step = 1
        for at, size in zip(reversed(index), reversed(self.value.shape), strict=True):
            assert isinstance(at, Affine)
            strides |= {v: c * step for v, c in at.terms}
            step *= size
        return strides

    # Elements

    def _element(self, value: Value, index: Index) -> Expression:
        """The element of the value at the index, as an expression of what is in memory."""
        key = (value, index)
        if key not in self.known:
            made = self._made(value, index)
            if sum(1 for _ in ex.walk(made)) > _MOST_PARTS:
                raise NotOneKernelError(f"the expression of {value.name} has over {_MOST_PARTS} parts", value)
            self.known[key] = made
        return self.known[key]

    def _made(self, value: Value, index: Index) -> Expression:
        if value in self.stored:
            return self._read(value, value.shape, self.stored[value], 0, index)
        match value:
            case View():
                return self._viewed(value, index)
            case Pointwise(arguments=arguments, combine=combine):
                return combine(*(self._element(a, expanded(index, a.shape)) for a in arguments))
            case Counted(start=start, step=step):
                return _as_value(index[0], step, start)
            case Reduced():
                return self._folded(value, index)
            case Product():
                return self._multiplied(value, index)
            case LookedUp(table=table, index=chosen):
                return self._element(table, tuple(self._chosen(i, index) for i in chosen))
            case _:
                raise NotOneKernelError(f"{value.name} is left to PyTorch", value)

    def _chosen(self, i: Value | int, index: Index) -> Affine | Expression:
        return index[i] if isinstance(i, int) else self._element(i, expanded(index, i.shape))

    def _viewed(self, view: View, index: Index) -> Expression:
        views = chain(view, self.stored)
        base = views[-1].argument
        if base in self.stored:
            lies = placed(views, self.stored[base])
            if lies is not None:
                strides, offset = lies
                return self._read(base, view.shape, strides, offset, index)
        try:
            return self._element(view.argument, view.source_index(index, self.extents))
        except NotAffineError:
            stored = None if base in self.stored else base
            raise NotOneKernelError(f"{view.name} is no affine view", stored) from None

    def _read(
        self, value: Value, shape: Sequence[int], strides: Sequence[int], offset: int, index: Index
    ) -> Expression:
        """An element of a tensor in memory."""
        address = Affine(offset=offset)
        for at, stride in zip(index, strides, strict=True):
            if not isinstance(at, Affine):
                return self._gathered(value, shape, strides, offset, index)
            address += scaled(at, stride)
        by_stride = tuple(sorted(address.terms, key=lambda term: -term[1]))
        if any(stride < 0 for _, stride in by_stride):
            raise NotOneKernelError(f"{value.name} is read backwards")
        operand = self._operand(Operand(value.name, value, address.offset, by_stride))
        return _at_its_axes(operand)

    def _gathered(
        self, value: Value, shape: Sequence[int], strides: Sequence[int], offset: int, index: Index
    ) -> Expression:
        """An element at indices that are data: the tensor is an input with its own dimensions."""
        named = tuple((f"dimension{d}", stride) for d, stride in enumerate(strides))
        operand = self._operand(Operand(value.name, value, offset, named, tuple(shape)))
        plain = (isinstance(i, Affine) and i.offset == 0 and [c for _, c in i.terms] == [1] for i in index)
        return Gather(operand.name, tuple(i if p else _as_value(i) for i, p in zip(index, plain, strict=True)))

    def _operand(self, wanted: Operand) -> Operand:
        key = (wanted.value, wanted.offset, wanted.strides)
        if key not in self.operands:
            taken = {o.name for o in self.operands.values()} | {"out"}
            name = wanted.name
            while name in taken:
                name += "_"
            self.operands[key] = replace(wanted, name=name)
        return self.operands[key]

    # Stages

    def _folded(self, value: Reduced, index: Index) -> Expression:
        """A reduction: a stage over the axes of its index."""
        rows = _variables(index)
        sizes = [value.argument.shape[d] for d in value.dims]
        columns = self._along_columns(sizes, rows)
        whole: list[Affine | Expression] = list(index)
        for d, at in zip(value.dims, columns, strict=True):
            whole.insert(d, at)
        body = self._element(value.argument, tuple(whole))
        folded = _variables(columns)
        if not folded:
            return body
        rows = tuple(a for a in self.output_axes if a in rows) + tuple(a for a in rows if a not in self.output_axes)
        if not rows:
            self.extents[_ROW] = 1
            rows = (_ROW,)
            self.output_axes = (_ROW, *(a for a in self.output_axes if a != _ROW))
        reduction = Reduction(value.operator, self._axes(folded))
        stage = Stage(self._stage_name(value.name), self._axes(rows), body, reduction)
        return self._access(stage)

    def _along_columns(self, sizes: Sequence[int], rows: Sequence[str]) -> Index:
        """The index along reduced dimensions of these sizes, for rows with these axes."""
        count = math.prod(sizes)
        if count == 1:
            return tuple(Affine() for _ in sizes)
        free = [a for a in self.output_axes if a not in rows and a != _ROW]
        shared = (tuple(free), self.columns)
        for axes in shared:
            extents = [self.extents[a] for a in axes]
            if axes and math.prod(extents) == count:
                self.columns = tuple(axes)
                return reshaped([ex.axis_index(a) for a in axes], extents, sizes, self.extents)
        if self.columns:
            raise NotOneKernelError("it reduces over two different extents")
        index = tuple(self._dimension(f"r{n}", size) for n, size in enumerate(sizes))
        self.columns = _variables(index)
        return index

    def _multiplied(self, value: Product, index: Index) -> Expression:
        """A contraction: a stage with the axes of the product, of which there are at least m and n."""
        *batch, m, n = index
        m, n = self._unit(m, "m"), self._unit(n, "n")
        if self.multiplies and not (self.fused_products and value.a.shape[-1] == self.extents.get("k")):
            raise NotOneKernelError("there are several products", value)
        k = self._unit(self._dimension("k", value.a.shape[-1]), "k")
        own = _variables((*batch, m, n))
        if self.multiplies and own != self.output_axes:
            raise NotOneKernelError("there are products over different axes", value)
        a = self._factor(value.a, (*batch, m, k))
        b = self._factor(value.b, (*batch, k, n))
        if not set(self.output_axes) <= set(own):
            raise NotOneKernelError("a product is read at other axes than it has", value)
        # Rows of the output are what lies further apart.
        self.output_axes = own
        self.precision, self.multiplies = value.precision, True
        stage = Stage(
            self._stage_name(value.name), self._axes(own), ex.mul(a, b), Reduction("sum", self._axes(_variables((k,))))
        )
        return self._access(stage)

    def _factor(self, value: Value, index: Index) -> Expression:
        """What a product multiplies: an element in memory, by every axis of its index, if with a stride of 0."""
        read = self._element(value, index)
        operand = next((o for o in self.operands.values() if read == _at_its_axes(o)), None)
        if operand is None and self.fused_products and value.dtype != "float32":
            return read
        if operand is None:
            views = chain(value, self.stored) if isinstance(value, View) else []
            base = views[-1].argument if views else value
            raise NotOneKernelError(f"{value.name} is multiplied", value if base in self.stored else base)
        if operand.value.dtype != value.dtype:
            raise NotOneKernelError(f"{value.name} is multiplied, and is {operand.value.dtype} in memory", value)
        steps = [s for v, s in operand.strides if self.extents[v] > 1]
        if steps and min(steps) > 1 and isinstance(value, View):
            # Elements that all lie apart are better copied together once than read by every tile.
            raise NotOneKernelError(f"{value.name} is multiplied, and none of its elements are neighbours", value)
        given = dict(operand.strides)
        missing = tuple((a, 0) for a in _variables(index) if a not in given)
        if not missing:
            return read
        operand = self._operand(replace(operand, strides=(*missing, *operand.strides)))
        return _at_its_axes(operand)

    def _stage_name(self, wanted: str) -> str:
        taken = {s.name for s in self.stages} | {o.name for o in self.operands.values()} | {"out"}
        while wanted in taken:
            wanted += "_"
        return wanted

    def _access(self, stage: Stage) -> Expression:
        self.stages.append(stage)
        return _at_its_axes(stage)

    # The workload

    def _workload(
        self, name: str, stages: Sequence[Stage], operands: Sequence[Operand], placed: Mapping[str, int]
    ) -> Assembled:
        extents = {a.name: a.extent for s in stages for a in (*s.axes, *(s.reduction.axes if s.reduction else ()))}
        views = tuple(_view(o, extents) for o in operands)
        inputs = enumerate(zip(operands, views, strict=True))
        try:
            workload = Workload(
                name,
                tuple(Tensor(f"x{n}", v.shape, o.value.dtype, v.strides) for n, (o, v) in inputs),
                _with_common_names(stages, operands),
                self.precision,
                output_strides=tuple(placed[a.name] or 1 for a in stages[-1].axes),
            )
        except InputError as error:
            raise NotOneKernelError(str(error)) from None
        by_rows = not self.multiplies and (row_form(workload) or pointwise_form(workload))
        fused = self.fused_products and fused_contraction_form(workload)
        matched = by_rows or contraction_form(workload) or fused
        if not matched:
            raise NotOneKernelError(f"no sketch computes {workload}")
        return Assembled(self.value, workload, views)


def _in_row(operand: Operand, extents: Mapping[str, int]) -> Operand:
    """The operand with the axis of the only row, if it has axes at all."""
    if operand.looked_up or not operand.strides:
        return operand
    axis, stride = operand.strides[0]
    return replace(operand, strides=((_ROW, stride * extents[axis]), *operand.strides))


def _with_common_names(stages: Sequence[Stage], operands: Sequence[Operand]) -> tuple[Stage, ...]:
    """The stages with names that equal kernels share, whatever function they are of: x0, x1 … for what is read."""
    names = {o.name: f"x{n}" for n, o in enumerate(operands)}
    names |= {s.name: f"s{n}" for n, s in enumerate(stages[:-1])} | {stages[-1].name: "out"}

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor, index):
                return Access(names[tensor], index)
            case Gather(tensor, index):
                renamed = (i if isinstance(i, Affine) else ex.rewritten(i, change) for i in index)
                return Gather(names[tensor], tuple(renamed))
            case _:
                return None

    return tuple(replace(s, name=names[s.name], expression=ex.rewritten(s.expression, change)) for s in stages)


def _place(operand: Operand) -> int:
    """Arguments of the function come in its order, then everything else as it was met."""
    value = operand.value
    return value.position if isinstance(value, Source) and value.position is not None else 2**31


def _as_value(at: Affine | Expression, step: int = 1, start: int = 0) -> Expression:
    """`start + step * at`, as a value."""
    if isinstance(at, Affine):
        form = scaled(at, step) + Affine(offset=start)
        return Position(form) if form.terms else Literal(float(form.offset))
    scale = at if step == 1 else ex.mul(at, Literal(float(step)))
    return scale if start == 0 else ex.add(scale, Literal(float(start)))


def _at_its_axes(tensor: Stage | Operand) -> Access:
    names = [a.name for a in tensor.axes] if isinstance(tensor, Stage) else [v for v, _ in tensor.strides]
    return Access(tensor.name, tuple(map(ex.axis_index, names)))


def _variables(index: Index) -> tuple[str, ...]:
    """The axes of the index, in order."""
    forms = (at for at in index if isinstance(at, Affine))
    found = [v for form in forms for v, _ in sorted(form.terms, key=lambda term: -term[1])]
    inner = [v for at in index if not isinstance(at, Affine) for v in sorted(ex.variables(at))]
    return tuple(dict.fromkeys([*found, *inner]))


def _without_rounding(expression: Expression, dtype: str) -> Expression:
    """The expression without a last rounding that storing it does anyway."""
    if isinstance(expression, ex.Apply) and ex.ROUNDINGS.get(expression.operator) == dtype:
        return expression.arguments[0]
    return expression


def chain(view: View, stored: Mapping[Value, tuple[int, ...]]) -> list[View]:
    """The view and those it is a view of, down to what is in memory or is none."""
    views = [view]
    while isinstance(views[-1].argument, View) and views[-1].argument not in stored:
        views.append(views[-1].argument)
    return views


def placed(views: Sequence[View], strides: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """Strides and offset of the first view of a tensor in memory; None where no strides make it."""
    tensor = torch.empty_strided(views[-1].argument.shape, strides, device="meta")
    try:
        for view in reversed(views):
            tensor = view.apply(tensor)
    except RuntimeError:
        return None
    return tuple(tensor.stride()), int(tensor.storage_offset())


def _view(operand: Operand, extents: Mapping[str, int]) -> ViewOf:
    shape = operand.shape or tuple(extents[v] for v, _ in operand.strides)
    return ViewOf(operand.value, operand.offset, shape, tuple(s for _, s in operand.strides))
