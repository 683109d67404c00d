"""Graphs of ATen operators by PyTorch's own compiler, or by PyTorch, one operator after the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from autosched.torch_compile.graphs import computes, is_symbolic, on_data
from autosched.torch_compile.reports import Maker
from tuning_logs.text import first_line

# Takes the inputs of a graph, returns its outputs.
Call = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Other:
    """A graph computed by PyTorch; `failed`: the reason that it is not by Inductor."""

    by: Maker
    call: Call
    failed: str = ""


def by_others(graph: fx.GraphModule, inputs: Sequence[Any]) -> Other:
    """The graph as users have it without autosched: by Inductor, or by PyTorch where Inductor cannot, and why not."""
    if not computes(graph):
        return Other("eager", graph.forward)
    if (why := why_no_inductor(inputs)) is not None:
        return Other("eager", graph.forward, why)
    from torch._inductor import standalone_compile

    shapes: Any = "from_tracing_context" if any(map(is_symbolic, inputs)) else "from_example_inputs"
    try:
        with on_data():
            made: Call = standalone_compile(graph, list(inputs), dynamic_shapes=shapes)
    except Exception as error:
        # It takes a graph apart once more, which some operators do not allow.
        return Other("eager", graph.forward, f"Inductor fails: {type(error).__name__}: {first_line(error)}")
    return Other("inductor", made)


def why_no_inductor(inputs: Sequence[Any]) -> str | None:
    """Reason that Inductor cannot compile for the device of these inputs, or None."""
    on_cpu = all(x.device.type == "cpu" for x in inputs if isinstance(x, Tensor))
    return "no C++ compiler is here" if on_cpu and not any(map(shutil.which, ("g++", "clang++"))) else None
