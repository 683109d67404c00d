"""The function that torch.compile calls with every graph that Dynamo captures.

    model  →  Dynamo's graph  →  AOTAutograd: inference, or forward and backward, of ATen operators without changes in
    place  →  kernels of autosched where logs have them, or after tuning; else Inductor's

A graph with symbolic sizes is Inductor's as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from autosched.torch_compile.graph_compiler import GraphCompiler, is_symbolic, symbolic_graph
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, Kind, OnReport


def autosched(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """The backend "autosched" of torch.compile, by an entry point of the group `torch_dynamo_backends`.

    Raises:
        InputError: an option is not allowed; or, with the option `strict`, something has no kernel.
    """
    return backend_of(Options.of(mode, options), _ignored)(graph, inputs)


def backend_of(options: Options, report: OnReport) -> Callable[..., Callable[..., Any]]:
    """A backend of torch.compile with these options that reports every graph."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def compiler(kind: Kind) -> Callable[..., Any]:
        return GraphCompiler(kind, options, report)

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if any(map(is_symbolic, inputs)):
            return symbolic_graph(graph, inputs, options, report)
        made = aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            partition_fn=min_cut_rematerialization_partition,
        )
        called: Callable[..., Any] = made(graph, list(inputs))
        return called

    return compile_graph


def _ignored(report: GraphReport) -> None:
    pass
