"""Axes become one wherever every access allows it (`search_spaces.workloads.axis_merging`).

Before: out[r, c] = f(x[r, c]).  After: out[rc] = f(x[rc]) over buffers of shape (R*C,).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from search_spaces.structure.memory_walks import memory_walks
from search_spaces.workloads.axis_merging import mergeable
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Position
from search_spaces.workloads.expressions.walking import accesses, distinct, gathers, rewritten, variables
from search_spaces.workloads.workload import Axis, Tensor, Workload

_NO_AXIS = ""


def merged_axes(workload: Workload, kept: Collection[str] = ()) -> Workload:
    """Adjacent axes (i, j) become one where every tensor has both, adjacent and in this order, or neither.

    Where a tensor has them, its rows must follow each other in memory without a gap. The axes named in `kept` stay as
    they are. Every stage has the same extent along axes of one name.
    """
    scanned = {s.scan.axis for s in workload.stages if s.scan}
    fixed = frozenset(kept) | _used_as_values(workload) | scanned | {_NO_AXIS}
    while pair := _mergeable(workload, fixed):
        if _at_equal_dimensions(workload, *pair):
            workload = _merged(workload, *pair)
        else:
            fixed |= {pair[0].name}
    return workload


def _mergeable(workload: Workload, fixed: frozenset[str]) -> tuple[Axis, Axis] | None:
    """Two axes that can be one, the outer one first."""
    axes = {x.name: x for s in workload.stages for x in s.loops}
    lists = [[x.name for x in s.axes] for s in workload.stages]
    lists += [[x.name for x in s.reduction.axes] for s in workload.stages if s.reduction]
    lists += [_names(a) for s in workload.stages for a in accesses(s.expression)]
    walks = [{x.name: step for x, step in walk.items()} for walk in memory_walks(workload)]
    found = mergeable(lists, walks, {name: x.extent for name, x in axes.items()}, fixed)
    return (axes[found[0]], axes[found[1]]) if found else None


def _names(access: Access) -> list[str]:
    """The axis that indexes each dimension, if one alone does."""
    return [index.terms[0][0] if index.is_axis else _NO_AXIS for index in access.index]


def _used_as_values(workload: Workload) -> frozenset[str]:
    """The axes that are more than one index of a whole dimension: values, parts of sums, diagonals, what reads outside.

    And those of what is also looked up in: it keeps its dimensions.
    """
    sizes = {t.name: t.shape for t in workload.inputs} | {s.name: s.shape for s in workload.stages}
    looked_up = {g.tensor for s in workload.stages for g in gathers(s.expression)}
    found: set[str] = set()
    for stage in workload.stages:
        for e in distinct(stage.expression):
            if isinstance(e, Gather | Position) or (isinstance(e, Access) and e.tensor in looked_up):
                found |= variables(e)
            elif isinstance(e, Access):
                along = _names(e)
                found |= {name for name in along if along.count(name) > 1}
                for index, size in zip(e.index, sizes[e.tensor], strict=True):
                    names = {v for v, _ in index.terms}
                    within = e.fill is None or all(stage.extents[v] == size for v in names)
                    found |= set() if index.is_axis and within else names
    return frozenset(found)


def _at_equal_dimensions(workload: Workload, first: Axis, second: Axis) -> bool:
    """Whether the axes index the same dimensions of a tensor wherever it is read."""
    places: dict[str, set[tuple[int, ...]]] = {}
    for stage in workload.stages:
        for access in accesses(stage.expression):
            names = _names(access)
            at = tuple(d for d, name in enumerate(names) if name in (first.name, second.name))
            places.setdefault(access.tensor, set()).add(at)
    return all(len(found) == 1 for found in places.values())


def _merged(workload: Workload, first: Axis, second: Axis) -> Workload:
    axis = Axis(f"{first.name}{second.name}", first.extent * second.extent)
    inputs = {t.name: t for t in workload.inputs}

    def rewrite(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or first.name not in _names(e):
            return None
        at = _names(e).index(first.name)
        if e.tensor in inputs:
            inputs[e.tensor] = _without_gap(inputs[e.tensor], at, axis, len(e.index))
        return replace(e, index=(*e.index[:at], axis_index(axis.name), *e.index[at + 2 :]))

    def together(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(axis if x == first else x for x in axes if x != second)

    stages = tuple(
        replace(
            s,
            axes=together(s.axes),
            expression=rewritten(s.expression, rewrite),
            reduction=s.reduction and replace(s.reduction, axes=together(s.reduction.axes)),
        )
        for s in workload.stages
    )
    axes_of = {s.name: s.axes for s in workload.stages}
    placed = zip(workload.output_names, workload.output_strides, strict=True)
    strides = tuple(given and _without_outer(given, axes_of[name], first) for name, given in placed)
    return replace(workload, inputs=tuple(inputs.values()), stages=stages, output_strides=strides)


def _without_outer(strides: tuple[int, ...], axes: tuple[Axis, ...], outer: Axis) -> tuple[int, ...]:
    return tuple(step for step, x in zip(strides, axes, strict=True) if x != outer)


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
