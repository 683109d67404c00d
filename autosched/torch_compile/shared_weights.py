"""Weights that kernels read joined, moved into one memory: prepared values without a second copy (`share_weights`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, fx

from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.parts import Part
from autosched.torch_compile.segments import DividedGraph
from autosched.tracing import TracedKernel
from autosched.tracing.rewriting.joined_memory import joined_memory
from autosched.tracing.values.values import Prepared, Value

_COMPUTED = "its elements or strides are not those of whole weights next to each other"


def with_shared_weights(divided: DividedGraph, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of a graph, whose weights are moved now where its kernels read them joined.

    No call may be using the weights meanwhile.
    """
    numbers = {node: n for n, node in enumerate(divided.whole.inputs)}
    given = {node: x for node, n in numbers.items() if n in divided.tensors and (x := divided.tensors[n]()) is not None}
    with on_data():
        return tuple(_shared(part, given) if isinstance(part.call, TracedKernel) else part for part in parts)


def copied_bytes(kernel: TracedKernel, shared: bool) -> int:
    """Bytes of values of weights that rewrites have prepared; `shared`: without those that may be no copies."""
    return sum(v.bytes for v in _prepared(kernel) if not shared or joined_memory(v) is None)


def _prepared(kernel: TracedKernel) -> Iterator[Prepared]:
    return (v for v in kernel.traced.made if isinstance(v, Prepared))


def _shared(part: Part, given: Mapping[fx.Node, Any]) -> Part:
    kernel = part.choice.kernel
    assert kernel is not None
    pairs = zip(kernel.traced.arguments, part.segment.inputs, strict=True)
    tensors: dict[Value, Tensor] = {leaf: given[node] for leaf, node in pairs if node in given}
    reasons = {value: _why_copied(value, tensors) for value in _prepared(kernel)}
    return replace(
        part,
        shared_bytes=sum(value.bytes for value, why in reasons.items() if why is None),
        copied=tuple(f"{value.name}: {why}" for value, why in reasons.items() if why is not None),
    )


def _why_copied(value: Prepared, tensors: Mapping[Value, Tensor]) -> str | None:
    """The reason that a value has memory of its own; None where it is that of its constants, from now on."""
    layout = joined_memory(value)
    if layout is None:
        return _COMPUTED
    if any(constant not in tensors for constant in value.constants):
        return "the weights are not known when the graph is compiled"
    own = [tensors[constant] for constant in value.constants]
    return None if layout.whole(own) is not None else layout.why_not_moved(own)
