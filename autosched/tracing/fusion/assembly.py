"""One kernel of a traced function: from values to a workload.

Elements are pulled from the output: its element at index (i, j) is an expression of elements of what it is computed
from, and so on down to tensors that are in memory. Views only change the index on the way. What is in memory is read
through a strided view of its own, so that every index of the workload is a plain axis; axes that all tensors walk
alike become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.fusion.axis_merging import merged_axes, reading
from autosched.tracing.values.elements import ROW, Elements, NotOneKernelError, at_its_axes, variables
from autosched.tracing.values.narrowing import narrowed
from autosched.tracing.values.tensor_reads import TensorRead, ViewOf, view_of
from autosched.tracing.values.values import Index, Source, Value
from autosched.tracing.values.views import AxisCutError, NotAffineError
from search_spaces import InputError, Stage, Tensor, Workload
from search_spaces.structure.contraction import contraction
from search_spaces.structure.forms import pointwise_form, row_form
from search_spaces.workloads import expression as ex
from search_spaces.workloads.expression import Access, Affine, Expression, Gather


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
    reached: set[Value] = set()
    while True:
        pulled = Elements(stored, cuts, fused_products)
        try:
            return _Assembly(value, pulled).assembled(name)
        except AxisCutError as cut:
            cuts = {**cuts, cut.axis: cut.inner}
            reached |= pulled.reached
        except NotAffineError:
            error = NotOneKernelError(f"{value.name} is no affine view of what it is computed from")
            raise error.having(reached | pulled.reached) from None
        except NotOneKernelError as error:
            raise error.having(reached | pulled.reached) from None


@dataclass
class _Assembly:
    """The kernel of one output while it is put together."""

    value: Value
    pulled: Elements

    def assembled(self, name: str) -> Assembled:
        index = tuple(self.pulled.dimension(f"d{d}", size) for d, size in enumerate(self.value.shape))
        self.pulled.output_axes = variables(index)
        strides = self._output_strides(index)
        result = _without_rounding(self.pulled.element(self.value, index), self.value.dtype)
        if not self.pulled.operands:
            raise NotOneKernelError(f"{self.value.name} is computed from nothing in memory")
        self._finish(result)
        tensors = {o.name: (o.value.dtype, o.shape) for o in self.pulled.operands.values()}
        self.pulled.stages = narrowed(self.pulled.stages, tensors)
        parts = [e for s in self.pulled.stages for e in ex.walk(s.expression)]
        read = {e.tensor for e in parts if isinstance(e, Access | Gather)}
        operands = sorted((o for o in self.pulled.operands.values() if o.name in read), key=_place)
        if ROW in self.pulled.output_axes:
            operands = [_in_row(o, self.pulled.extents) for o in operands]
            self.pulled.stages = [reading(s, operands) for s in self.pulled.stages]
        axes = self.pulled.stages[-1].axes
        placed = {a.name: strides.get(a.name, 0) for a in axes}
        kept = merged_axes(self.pulled.stages, operands, placed, self.pulled.extents)
        return self._workload(name, *kept)

    def _finish(self, result: Expression) -> None:
        """The last stage: the output's own, unless it is the one before it as it stands."""
        if not self.pulled.output_axes:
            self.pulled.extents[ROW] = 1
            self.pulled.output_axes = (ROW,)
        axes = self.pulled.ordered(self.pulled.output_axes)
        last = self.pulled.stages[-1] if self.pulled.stages else None
        if last is not None and _is_of(result, last) and [a.name for a in last.axes] == list(axes):
            self.pulled.stages[-1] = replace(last, dtype=self.value.dtype)
        else:
            self.pulled.stages.append(Stage("out", self.pulled.axes(axes), result, None, self.value.dtype))

    def _output_strides(self, index: Index) -> dict[str, int]:
        strides: dict[str, int] = {}
        step = 1
        for at, size in zip(reversed(index), reversed(self.value.shape), strict=True):
            assert isinstance(at, Affine)
            strides |= {v: c * step for v, c in at.terms}
            step *= size
        return strides

    def _workload(
        self, name: str, stages: Sequence[Stage], operands: Sequence[TensorRead], placed: Mapping[str, int]
    ) -> Assembled:
        extents = {a.name: a.extent for s in stages for a in (*s.axes, *(s.reduction.axes if s.reduction else ()))}
        views = tuple(view_of(o, extents) for o in operands)
        inputs = enumerate(zip(operands, views, strict=True))
        try:
            workload = Workload(
                name,
                tuple(Tensor(f"x{n}", v.shape, o.value.dtype, v.strides) for n, (o, v) in inputs),
                _with_common_names(stages, operands),
                self.pulled.precision,
                output_strides=(tuple(placed[a.name] or 1 for a in stages[-1].axes),),
            )
        except InputError as error:
            raise NotOneKernelError(str(error)) from None
        by_rows = not self.pulled.multiplies and (row_form(workload) or pointwise_form(workload))
        product = contraction(workload)
        if not by_rows and not (product and (product.is_plain or self.pulled.fused_products)):
            raise NotOneKernelError(f"no sketch computes {workload}")
        return Assembled(self.value, workload, views)


def _in_row(operand: TensorRead, extents: Mapping[str, int]) -> TensorRead:
    """The operand with the axis of the only row, if it has axes at all."""
    if operand.looked_up or not operand.strides:
        return operand
    axis, stride = operand.strides[0]
    return replace(operand, strides=((ROW, stride * extents[axis]), *operand.strides))


def _with_common_names(stages: Sequence[Stage], operands: Sequence[TensorRead]) -> tuple[Stage, ...]:
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


def _place(operand: TensorRead) -> int:
    """Arguments of the function come in its order, then everything else as it was met."""
    value = operand.value
    return value.position if isinstance(value, Source) and value.position is not None else 2**31


def _is_of(expression: Expression, stage: Stage) -> bool:
    """Whether it is what the stage computes, as it stands."""
    own = at_its_axes(stage)
    return expression in (own, ex.call("to_integer", own))


def _without_rounding(expression: Expression, dtype: str) -> Expression:
    """The expression without a last rounding that storing it does anyway."""
    if isinstance(expression, ex.Apply) and {**ex.ROUNDINGS, **ex.WRAPPINGS}.get(expression.operator) == dtype:
        return expression.arguments[0]
    return expression
