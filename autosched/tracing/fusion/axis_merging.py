"""The axes of a kernel that can be one (`search_spaces.workloads.axis_merging`) become one, before it is a workload.

Before: out[i, j, c] = f(x[i, j, c], b[c]), all dense.  After: out[ij, c] = f(x[ij, c], b[c]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.tracing.values.tensor_reads import TensorRead, in_order
from search_spaces import Axis, Stage
from search_spaces.workloads.axis_merging import mergeable
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Position
from search_spaces.workloads.expressions.walking import rewritten, variables, walk

Strides = Mapping[str, int]


def merged_axes(
    stages: Sequence[Stage],
    operands: Sequence[TensorRead],
    outputs: Mapping[str, Strides],
    extents: Mapping[str, int],
) -> tuple[list[Stage], list[TensorRead], dict[str, dict[str, int]]]:
    """The stages, operands and strides of the outputs, by name and axis, with as few axes as possible."""
    found, read = list(stages), list(operands)
    placed = {name: dict(strides) for name, strides in outputs.items()}
    sizes = dict(extents)
    while pair := _mergeable(found, read, placed, sizes):
        outer, inner = pair
        sizes[outer] *= sizes.pop(inner)
        read = [_merged_operand(o, outer, inner) for o in read]
        for strides in placed.values():
            if inner in strides:
                strides[outer] = strides.pop(inner)
        found = [reading(_merged_stage(s, outer, inner, sizes), read) for s in found]
    return found, read, placed


def _mergeable(
    stages: Sequence[Stage],
    operands: Sequence[TensorRead],
    outputs: Mapping[str, Strides],
    extents: Mapping[str, int],
) -> tuple[str, str] | None:
    """Two axes that follow each other in every stage, and lie without a gap in every tensor; the outer one first."""
    lists = [[a.name for a in s.axes] for s in stages]
    lists += [[a.name for a in s.reduction.axes] for s in stages if s.reduction]
    walks = [*(o.axes for o in operands), *outputs.values()]
    return mergeable(lists, walks, extents, _fixed_axes(stages, operands))


def _fixed_axes(stages: Sequence[Stage], operands: Sequence[TensorRead]) -> frozenset[str]:
    """The axes that are used as values, beside others in an index, or scanned along."""
    alone = {o.name: o.axes for o in operands}
    found = {s.scan.axis for s in stages if s.scan}
    for e in (e for s in stages for e in walk(s.expression)):
        match e:
            case Access(tensor, index) if tensor in alone:
                found |= {v for i in index for v, _ in i.terms if v not in alone[tensor]}
            case Gather() | Position():
                found |= variables(e)
    return frozenset(found)


def _merged_operand(operand: TensorRead, outer: str, inner: str) -> TensorRead:
    if inner not in operand.axes:
        return operand
    dimensions = [
        ((inner == name and outer) or name, stride, size)
        for (name, stride), size in zip(operand.strides, operand.sizes, strict=True)
        if name != outer
    ]
    return in_order(operand, dimensions)


def _merged_stage(stage: Stage, outer: str, inner: str, extents: Mapping[str, int]) -> Stage:
    """The stage without the inner axis; tensors that had it are still read by it."""

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, extents[a.name]) for a in given if a.name != inner)

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access):
            return None
        return replace(e, index=tuple(i for i in e.index if i != axis_index(inner)))

    reduction = stage.reduction and replace(stage.reduction, axes=axes(stage.reduction.axes))
    return replace(stage, axes=axes(stage.axes), expression=rewritten(stage.expression, change), reduction=reduction)


def reading(stage: Stage, operands: Sequence[TensorRead]) -> Stage:
    """The stage reading each operand by the axes that it has now; other indices stay as they are, and in order."""
    known = {o.name: o for o in operands}

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor not in known:
            return None
        operand = known[e.tensor]
        others = iter([i for i in e.index if not any(v in operand.axes for v, _ in i.terms)])
        named = zip(operand.strides, operand.sizes, strict=True)
        return replace(e, index=tuple(axis_index(v) if size is None else next(others) for (v, _), size in named))

    return replace(stage, expression=rewritten(stage.expression, change))
