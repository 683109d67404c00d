"""The compiler of one graph of ATen operators: kernels of autosched, or what users have anyway."""

from __future__ import annotations

import logging
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from autosched.replaying.replay import replay
from autosched.torch_compile.options import Options
from autosched.torch_compile.others import Call, by_others, whole_by_others
from autosched.torch_compile.reports import GraphReport, Kind, Maker, OnReport
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.function import trace_function
from autosched.tracing.callables.random_arguments import random_arguments
from autosched.tracing.translation.translate import DefectWarning
from autosched.tuning.tuner import tune
from search_spaces import AutoschedError, InputError, Target
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)
# Rounds in which a tuned graph is compared with Inductor's; the median of so many is stable to some percent.
_ROUNDS = 20
_SEED = 0
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class GraphCompiler:
    """A compiler for AOTAutograd: takes a graph and inputs without data, returns a boxed call."""

    kind: Kind
    options: Options
    report: OnReport

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        """The graph as a function of a list of its inputs, which it empties.

        Raises:
            InputError: it is not computed by kernels of autosched alone, and `strict` refuses that.
        """
        candidates, why = self._candidates(graph, inputs)
        by = self._fastest(candidates)
        kernel = candidates[by]
        made = GraphReport(self.kind, operators_of(graph), by, why=why)
        if isinstance(kernel, TracedKernel):
            launched, left = len(kernel.traced.launched), kernel.traced.left_to_pytorch
            made = GraphReport(self.kind, operators_of(graph), by, launched, left)
        reported(made, self.options, self.report)
        return boxed(kernel)

    def _candidates(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> tuple[Mapping[Maker, Call], str]:
        """The graph by kernels, if there are any, and by others, if there are none or both are to be timed; and the
        reason that it may be by others."""
        try:
            # AOTAutograd compiles among tensors without data.
            with unset_fake_temporarily():
                kernel = self._kernel(graph, inputs)
        except AutoschedError as error:
            return dict([by_others(graph, inputs)]), str(error)
        except Exception as error:
            # A user's model runs all the same.
            why = f"{type(error).__name__}: {first_line(error)}"
            warnings.warn(f"{self.kind} graph: {why}; this is a defect of autosched", DefectWarning, stacklevel=2)
            return dict([by_others(graph, inputs)]), why
        if not self.options.tunes:
            return {"autosched": kernel}, ""
        return {"autosched": kernel, **dict([by_others(graph, inputs)])}, "faster than the kernels"

    def _kernel(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> TracedKernel:
        """The graph by kernels from the logs, or tuned now.

        Raises:
            AutoschedError: something has no kernel, no record, or no device here.
        """
        target = _target(inputs)
        traced = traced_graph(graph, inputs, allow_fallback=not self.options.strict)
        if self.options.tunes:
            tune(traced, target, self.options.trials, log=self.options.log)
        return replay(traced, target, log=self.options.log)

    def _fastest(self, candidates: Mapping[Maker, Call]) -> Maker:
        """The candidate with the least median in interleaved rounds; a single one is not timed."""
        kernel = candidates.get("autosched")
        if len(candidates) == 1 or not isinstance(kernel, TracedKernel):
            return next(iter(candidates))
        with unset_fake_temporarily(), torch.no_grad():
            given = random_arguments(kernel.traced, _SEED, kernel.device)
            calls: dict[str, Callable[[], object]] = {by: partial(call, *given) for by, call in candidates.items()}
            samples = interleaved(calls, _ROUNDS, timer_for(kernel.target, "hot"))
        return min(candidates, key=lambda by: statistics.median(samples[by]))


def traced_graph(graph: fx.GraphModule, inputs: Sequence[Any], allow_fallback: bool) -> TracedFunction:
    """A graph of ATen operators, cut into kernels.

    Raises:
        InputError: nothing in it has a kernel; or something has none, and that is not allowed.
    """
    if any(n.target is torch.ops.higher_order.with_effects for n in graph.graph.nodes):
        raise InputError("it has effects other than its results, which are in order")
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    traced = trace_function(graph, inputs, allow_fallback, names)
    if not traced.launched:
        raise InputError("no operator has a kernel")
    return traced


def is_symbolic(given: Any) -> bool:
    """True for a size, or a tensor with one, that is not known."""
    return isinstance(given, SYMBOLS) or (
        isinstance(given, Tensor) and any(isinstance(n, SYMBOLS) for n in given.shape)
    )


def symbolic_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], options: Options, report: OnReport
) -> Callable[..., Any]:
    """A graph of Dynamo's with symbolic sizes, by others.

    Raises:
        InputError: `strict` refuses that.
    """
    by, call = whole_by_others(graph, inputs)
    reported(GraphReport("symbolic", operators_of(graph), by, why="its sizes are symbolic"), options, report)
    return call


def reported(made: GraphReport, options: Options, report: OnReport) -> None:
    """Log a report and pass it on. Raises InputError where `strict` refuses it."""
    if options.strict and (made.left or made.by != "autosched"):
        raise InputError(f"strict: {made}")
    _log.info("%s", made)
    report(made)


def operators_of(graph: fx.GraphModule) -> int:
    return sum(n.op.startswith("call") for n in graph.graph.nodes)


def boxed(call: Call) -> Callable[[list[Any]], Sequence[Any]]:
    """The call by AOTAutograd's convention: it takes a list, which it empties, so that inputs may be freed."""

    def run(inputs: list[Any]) -> Sequence[Any]:
        given = tuple(inputs)
        inputs.clear()
        return call(*given)

    vars(run)["_boxed_call"] = True
    return run


def _target(inputs: Sequence[Any]) -> Target:
    """The device of all inputs.

    Raises:
        InputError: they are not tensors of one device; TargetUnavailableError: it is unknown.
    """
    if symbols := [x for x in inputs if not isinstance(x, Tensor)]:
        raise InputError(f"{len(symbols)} of its inputs are sizes; expected tensors")
    found = {x.device for x in inputs}
    if len(found) != 1:
        raise InputError(f"its inputs are on {sorted(map(str, found)) or 'no device'}; expected all on one device")
    (device,) = found
    return devices.resolve(None) if device.type == "cuda" else devices.cpu_target(torch.get_num_threads())
