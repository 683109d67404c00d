"""Graphs of ATen operators by PyTorch's own compiler, or by PyTorch, one operator after the other."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from autosched.planning import CapturedCall
from autosched.torch_compile.graphs import changes_something, computes, is_symbolic, on_data
from autosched.torch_compile.reports import Maker
from tuning_logs.text import first_line

# Operators whose results are sizes or numbers that only the device knows.
_WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_log = logging.getLogger(__name__)
# Takes the inputs of a graph, returns its outputs.
Call = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Fallback:
    """A graph computed by PyTorch; `failed`: the reason that it is not by Inductor."""

    by: Maker
    call: Call
    failed: str = ""


def fallback_for(graph: fx.GraphModule, inputs: Sequence[Any]) -> Fallback:
    """The graph as users have it without autosched: by Inductor, or by PyTorch where Inductor cannot, and why not."""
    if not computes(graph):
        return Fallback("eager", graph.forward)
    if (why := why_no_inductor(inputs)) is not None:
        return Fallback("eager", graph.forward, why)
    from torch._inductor import standalone_compile

    shapes: Any = "from_tracing_context" if any(map(is_symbolic, inputs)) else "from_example_inputs"
    try:
        with on_data():
            made: Call = standalone_compile(graph, list(inputs), dynamic_shapes=shapes)
    except Exception as error:
        # It takes a graph apart once more, which some operators do not allow.
        return Fallback("eager", graph.forward, f"Inductor fails: {type(error).__name__}: {first_line(error)}")
    return Fallback("inductor", made)


def why_no_inductor(inputs: Sequence[Any]) -> str | None:
    """Reason that Inductor cannot compile for the device of these inputs, or None."""
    on_cpu = all(x.device.type == "cpu" for x in inputs if isinstance(x, Tensor))
    return "no C++ compiler is here" if on_cpu and not any(map(shutil.which, ("g++", "clang++"))) else None


def as_cuda_graph(call: Call, graph: fx.GraphModule, inputs: Sequence[Any]) -> Call:
    """A call that computes a graph like this, as a CUDA graph where it can be one."""
    if (why := why_no_cuda_graph(graph, inputs)) is not None:
        _log.info("a call of PyTorch is no CUDA graph: %s", why)
        return call
    return CapturedCall(call, inputs[0].device)


def why_no_cuda_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """Reason that a graph cannot be captured, or None.

    What fails within a capture may leave PyTorch's random numbers and memory in a state of capture: whatever is known
    to fail is not tried.
    """
    if not computes(graph):
        return "it computes nothing"
    if not inputs or not all(isinstance(x, Tensor) and x.device.type == "cuda" for x in inputs):
        return "it has no inputs, or some elsewhere than on a GPU"
    if any(map(is_symbolic, inputs)):
        return "its sizes change"
    values = [value for node in graph.graph.nodes for value in tree_leaves(node.meta.get("val"))]
    if {value.device for value in (*inputs, *values) if isinstance(value, Tensor)} != {inputs[0].device}:
        return "it has tensors on several devices"
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator) or changes_something(node):
            return f"{node.target} calls functions or has effects"
        if _WAITING & {*getattr(node.target, "tags", ())}:
            return f"{node.target} waits for the device"
    return _why_unsafe(graph)


def _why_unsafe(graph: fx.GraphModule) -> str | None:
    try:
        from torch._inductor.utils import get_first_incompatible_cudagraph_node as first_unsafe
    except ImportError:
        return "this PyTorch does not say which operators can be captured"
    unsafe = first_unsafe(graph)
    return None if unsafe is None else f"{unsafe.target} cannot be captured"
