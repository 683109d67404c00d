"""The key under which a check of a traced function is remembered: its capture and its partition."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from autosched.backends.environment import environment
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.fusion.partition import Step
from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.terms import key_of as key_of_term
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.tensor_reads import memory_view
from autosched.tracing.values.values import Prepared, Value
from search_spaces import Target
from search_spaces.code_hash import code_hash

# Version of the check, raised when it becomes stricter: functions that older ones passed are then checked anew.
_CHECK = 1
_KEY_DIGITS = 32
_Places = Mapping[Value, int]


def key_of(parts: Sequence[TracedFunction], target: Target | None) -> str:
    """Equal for functions with equal captures and partitions, on devices of a kind, with the same versions of
    everything.

    Data of constants is not in it. `parts`: for a function with its gradient, both directions.
    """
    versions = (("torch", str(torch.__version__)),) if target is None else environment(target)
    made = [(part.captured, *wiring(part)) for part in parts]
    whole = (_CHECK, made, target and target.key, versions, code_hash("search_spaces", "autosched.tracing"))
    return hashlib.sha256(repr(whole).encode()).hexdigest()[:_KEY_DIGITS]


def wiring(traced: TracedFunction) -> Iterator[tuple[Any, ...]]:
    """The values in memory, the steps on them, and the results, by positions in a list."""
    places = {v: n for n, v in enumerate(dict.fromkeys([*traced.leaves, *traced.made]))}
    for leaf in traced.leaves:
        yield leaf.position, leaf.shape, leaf.strides, leaf.dtype
    for step in traced.steps:
        yield tuple(places[v] for v in step.values), *_run(step, places)
    for result in traced.results:
        yield _memory_place(result, places)


def _run(step: Step, places: _Places) -> Iterator[Any]:
    if step.assembled is not None:
        # Kernels of one key may be called with their tensors in different orders.
        workload = step.assembled.workload
        yield workload.key
        yield workload.canonical.inputs
        yield [(places[v.value], v.offset, v.shape, v.strides) for v in step.assembled.inputs]
        return
    (value,) = step.values
    if isinstance(value, Prepared):
        terms = {each: n for n, each in enumerate(below([value.argument]))}
        yield [places[v] if v in places else repr(key_of_term(v, terms.__getitem__)) for v in terms]
        return
    if not isinstance(value, Fallback):
        yield [places[o] for o in value.operands]
        return
    wired = functools.partial(_wired, places=places)
    operation = value.operation
    yield str(operation.target), value.output, wired(operation.arguments), wired(operation.keywords)


def _wired(argument: Any, places: _Places) -> Any:
    match argument:
        case Value():
            return _memory_place(argument, places)
        case list() | tuple():
            return [_wired(a, places) for a in argument]
        case dict():
            return {k: _wired(v, places) for k, v in argument.items()}
        case slice(start=start, stop=stop, step=step):
            return ["slice", *(_wired(a, places) for a in (start, stop, step))]
        case _:
            return repr(argument)


def _memory_place(value: Value, places: _Places) -> tuple[Any, ...]:
    strided = memory_view(value, places)
    assert strided is not None
    return places[strided.value], strided.shape, strided.strides, strided.offset
