"""Results as values: each lies in memory where PyTorch's does, apart from all that PyTorch's is apart from.

What a rule makes of an operator may be another value, or a view of one, where nothing is to be computed. New memory is
then a copy of that:

Before:  f(x): c = x, as cat([x]) has its elements; return (c,)
After:   f(x): c_copy[i, j] = x[i, j]; return (c_copy,)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autosched.tracing.capture.result_memory import ResultMemory, StridedView
from autosched.tracing.operators.rules import Result
from autosched.tracing.translation.layouts import laid_out_results, lies_by, own_strides
from autosched.tracing.values.tensor_reads import chain, placed
from autosched.tracing.values.values import Eager, EagerOperation, Leaf, Value, View
from autosched.tracing.values.views import Placement

_aten = torch.ops.aten
_WHY = "no kernel stores its elements by these strides"


def result_values(returned: Sequence[Value], memory: ResultMemory, by_kernels: bool) -> list[Value]:
    """The results of a function whose graph returns these. `by_kernels`: whether kernels make copies where they can;
    PyTorch makes the others.
    """
    made = list(returned)
    if by_kernels:
        for number in _shared(made, memory):
            made[number] = _copied(made[number])
        made = laid_out_results(made, memory.strides)
    shared = _shared(made, memory)
    viewed = {p.memory for p in memory.results if p.view is not None}
    for number, strides in enumerate(memory.strides):
        if strides is not None and (
            number in shared or (number in memory.own | viewed and not lies_by(made[number], strides))
        ):
            made[number] = _copied_by_pytorch(made[number], strides)
    return [_part_of(made[p.memory], p.view or _whole(made, memory, p.memory)) for p in memory.results]


def _shared(returned: Sequence[Value], memory: ResultMemory) -> list[int]:
    """Which of those that are to be memory of their own are in that of an argument or another one, or in none."""
    taken: set[Value] = set()
    shared = []
    for number, value in enumerate(returned):
        held = _held_in(value)
        if number in memory.own and value.elements and (held is None or isinstance(held, Leaf) or held in taken):
            shared.append(number)
        taken |= set() if held is None else {held}
    return shared


def _held_in(value: Value) -> Value | None:
    """What is stored for the value: itself, or what it is a view of; None for a view that no strides make."""
    if not isinstance(value, View):
        return value
    views = chain(value, {})
    base = views[-1].argument
    return None if placed(views, base.memory_strides) is None else base


def _copied(value: Value) -> Value:
    result = Result(f"{value.name}_copy", value.shape, value.dtype, value.line)
    return result.elementwise(lambda x: x, value) if value.readable else value


def _copied_by_pytorch(value: Value, strides: tuple[int, ...]) -> Value:
    """A copy by any strides."""
    how = (("dtype", getattr(torch, value.dtype)), ("device", torch.device("cpu")))
    memory = _eager(
        value, "memory", strides, EagerOperation(_aten.empty_strided.default, (value.shape, strides), how, _WHY)
    )
    return _eager(value, "laid_out", strides, EagerOperation(_aten.copy_.default, (memory, value), (), _WHY))


def _eager(value: Value, name: str, strides: tuple[int, ...], operation: EagerOperation) -> Eager:
    return Eager(
        name=f"{value.name}_{name}",
        shape=value.shape,
        dtype=value.dtype,
        line=value.line,
        operation=operation,
        strides=strides,
    )


def _whole(returned: Sequence[Value], memory: ResultMemory, number: int) -> StridedView | None:
    """All of new memory by PyTorch's strides, also of dimensions of size 1; None of what may lie otherwise."""
    strides = memory.strides[number]
    return None if strides is None or number not in memory.own else StridedView(returned[number].shape, strides, 0)


def _part_of(value: Value, view: StridedView | None) -> Value:
    """The part of memory that a value is, as a view of what is stored; or that value, where it is all of it."""
    if view is None or (view.shape, view.strides, view.offset) == (value.shape, own_strides(value), 0):
        return value
    base, offset = value, 0
    if isinstance(value, View):
        # A view may be stored too, densely, for those that are computed from it.
        views = chain(value, {})
        base = views[-1].argument
        lies = placed(views, base.memory_strides)
        assert lies is not None
        offset = lies[1]
    kind = Placement(view.shape, view.strides, offset + view.offset)
    return View(
        name=f"{value.name}_part", shape=view.shape, dtype=value.dtype, line=value.line, argument=base, kind=kind
    )
