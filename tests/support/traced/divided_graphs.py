"""The graphs that AOTAutograd makes of a model, divided into segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from autosched.torch_compile.backend import by_graphs, compiled_once
from autosched.torch_compile.composition import composed
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import DividedGraph
from autosched.tracing.capture.capture import Weights


def graphs_of(model: Callable[..., Any], *inputs: Tensor) -> list[DividedGraph]:
    """The graphs that AOTAutograd makes of a model, and of its gradient if there is one."""
    found: list[DividedGraph] = []

    def compiler(_: Kind, __: Weights) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            divided = DividedGraph.of(graph, inputs)
            found.append(divided)
            return composed(divided, [(s, s.module.forward) for s in divided.segments])

        return compile_graph

    torch.compiler.reset()
    made = compiled_once(model, by_graphs(compiler), *inputs, dynamic=False)
    expected = model(*inputs)
    torch.testing.assert_close(made, expected)
    if isinstance(made, Tensor) and made.requires_grad:
        parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
        assert parameters
        results = [torch.autograd.grad(r.sin().sum(), parameters) for r in (made, expected)]
        torch.testing.assert_close(*results)
    return found


def counts(divided: DividedGraph) -> list[int]:
    return [times for _, times in divided.problems]
