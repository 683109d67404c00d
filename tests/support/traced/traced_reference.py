"""A traced function computed in float64 straight from its workloads: what tracing made of it, without any kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from autosched import TracedFunction
from autosched.checking import reference
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.tensor_reads import memory_view
from autosched.tracing.values.values import InParts, Prepared, Value
from search_spaces import Workload
from search_spaces.workloads.strides import span

# So many functions are traced as one: which of their results share a kernel is decided of every two of them, and that
# soon takes longer than another capture.
_AT_ONCE = 6
# What a workload gives.
Evaluate = Callable[[Workload, list[Tensor]], list[Tensor]]
_Function = TypeVar("_Function")


def groups(functions: Mapping[str, _Function]) -> Iterator[dict[str, _Function]]:
    """The functions, a few at a time."""
    names = list(functions)
    for first in range(0, len(names), _AT_ONCE):
        yield {name: functions[name] for name in names[first : first + _AT_ONCE]}


def computed(
    traced: TracedFunction,
    inputs: tuple[Tensor, ...],
    evaluate: Evaluate = reference.evaluate,
) -> tuple[Tensor, ...]:
    """The results; floating-point ones are float64 and never rounded, but by `evaluate`."""
    memory: dict[Value, Tensor] = {}
    for leaf in traced.leaves:
        given = leaf.tensor if leaf.position is None else inputs[leaf.position]
        assert given is not None
        # PyTorch reads exponents as bytes.
        wide = given.is_floating_point() and given.dtype != torch.float8_e8m0fnu
        dtype = torch.float64 if wide else given.dtype
        memory[leaf] = torch.empty_strided(leaf.shape, leaf.strides, dtype=dtype).copy_(given)
    for step in traced.steps:
        if step.assembled is None:
            (value,) = step.values
            memory[value] = _without_kernel(value, memory)
            continue
        views = [memory[v.value].as_strided(v.shape, v.strides, v.offset) for v in step.assembled.inputs]
        workload = step.assembled.workload
        results = evaluate(workload, views)
        for value, output, made in zip(step.values, workload.outputs, results, strict=True):
            whole = torch.empty(span(value.shape, value.memory_strides), dtype=made.dtype)
            whole.as_strided(output.shape, output.effective_strides).copy_(made)
            memory[value] = whole.as_strided(value.shape, value.memory_strides)
    return tuple(_read(r, memory) for r in traced.results)


def _without_kernel(value: Value, memory: dict[Value, Tensor]) -> Any:
    match value:
        case InParts():
            return _in_parts(value, memory)
        case Prepared(constants=constants):
            (made,) = evaluated([value.argument], {c: memory[c] for c in constants})
            return _laid_out(made, value)
        case _:
            return _called(value, memory)


def _in_parts(value: InParts, memory: dict[Value, Tensor]) -> Tensor:
    whole = torch.empty(value.elements, dtype=memory[value.parts[0]].dtype).fill_(math.nan)
    for part, offset in zip(value.parts, value.offsets, strict=True):
        whole.as_strided(part.shape, value.strides_of_parts, offset).copy_(memory[part])
    return whole.as_strided(value.shape, value.memory_strides)


def _called(value: Value, memory: dict[Value, Tensor]) -> Any:
    assert isinstance(value, Fallback)
    operation = value.operation

    def given(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [given(a) for a in argument]
        return _read(argument, memory) if isinstance(argument, Value) else argument

    made = operation.target(*map(given, operation.arguments), **{k: given(v) for k, v in operation.keywords})
    result = made if value.output is None else made[value.output]
    return _laid_out(result, value) if value.readable else result


def _laid_out(result: Tensor, value: Value) -> Tensor:
    dtype = torch.float64 if result.is_floating_point() else result.dtype
    return torch.empty_strided(result.shape, value.memory_strides, dtype=dtype).copy_(result)


def _read(value: Value, memory: dict[Value, Tensor]) -> Tensor:
    strided = memory_view(value, memory)
    assert strided is not None
    stored = memory[strided.value]
    return stored if value is strided.value else stored.as_strided(strided.shape, strided.strides, strided.offset)
