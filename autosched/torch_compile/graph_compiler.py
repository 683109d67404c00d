"""The compiler of one graph of ATen operators: kernels of autosched, or what users have anyway."""

from __future__ import annotations

import logging
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from autosched.machine.timing import interleaved, timer_for
from autosched.replaying.replay import replay
from autosched.torch_compile.graphs import among_data, operators_of, target_of, traced_or_why
from autosched.torch_compile.options import Options
from autosched.torch_compile.others import Call, by_others, whole_by_others
from autosched.torch_compile.reports import GraphReport, Kind, OnReport
from autosched.tracing import TracedFunction, TracedKernel, UncheckedWarning
from autosched.tracing.callables.random_arguments import random_arguments, unknown_integers
from autosched.tuning.tuner import tune
from search_spaces import AutoschedError, InputError
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)
# Rounds in which a tuned graph is compared with Inductor's; the median of so many is stable to some percent.
_ROUNDS = 20
_SEED = 0


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
        count = operators_of(graph)
        kernel = self._kernel(graph, inputs)
        if isinstance(kernel, TracedKernel):
            ours = GraphReport(
                self.kind, count, "autosched", len(kernel.traced.launched), kernel.traced.left_to_pytorch
            )
            if self.options.strict or not self.options.tunes:
                return self._chosen(kernel, ours)
            by, call, _ = by_others(graph, inputs)
            slower = why_slower(kernel, call)
            if slower is None:
                return self._chosen(kernel, ours)
            return self._chosen(call, GraphReport(self.kind, count, by, why=slower))
        check_strict(self.options, GraphReport(self.kind, count, "inductor", why=kernel))
        by, call, failed = by_others(graph, inputs)
        return self._chosen(call, GraphReport(self.kind, count, by, why="; ".join(filter(None, (kernel, failed)))))

    def _kernel(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> TracedKernel | str:
        """The graph by kernels from the logs, or tuned now; or the reason that there are none."""
        traced = traced_or_why(graph, inputs, self.kind, self.options.strict)
        if not isinstance(traced, TracedFunction):
            return traced
        target = target_of(inputs)
        try:
            with among_data(), warnings.catch_warnings():
                # Random numbers are in the report.
                warnings.simplefilter("ignore", UncheckedWarning)
                if self.options.tunes:
                    tuned = tune(traced, target, self.options.trials, log=self.options.log)
                    if any(r.ending == "interrupted" for r in tuned.results):
                        raise KeyboardInterrupt
                return replay(traced, target, log=self.options.log)
        except AutoschedError as error:
            return str(error)

    def _chosen(self, call: Call, report: GraphReport) -> Callable[[list[Any]], Sequence[Any]]:
        _log.info("%s", report)
        self.report(report)
        return boxed(call)


def why_slower(kernel: TracedKernel, other: Call) -> str | None:
    """Reason to compute a graph by another than its kernels, from the medians of interleaved rounds; None for none.

    Where random integers might be out of the range of what PyTorch looks up, neither is run.
    """
    if unknown_integers(kernel.traced):
        return None
    try:
        with among_data(), torch.no_grad():
            given = random_arguments(kernel.traced, _SEED, kernel.device)
            calls: dict[str, Callable[[], object]] = {"ours": partial(kernel, *given), "other": partial(other, *given)}
            samples = interleaved(calls, _ROUNDS, timer_for(kernel.target, "hot"))
    except Exception as error:
        # A user's model runs all the same.
        return f"the kernels cannot be timed: {type(error).__name__}: {first_line(error)}"
    ours, others = (statistics.median(samples[name]) for name in calls)
    return f"it takes {others * 1e6:.1f} µs, the kernels {ours * 1e6:.1f}" if others < ours else None


def symbolic_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], options: Options, report: OnReport
) -> Callable[..., Any]:
    """A graph of Dynamo's with symbolic sizes, by others.

    Raises:
        InputError: `strict` refuses that.
    """
    why, count = "its sizes are symbolic", operators_of(graph)
    check_strict(options, GraphReport("symbolic", count, "inductor", why=why))
    by, call = whole_by_others(graph, inputs)
    made = GraphReport("symbolic", count, by, why=why)
    _log.info("%s", made)
    report(made)
    return call


def check_strict(options: Options, report: GraphReport) -> None:
    """Raise InputError where a graph is to be left to others, and `strict` refuses that."""
    if options.strict:
        raise InputError(f"strict: the {report.kind} graph of {report.operators} operators is left: {report.why}")


def boxed(call: Call) -> Callable[[list[Any]], Sequence[Any]]:
    """The call by AOTAutograd's convention: it takes its inputs in a list, which it empties."""

    def run(inputs: list[Any]) -> Sequence[Any]:
        given = tuple(inputs)
        inputs.clear()
        return call(*given)

    vars(run)["_boxed_call"] = True
    return run
