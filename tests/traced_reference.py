"""A traced function computed in float64 straight from its workloads: what tracing made of it, without any kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autosched import TracedFunction, reference
from autosched.tracing.operands import chain, placed
from autosched.tracing.values import Eager, Source, Value
from search_spaces.strides import dense_strides


def computed(traced: TracedFunction, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The results; floating-point ones are float64 and never rounded."""
    memory: dict[Value, Tensor] = {}
    for source in traced.sources:
        given = source.tensor if source.position is None else inputs[source.position]
        assert given is not None
        dtype = torch.float64 if given.is_floating_point() else given.dtype
        memory[source] = torch.empty_strided(source.shape, source.strides, dtype=dtype).copy_(given)
    for step in traced.steps:
        if step.assembled is None:
            memory[step.value] = _called(step.value, memory)
            continue
        views = [memory[v.value].as_strided(v.shape, v.strides, v.offset) for v in step.assembled.inputs]
        made = reference.evaluate(step.assembled.workload, views)
        workload = step.assembled.workload
        whole = torch.empty(step.value.elements, dtype=made.dtype)
        whole.as_strided(workload.output.shape, workload.output.effective_strides).copy_(made)
        memory[step.value] = whole.reshape(step.value.shape)
    return tuple(_result(r, s, memory[s]) for r, s in zip(traced.results, traced.stored, strict=True))


def _called(value: Value, memory: dict[Value, Tensor]) -> Tensor:
    assert isinstance(value, Eager)
    operation = value.operation

    def given(argument: Any) -> Any:
        if isinstance(argument, list):
            return [given(a) for a in argument]
        # PyTorch computes in the element types of the graph.
        return memory[argument].to(getattr(torch, argument.dtype)) if isinstance(argument, Value) else argument

    made = operation.target(*map(given, operation.arguments), **{k: given(v) for k, v in operation.keywords})
    result = made if value.output is None else made[value.output]
    assert isinstance(result, Tensor)
    return result.contiguous()


def _result(result: Value, stored: Value, tensor: Tensor) -> Tensor:
    if result is stored:
        return tensor
    strides = stored.strides if isinstance(stored, Source) else dense_strides(stored.shape)
    lies = placed(chain(result, {stored: ()}), strides)
    assert lies is not None
    return tensor.as_strided(result.shape, *lies)
