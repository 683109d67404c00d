"""The structure of a workload that sketch rules match on beside contractions: row reduction, pointwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from search_spaces.structure.contraction import matrix_product
from search_spaces.structure.stages import is_plain, with_axes_named
from search_spaces.workloads import expression as ex
from search_spaces.workloads.axis_merging import fixed_axes, mergeable
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expression import Access, Apply, Expression
from search_spaces.workloads.workload import Axis, Stage, Tensor, Workload


@dataclass(frozen=True)
class RowForm:
    """Reductions over one axis `column`, for every point of `rows`, with pointwise stages before, between, after.

    Tiles hold several positions of the last of the rows. `outer`: neighbours in memory are neighbours along that axis,
    not along the column, as where each column of a row-major matrix is summed. `even`: they are so in every tensor.
    """

    rows: tuple[Axis, ...]
    column: Axis
    reductions: tuple[Stage, ...]
    outer: bool = False
    even: bool = True

    @property
    def tiled_row(self) -> Axis:
        return self.rows[-1]


def row_form(workload: Workload) -> tuple[Workload, RowForm] | None:
    """The workload as reductions over one axis of its rows, or None when it is something else.

    The workload comes back with its axes called r (r0, r1 … when there are several) and c, as they are in the form.
    """
    found = _row_form(workload)
    if found is None:
        return None
    names = {x.name: "r" if len(found.rows) == 1 else f"r{i}" for i, x in enumerate(found.rows)}
    renamed = with_axes_named(workload, names | {found.column.name: "c"})
    form = _row_form(renamed)
    assert form is not None
    return renamed, form


def _row_form(workload: Workload) -> RowForm | None:
    reductions = tuple(s for s in workload.stages if s.reduction)
    if (
        not reductions
        or not is_plain(workload)
        or matrix_product(workload)
        # Rows are reduced in float32, which would round sums of integers.
        or any(s.is_contraction and is_integer(s.dtype) for s in reductions)
    ):
        return None
    first = reductions[0]
    assert first.reduction is not None
    if not first.axes or len(first.reduction.axes) != 1:
        return None
    rows, column = first.axes, first.reduction.axes[0]
    own = {*rows, column}
    for stage in workload.stages:
        reduces_rows = stage.reduction is not None and stage.reduction.axes == (column,) and set(stage.axes) == {*rows}
        maps_rows = stage.reduction is None and (
            set(stage.axes) in ({*rows}, own) if stage is workload.stages[-1] else own.issuperset(stage.axes)
        )
        if not (reduces_rows or maps_rows):
            return None
    names = {x.name for x in own}
    if any(ex.variables(s.expression) - names for s in workload.stages):
        return None
    strides = _strides(workload)
    inner = _innermost([s for s in strides if column in s], column)
    outer = inner != column
    if outer:
        rows = tuple(sorted(rows, key=lambda x: x == inner))
    even = all(s.get(inner, 1) == 1 for s in strides)
    return RowForm(rows, column, reductions, outer, even)


def _strides(workload: Workload) -> list[dict[Axis, int]]:
    """For everything that is read from memory or written to it: how far apart neighbours along its axes are."""
    inputs = {t.name: t for t in workload.inputs}
    found = []
    for stage in workload.stages:
        extents = stage.extents
        for access in ex.accesses(stage.expression):
            if access.tensor in inputs:
                axes = [Axis(i.terms[0][0], extents[i.terms[0][0]]) for i in access.index]
                found.append(dict(zip(axes, inputs[access.tensor].effective_strides, strict=True)))
    return [*found, dict(zip(workload.stages[-1].axes, workload.output.effective_strides, strict=True))]


def _innermost(strides: list[dict[Axis, int]], column: Axis) -> Axis:
    """The axis along which what has most elements lies closest together; the column where there is a choice."""
    if not strides:
        return column
    largest = max(strides, key=lambda s: math.prod(x.extent for x in s))
    moving = {x: step for x, step in largest.items() if step and x.extent > 1}
    return min(moving, key=lambda x: (moving[x], x != column), default=column)


def pointwise_form(workload: Workload) -> Workload | None:
    """The workload with axes merged as far as its accesses allow, or None when a stage reduces."""
    if not workload.stages[-1].axes:
        return None
    if any(s.reduction or s.axes != workload.stages[-1].axes for s in workload.stages) or not is_plain(workload):
        return None
    return _merge_axes(workload)


def _merge_axes(workload: Workload) -> Workload:
    """Adjacent axes (i, j) become one where every tensor has both, adjacent and in this order, or neither.

    Where a tensor has them, its rows must follow each other in memory without a gap.

    Before: out[r, c] = f(x[r, c]).  After: out[r_c] = f(x[r_c]) over buffers of shape (R*C,).
    """
    while pair := _mergeable(workload):
        workload = _merged(workload, *pair)
    return workload


def _mergeable(workload: Workload) -> tuple[Axis, Axis] | None:
    """Two axes that can be one, the outer one first."""
    axes = {x.name: x for x in workload.stages[-1].axes}
    indices = [[i.terms[0][0] for i in a.index] for s in workload.stages for a in ex.accesses(s.expression)]
    walks = [{x.name: step for x, step in strides.items()} for strides in _strides(workload)]
    extents = {name: x.extent for name, x in axes.items()}
    found = mergeable([[*axes], *indices], walks, extents, fixed_axes(s.expression for s in workload.stages))
    return (axes[found[0]], axes[found[1]]) if found else None


def _merged(workload: Workload, first: Axis, second: Axis) -> Workload:
    axis = Axis(f"{first.name}{second.name}", first.extent * second.extent)
    inputs = {t.name: t for t in workload.inputs}

    def rewrite(e: Expression) -> Expression:
        match e:
            case Access(tensor, index):
                at = _dimension(e, first)
                if at is None:
                    return e
                if tensor in inputs:
                    inputs[tensor] = _without_gap(inputs[tensor], at, axis, len(index))
                return Access(tensor, (*index[:at], ex.axis_index(axis.name), *index[at + 2 :]))
            case Apply(operator, arguments):
                return Apply(operator, tuple(map(rewrite, arguments)))
            case _:
                return e

    at = workload.stages[-1].axes.index(first)
    stages = tuple(
        replace(s, axes=(*s.axes[:at], axis, *s.axes[at + 2 :]), expression=rewrite(s.expression))
        for s in workload.stages
    )
    (strides,) = workload.output_strides
    return replace(
        workload,
        inputs=tuple(inputs.values()),
        stages=stages,
        output_strides=(None if strides is None else (*strides[:at], *strides[at + 1 :]),),
    )


def _dimension(access: Access, axis: Axis) -> int | None:
    """Which dimension of the tensor the axis indexes."""
    names = [i.terms[0][0] for i in access.index]
    return names.index(axis.name) if axis.name in names else None


def _without_gap(tensor: Tensor, at: int, axis: Axis, dimensions: int) -> Tensor:
    """The tensor with its dimensions `at` and the next as one; unless that was done at another access to it."""
    if len(tensor.shape) < dimensions:
        return tensor
    strides = tensor.strides
    return replace(
        tensor,
        shape=(*tensor.shape[:at], axis.extent, *tensor.shape[at + 2 :]),
        strides=None if strides is None else (*strides[:at], *strides[at + 1 :]),
    )
