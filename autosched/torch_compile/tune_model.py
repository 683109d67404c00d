"""`tune_model`: the kernels of every graph of a model, tuned together into a log."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves

from autosched.torch_compile.backend import by_graphs
from autosched.torch_compile.graph_compiler import boxed, traced_graph
from autosched.tracing import TracedFunction
from autosched.tuning.many.results import TuneManyResult
from autosched.tuning.many.tune_many import tune_many
from autosched.tuning.progress import OnProgress
from autosched.tuning.searching.preparation import Trials
from search_spaces import InputError, Target


def tune_model(
    model: Callable[..., Any],
    *inputs: Any,
    target: str | Target | None = None,
    trials: Trials = 2000,
    log: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
) -> TuneManyResult:
    """Search for the fastest kernels of all graphs that torch.compile makes of a model, into a log.

    The model is called once on these inputs, by PyTorch's operators; where its results want a gradient, that is
    computed, too. With that log `torch.compile(model, backend="autosched")` then searches nothing. `trials` are those
    of all kernels together; each goes where it should take most off the sum of their times.

    Raises:
        InputError: no graph of it has a kernel. And as `tune_many`; and what the model raises.
    """
    graphs = graphs_of(model, inputs)
    if not graphs:
        raise InputError(f"no graph of {getattr(model, '__name__', type(model).__name__)} has a kernel")
    return tune_many(graphs, target, trials, log=log, on_progress=on_progress)


def graphs_of(model: Callable[..., Any], inputs: Sequence[Any]) -> list[TracedFunction]:
    """The graphs of a model and of its gradient, cut into kernels; without those that have none."""
    found: list[TracedFunction] = []
    results = torch.compile(model, backend=by_graphs(lambda _: _Collector(found)), dynamic=False)(*inputs)
    wanted = [t for t in tree_leaves(results) if isinstance(t, Tensor) and t.requires_grad]
    if wanted:
        parameters = model.parameters() if isinstance(model, nn.Module) else ()
        given = [t for t in (*parameters, *tree_leaves(inputs)) if isinstance(t, Tensor) and t.requires_grad]
        torch.autograd.grad(wanted, given, [torch.ones_like(t) for t in wanted], allow_unused=True)
    return found


@dataclass(frozen=True)
class _Collector:
    """A compiler that traces graphs, and leaves them as they are."""

    found: list[TracedFunction]

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            with unset_fake_temporarily():
                self.found.append(traced_graph(graph, inputs, allow_fallback=True))
        except InputError:
            pass
        return boxed(graph.forward)
