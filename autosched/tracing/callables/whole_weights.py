"""Kernels that read a weight of several that were joined for others: they read the weight, as those of no rewrite do.

Before:  w = cat([a, b]), once; y = x @ w[:64]
After:   y = x @ a

A cut may merge the products of one layer and compute those of another one apart, in chains, say: without a copy there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.fusion.partition import Step
from autosched.tracing.rewriting.joined_memory import joined_memory
from autosched.tracing.values.tensor_reads import MemoryView
from autosched.tracing.values.values import Prepared, Value, View


def with_whole_weights(steps: Sequence[Step], results: Sequence[Value]) -> tuple[Step, ...]:
    """The steps, of which kernels read weights where these are whole, less those that prepare what nothing reads."""
    if not any(isinstance(v, Prepared) for step in steps for v in step.values):
        return tuple(steps)
    made = [_of_weights(step) for step in steps]
    read = {_base(r) for r in results}
    for step in made:
        given = [o for v in step.values for o in v.operands] if step.assembled is None else []
        read |= {_base(v) for v in given} if step.assembled is None else {i.value for i in step.assembled.inputs}
    return tuple(s for s in made if not isinstance(s.values[0], Prepared) or s.values[0] in read)


def _of_weights(step: Step) -> Step:
    if step.assembled is None:
        return step
    inputs = tuple(map(_of_weight, step.assembled.inputs))
    return step if inputs == step.assembled.inputs else replace(step, assembled=replace(step.assembled, inputs=inputs))


def _of_weight(read: MemoryView) -> MemoryView:
    """The part of one constant that is read of joined ones, where it is one's."""
    if not isinstance(read.value, Prepared) or (layout := joined_memory(read.value)) is None:
        return read
    end = read.offset + sum((n - 1) * stride for n, stride in zip(read.shape, read.strides, strict=True))
    for constant, piece in zip(read.value.constants, layout.pieces, strict=True):
        if piece.begin <= read.offset and end < piece.begin + piece.size:
            return replace(read, value=constant, offset=read.offset - piece.begin)
    return read


def _base(value: Value) -> Value:
    return _base(value.argument) if isinstance(value, View) else value
