"""Reductions and scans on the way down from an output: their axes and their stages."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from autosched.tracing.values.positions import is_inside
from autosched.tracing.values.pulled import ROW, NotOneKernelError, Pulled, Pulling, axes_in
from autosched.tracing.values.reads import at_its_axes
from autosched.tracing.values.scanned import along
from autosched.tracing.values.values import Index, Pointwise, Reduced, Scanned, Value, View, as_read
from autosched.tracing.values.views import Windows, reshaped
from search_spaces import Reduction, Stage
from search_spaces.scheduling import MAX_WINDOW
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.scans import needed_members, unchanging


def folded(pulled: Pulled, value: Reduced, index: Index) -> Pulling:
    """A reduction: a stage over the axes of its index."""
    sizes = [value.argument.shape[d] for d in value.dims]
    windowed = math.prod(sizes) <= MAX_WINDOW and _is_windowed(value.argument)
    rows = axes_in(index)
    if windowed and len({a for group in pulled.columns for a in group} & {*rows}) > 1:
        # Its elements would be loaded one by one in nested loops: 30 times as long as a pooled tensor in memory takes.
        raise NotOneKernelError(f"{value.name} is over windows, and reduced over several axes", value)
    columns = _along_window(pulled, sizes) if windowed else _along_columns(pulled, sizes, rows)
    whole: list[Affine | Expression] = list(index)
    for d, at in zip(value.dims, columns, strict=True):
        whole.insert(d, at)
    body = yield value.argument, tuple(whole)
    over = axes_in(columns)
    if not over:
        return body
    if pulled.fusing.chained:
        rows = (*rows, *(a for a in pulled.units(sorted(variables(body))) if a not in (*rows, *over)))
    rows = pulled.like_output(rows)
    if not rows:
        pulled.extend(ROW, 1)
        rows = (ROW,)
        pulled.output_axes = (ROW, *(a for a in pulled.output_axes if a != ROW))
    reduction = Reduction(value.operator, pulled.axes(over))
    dtype = "int64" if is_integral(body) else "float32"
    return pulled.access(Stage(value.name, pulled.axes(rows), body, reduction, dtype), value)


def _along_window(pulled: Pulled, sizes: Sequence[int]) -> Index:
    """The index along window dimensions, by new axes."""
    axes = [f"{pulled.prefix}w{len(pulled.reads.windows) + n}" for n in range(len(sizes))]
    pulled.reads.windows |= {*axes}
    return tuple(pulled.dimension(axis, size) for axis, size in zip(axes, sizes, strict=True))


def _along_columns(pulled: Pulled, sizes: Sequence[int], rows: Sequence[str]) -> Index:
    """The index along reduced dimensions of these sizes, for rows with these axes."""
    count = math.prod(sizes)
    if count == 1:
        return tuple(Affine() for _ in sizes)
    for axes in _known_columns(pulled, rows):
        extents = [pulled.extents[a] for a in axes]
        if axes and math.prod(extents) == count:
            if axes not in pulled.columns:
                pulled.columns.append(axes)
            return reshaped([axis_index(a) for a in axes], extents, sizes, pulled.extents)
    index = tuple(map(pulled.folded_dimension, sizes))
    pulled.columns.append(axes_in(index))
    return index


def _known_columns(pulled: Pulled, rows: Sequence[str]) -> list[tuple[str, ...]]:
    """Axes that a reduction of these rows may reuse: in chains, those that a product already sums over come first."""
    free = tuple(a for a in pulled.output_axes if a not in rows and a != ROW)
    parts = [free[a:b] for b in range(len(free), 0, -1) for a in range(b)]
    reduced = [c for c in (*reversed(pulled.contracted), *pulled.columns) if not set(c) & set(rows)]
    return [*reduced, *parts] if pulled.fusing.chained else [*parts, *reduced]


def scanned(pulled: Pulled, value: Scanned, index: Index) -> Pulling:
    """A scan: a stage over the axes of its index, and one for each value that it is combined with."""
    operation, size = value.operation, value.shape[value.operation.dim]
    way = along(operation, index, size, pulled.extents)
    if way is None:
        raise NotOneKernelError(f"{value.name} is a scan, and is not read along its own axis", value)
    bodies: dict[int, Expression] = {}
    for number in needed_members(operation.combine, value.output):
        body = yield operation.elements[number], index
        outside = is_inside(index[operation.dim], size, pulled.extents)
        neutral = unchanging(operation.combine, is_integral(body))
        if outside and neutral is None:
            raise NotOneKernelError(f"{value.name} is a scan, and is read outside of it", value)
        if outside and neutral is not None:
            body = ex.call("where", functools.reduce(ex.mul, outside), body, neutral)
        bodies[number] = body
    axes = pulled.axes(pulled.like_output(axes_in(index)))
    if not any(way[0] in group for group in pulled.columns):
        pulled.columns.append((way[0],))
    pulled.scans.add(operation, index, bodies, axes, way)
    name = pulled.scans.known[operation, index][value.output]
    stage = next(s for s in pulled.stages if s.name == name)
    return as_read(at_its_axes(stage), value.dtype)


def _is_windowed(value: Value) -> bool:
    """True for a window view, or a pointwise function of one such view."""
    while isinstance(value, View) or (isinstance(value, Pointwise) and len(value.arguments) == 1):
        if isinstance(value, View) and isinstance(value.kind, Windows):
            return True
        (value,) = value.operands
    return False
