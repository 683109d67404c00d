"""The function that torch.compile calls with every graph that Dynamo captures.

    model  →  Dynamo's graph  →  AOTAutograd: inference, or forward and backward, of ATen operators without changes in
    place  →  kernels of autosched where logs have them, or after tuning; else Inductor's

A graph with symbolic sizes has kernels at the sizes of its calls (`sized_graph`).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from autosched.torch_compile.graph_compiler import GraphCompiler
from autosched.torch_compile.graphs import is_symbolic, references
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, Kind, OnReport
from autosched.torch_compile.sized_compiler import SizedCompiler
from autosched.tracing.capture.capture import Weights
from autosched.tracing.capture.fused_functions.attention import keep_attention_whole
from autosched.tracing.capture.fused_functions.attention_gradients import with_operators, without_random_state
from autosched.tracing.capture.fused_functions.encoder_layers import write_encoder_layers_out

_NO_LIMIT = 1 << 30
# Takes a graph and its inputs without data, returns its function.
GraphFunction = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
Backend = GraphFunction


def autosched(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """The backend "autosched" of torch.compile, by an entry point of the group `torch_dynamo_backends`.

    Raises:
        InputError: an option is not allowed; or, with the option `strict`, something has no kernel. Dynamo wraps it in
            a BackendCompilerFailed while it compiles.
    """
    return backend_of(Options.of(mode, options), _ignored)(graph, inputs)


def backend_of(options: Options, report: OnReport) -> Backend:
    """A backend of torch.compile with these options that reports every graph."""

    def compiler(kind: Kind, tensors: Weights) -> GraphFunction:
        fixed, sized = GraphCompiler(kind, options, report, tensors=tensors), SizedCompiler(kind, options, report)
        return lambda graph, inputs: (sized if any(map(is_symbolic, inputs)) else fixed)(graph, inputs)

    return by_graphs(compiler)


def compilers(compiler: Callable[[Kind], GraphFunction]) -> dict[str, Any]:
    """The arguments of AOTAutograd that have each kind of graphs compiled by a compiler of its own."""
    return {
        "fw_compiler": compiler("forward"),
        "bw_compiler": compiler("backward"),
        "inference_compiler": compiler("inference"),
        "partition_fn": _partitioned,
        # Writes to inputs are in the graphs, but for those that only AOTAutograd can make, as of metadata.
        "keep_inference_input_mutations": True,
    }


def _partitioned(joint: fx.GraphModule, *given: Any, **named: Any) -> Any:
    """The forward and the backward graph of a joint one."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    without_random_state(joint)
    made = min_cut_rematerialization_partition(joint, *given, **named)
    for graph in made:
        with_operators(graph)
    return made


def by_graphs(compiler: Callable[[Kind, Weights], GraphFunction]) -> Backend:
    """A backend that has the graphs of AOTAutograd compiled, each kind by a compiler of its own, which gets the tensors
    that Dynamo captures a graph with, by their numbers.
    """
    from torch._dynamo.backends.common import aot_autograd

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        keep_attention_whole(graph.graph)
        write_encoder_layers_out(graph.graph)
        graph.recompile()
        tensors = references(inputs)
        apart: Backend = aot_autograd(**compilers(lambda kind: compiler(kind, tensors)))
        return apart(graph, inputs)

    return compile_graph


def compiled_once(model: Callable[..., Any], backend: Backend, *inputs: Any, dynamic: bool | None = None) -> Any:
    """The results of a model, compiled by a backend of this call's own.

    Dynamo counts what it compiles by code and backend, up to a limit: the function that calls the model has code of its
    own, and the limit is lifted for the parts into which graph breaks take the model.
    """

    def called(*inputs: Any) -> Any:
        return model(*inputs)

    own = types.FunctionType(called.__code__.replace(), called.__globals__, "called", None, called.__closure__)
    with torch._dynamo.config.patch(recompile_limit=_NO_LIMIT, accumulated_recompile_limit=_NO_LIMIT):
        return torch.compile(own, backend=backend, dynamic=dynamic)(*inputs)


def _ignored(report: GraphReport) -> None:
    pass
