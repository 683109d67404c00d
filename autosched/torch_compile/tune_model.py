"""`tune_model`: the kernels of every graph of a model, tuned together into a log."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from autosched.machine import devices
from autosched.machine.deadline import Deadline
from autosched.measuring.measurer import Measurer, Measurers
from autosched.torch_compile.backend import GraphFunction, by_graphs, compiled_once
from autosched.torch_compile.composition import boxed
from autosched.torch_compile.graph_compiler import GraphCompiler
from autosched.torch_compile.graphs import Allowed, known, weights_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import DividedGraph
from autosched.torch_compile.threads import warn_where_other_threads
from autosched.tracing.capture.capture import DEFAULT_NUMERICS, Numerics, Weights, check_numerics
from autosched.tuning.many.results import TuneManyResult
from autosched.tuning.many.tune_many import tune_many
from autosched.tuning.progress import OnProgress
from autosched.tuning.searching.preparation import Trials
from search_spaces import InputError, Target
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)
# The searches' part of the time; the rest is for alternatives to their kernels, which take a second each.
_SEARCHES = 0.9
_SKIPPED = "Dynamo skips it; autosched.compile(…, mode='max-autotune') tunes without Dynamo"


def tune_model(
    model: Callable[..., Any],
    *inputs: Any,
    target: str | Target | None = None,
    trials: Trials = 2000,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    backward: bool = False,
    numerics: Numerics = DEFAULT_NUMERICS,
    measurer: Measurer | Measurers | None = None,
    on_progress: OnProgress | None = None,
) -> TuneManyResult:
    """Search for the fastest kernels of all graphs that torch.compile makes of a model, into a log.

    The model is called once on these inputs, by PyTorch's operators, without a gradient: its graphs for inference are
    tuned. `backward`: those of training instead, forward and backward. `numerics`: as `trace`, for inference. At last
    alternatives to the kernels are timed in place (`alternatives`). With that log, and the same numerics,
    `torch.compile(model, backend="autosched")` then searches nothing. `target` is by default the device of the inputs,
    on a CPU ("cpu" as well) with as many threads as PyTorch has, which the backend looks up: others have a warning.
    `trials` are those of all kernels together; each goes where it should take most off the sum of their times.
    `seconds` limits the time, and `measurer` replaces this process's, as for `tune`; alternatives are timed here.

    Raises:
        InputError: no graph of it has a kernel; the message has the reasons. And as `tune_many`; and what the model
            raises.
    """
    check_numerics(numerics)
    named = None if target is None else devices.resolve(target)
    deadline = Deadline.after(seconds)
    found = _Collector(numerics, [], [], [])
    with torch.set_grad_enabled(backward):
        results = compiled_once(model, by_graphs(found.of), *inputs, dynamic=False)
    if backward:
        _with_gradient(results)
    if not found.problems:
        name = getattr(model, "__name__", type(model).__name__)
        reasons = "; ".join(dict.fromkeys(found.refused)) or _SKIPPED
        raise InputError(f"no graph of {name} has a kernel: {reasons}")
    weighted = [(p.traced, p.times) for p in found.problems]
    searching = None if seconds is None else _SEARCHES * seconds
    own = found.problems[0].target
    # A CPU's name leaves the threads open.
    device = own if named is None or (isinstance(target, str) and named.kind == own.kind == "cpu") else named
    warn_where_other_threads(device, own)
    results = tune_many(
        weighted, device, trials, seconds=searching, log=log, measurer=measurer, on_progress=on_progress
    )
    for kind, divided, problems in () if results.interrupted else found.graphs:
        compiler = GraphCompiler(kind, Options(mode="reduce-overhead", log=log), lambda _: None)
        try:
            compiler.choose_alternatives(divided, problems, deadline)
        except Exception as error:
            # The kernels are tuned all the same.
            _log.warning("alternatives are not compared: %s: %s", type(error).__name__, first_line(error))
    return results


def _with_gradient(results: Any) -> None:
    """Compute the gradients for all leaves that the results depend on, and drop them.

    Raises:
        InputError: no result has one.
    """
    wanted = [t for t in tree_leaves(results) if isinstance(t, Tensor) and t.requires_grad]
    leaves = list(dict.fromkeys(leaf for t in wanted for leaf in _leaves(t)))
    if not leaves:
        raise InputError("no result depends on a tensor that requires a gradient; expected some, or backward=False")
    torch.autograd.grad(wanted, leaves, [torch.ones_like(t) for t in wanted], allow_unused=True)


def _leaves(result: Tensor) -> Iterator[Tensor]:
    """The leaves of autograd's graph that a result depends on."""
    rest: list[Any] = [result.grad_fn]
    seen = set[Any]()
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            yield variable
        rest += [following for following, _ in node.next_functions]


@dataclass(frozen=True)
class _Collector:
    """Compilers that trace graphs and leave them as they are: segments with kernels, and the reasons of others.

    `graphs`: with their distinct segments, by their keys.
    """

    numerics: Numerics
    problems: list[TracedProblem]
    refused: list[str]
    graphs: list[tuple[Kind, DividedGraph, Mapping[str, TracedProblem | str]]]

    def of(self, kind: Kind, tensors: Weights) -> GraphFunction:
        """The compiler of one kind of graphs."""

        def collect(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            divided = DividedGraph.of(graph, inputs, weights_of(inputs, kind), known(tensors, inputs)).for_kernels(kind)
            problems = traced_problems(divided, kind, Allowed(numerics=self.numerics))
            self.graphs.append((kind, divided, problems))
            for problem in problems.values():
                if isinstance(problem, TracedProblem):
                    self.problems.append(problem)
                else:
                    self.refused.append(f"{kind}: {problem}")
            return boxed(graph.forward)

        return collect
