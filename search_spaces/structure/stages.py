"""Inlining of stages, and the indices and axes of a workload's stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Segment
from search_spaces.workloads.expressions.walking import accesses, reindexed, rewritten, walk
from search_spaces.workloads.workload import Axis, Stage, Workload


def inline(expression: Expression, stages: dict[str, Stage]) -> Expression:
    """The expression with every access to one of `stages` replaced by that stage's expression.

    Stages are accessed at their own axes here; a stage that reduces cannot be inlined.
    """

    def inlined(e: Expression) -> Expression | None:
        own = isinstance(e, Access) and e.tensor in stages
        return inline(stages[e.tensor].expression, stages) if own and isinstance(e, Access) else None

    return rewritten(expression, inlined)


def has_plain_indices(workload: Workload) -> bool:
    """True if every index is a plain axis, as long as the dimension, and stages are read at their own axes.

    Elements beyond the last index of a longer dimension would be read as padding.
    """
    stages = {s.name: s for s in workload.stages}
    shapes = {t.name: t.shape for t in workload.inputs} | {s.name: s.shape for s in workload.stages}
    for stage in workload.stages:
        forms = (i for e in walk(stage.expression) if isinstance(e, Access | Gather) for i in e.index)
        if any(isinstance(i, Affine) and not i.is_axis for i in forms):
            return False
        if any(a.fill is not None for a in accesses(stage.expression)):
            return False
        for access in accesses(stage.expression):
            names = [i.axis for i in access.index]
            if len(set(names)) != len(names) or tuple(stage.extents[n] for n in names) != shapes[access.tensor]:
                return False
            if access.tensor in stages and names != [a.name for a in stages[access.tensor].axes]:
                return False
    return True


def with_axes_named(workload: Workload, names: dict[str, str]) -> Workload:
    """The workload with other names for its axes."""

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(names[x.name], x.extent) for x in given)

    forms = {old: axis_index(new) for old, new in names.items()}
    stages = tuple(
        replace(
            s,
            axes=axes(s.axes),
            expression=reindexed(s.expression, lambda index: index.substituted(forms)),
            reduction=replace(s.reduction, axes=axes(s.reduction.axes)) if s.reduction else None,
            scan=replace(s.scan, axis=names[s.scan.axis]) if s.scan else None,
        )
        for s in workload.stages
    )
    return replace(workload, stages=stages)


def with_inputs_named(workload: Workload, names: Mapping[str, str]) -> Workload:
    """The workload with other names for its inputs."""

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor) if tensor in names:
                return replace(e, tensor=names[tensor])
            case Gather(tensor, index):
                mixed = (i if isinstance(i, Affine) else rewritten(i, change) for i in index)
                return Gather(names.get(tensor, tensor), tuple(mixed))
            case Segment(tensor, position, size):
                at = position if isinstance(position, Affine) else rewritten(position, change)
                return Segment(names.get(tensor, tensor), at, size)
            case _:
                return None

    stages = tuple(replace(s, expression=rewritten(s.expression, change)) for s in workload.stages)
    inputs = tuple(replace(t, name=names.get(t.name, t.name)) for t in workload.inputs)
    return replace(workload, inputs=inputs, stages=stages)


def with_axes_first(workload: Workload, first: Sequence[Axis]) -> Workload:
    """The workload with these axes as the first ones of every stage; each stage has all of them."""
    orders = {
        s.name: [s.axes.index(x) for x in (*first, *(x for x in s.axes if x not in first))] for s in workload.stages
    }

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor not in orders:
            return None
        return replace(e, index=tuple(e.index[n] for n in orders[e.tensor]))

    stages = tuple(
        replace(s, axes=tuple(s.axes[n] for n in orders[s.name]), expression=rewritten(s.expression, change))
        for s in workload.stages
    )
    strides = tuple(tuple(t.effective_strides[n] for n in orders[t.name]) for t in workload.outputs)
    return replace(workload, stages=stages, output_strides=strides)
