"""Results as values: each shares memory exactly with what PyTorch's shares it with.

The value of an operator may be another value, or a view of one, where nothing is computed. New memory is then a copy:

Before:  f(x): c = x, as cat([x]) has its elements; return (c,)
After:   f(x): c_copy[i, j] = x[i, j]; return (c_copy,)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autosched.tracing.capture.result_memory import ResultMemory, StridedView
from autosched.tracing.operators.rules import Result
from autosched.tracing.translation.layouts import has_strides, laid_out_results, own_strides
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation
from autosched.tracing.values.tensor_reads import chain, placed
from autosched.tracing.values.values import Leaf, Prepared, Value, View
from autosched.tracing.values.views import Placement

_aten = torch.ops.aten
_WHY = "no kernel stores its elements by these strides"


def result_values(returned: Sequence[Value], memory: ResultMemory, by_kernels: bool) -> list[Value]:
    """The results of a function whose graph returns these. `by_kernels`: True if kernels make copies where they can;
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
            number in shared or (number in memory.own | viewed and not has_strides(made[number], strides))
        ):
            made[number] = _copied_by_pytorch(made[number], strides)
    return [_part_of(made[p.memory], p.view or _whole(made, memory, p.memory)) for p in memory.results]


def _shared(returned: Sequence[Value], memory: ResultMemory) -> list[int]:
    """The numbers of results that need memory of their own, but are in that of an argument, of a constant, of another
    result, or in none.
    """
    taken: set[Value] = set()
    shared = []
    for number, value in enumerate(returned):
        stored = _stored_in(value)
        apart = stored is not None and not isinstance(stored, Leaf | Prepared) and stored not in taken
        if number in memory.own and value.elements and not apart:
            shared.append(number)
        taken |= set() if stored is None else {stored}
    return shared


def _stored_in(value: Value) -> Value | None:
    """The stored value of a value: itself, or its base; None for a view that no strides make."""
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
    memory = _fallback(
        value, "memory", strides, FallbackOperation(_aten.empty_strided.default, (value.shape, strides), how, _WHY)
    )
    return _fallback(value, "laid_out", strides, FallbackOperation(_aten.copy_.default, (memory, value), (), _WHY))


def _fallback(value: Value, name: str, strides: tuple[int, ...], operation: FallbackOperation) -> Fallback:
    return Fallback(
        name=f"{value.name}_{name}",
        shape=value.shape,
        dtype=value.dtype,
        line=value.line,
        operation=operation,
        strides=strides,
    )


def _whole(returned: Sequence[Value], memory: ResultMemory, number: int) -> StridedView | None:
    """All of new memory by PyTorch's strides, including dimensions of size 1; None where the strides are free."""
    strides = memory.strides[number]
    return None if strides is None or number not in memory.own else StridedView(returned[number].shape, strides, 0)


def _part_of(value: Value, view: StridedView | None) -> Value:
    """The part of memory that a value is, as a view of the stored value; or that value, where it is all of it."""
    if view is None or (view.shape, view.strides, view.offset) == (value.shape, own_strides(value), 0):
        return value
    base, offset = value, 0
    if isinstance(value, View):
        # A view may be stored too, densely, for its consumers.
        views = chain(value, {})
        base = views[-1].argument
        strided = placed(views, base.memory_strides)
        assert strided is not None
        offset = strided[1]
    kind = Placement(view.shape, view.strides, offset + view.offset)
    return View(
        name=f"{value.name}_part", shape=view.shape, dtype=value.dtype, line=value.line, argument=base, kind=kind
    )
