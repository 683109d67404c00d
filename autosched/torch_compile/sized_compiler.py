"""The compiler of graphs with symbolic sizes: kernels at the sizes of calls, and what users have anyway at others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from autosched.replaying.nearest import nearest_kernels
from autosched.torch_compile.graph_compiler import (
    GraphCompiler,
    boxed,
    check_strict,
    kernel_or_why,
    report_of,
    why_slower,
)
from autosched.torch_compile.graphs import operators_of, target_of, traced_or_why, weights_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.others import Call, by_others
from autosched.torch_compile.reports import GraphReport, Kind, Maker, OnReport
from autosched.torch_compile.sized_graph import SizedGraph, SizePlaces, Sizes
from autosched.tracing import TracedFunction, TracedKernel
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SizedCompiler:
    """A compiler for AOTAutograd: takes a graph and symbolic inputs without data, returns a boxed call."""

    kind: Kind
    options: Options
    report: OnReport

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Sequence[Any]]:
        """The graph as a function of a list of its inputs, which it empties."""
        by: Maker = "inductor"
        others: Call | None = None
        if not self.options.strict:
            by, others, failed = by_others(graph, inputs)
            why = "; ".join(filter(None, ("its sizes change", failed)))
            self.inform(GraphReport(self.kind, operators_of(graph), by, why=why))
        at_sizes = _AtSizes(self, graph, weights_of(inputs, self.kind), by, others)
        return boxed(SizedGraph(SizePlaces.of(inputs), at_sizes, others))

    def inform(self, report: GraphReport) -> None:
        """Tell users of a report."""
        _log.info("%s", report)
        self.report(report)


@dataclass(frozen=True)
class _AtSizes:
    """A graph by kernels at the sizes of calls; `others` compute it at any sizes, None where `strict` refuses that."""

    compiler: SizedCompiler
    graph: fx.GraphModule
    weights: frozenset[int]
    by: Maker
    others: Call | None

    def __call__(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Call | None:
        """The graph at the sizes of these inputs by kernels that are faster than others; None where there are none.

        Raises:
            InputError: there are none, and `strict` refuses others.
        """
        kind, options, count = self.compiler.kind, self.compiler.options, operators_of(self.graph)
        kernel = self._kernel(inputs, first)
        # Schedules of other sizes may be slow at these.
        slower = self._why_slower(kernel, inputs) if isinstance(kernel, TracedKernel) else kernel
        if isinstance(kernel, TracedKernel) and slower is None:
            self.compiler.inform(report_of(kernel, kind, count, sizes))
            return partial(_of_tensors, kernel)
        report = GraphReport(kind, count, self.by, why=slower or "", sizes=sizes)
        check_strict(options, report)
        self.compiler.inform(report)
        return None

    def _kernel(self, inputs: Sequence[Any], first: bool) -> TracedKernel | str:
        """The kernels, or the reason that there are none."""
        kind, options = self.compiler.kind, self.compiler.options
        try:
            graph, tensors = specialised(self.graph, inputs)
        except Exception as error:
            # A user's model runs all the same.
            return f"it is not captured at these sizes: {type(error).__name__}: {first_line(error)}"
        places = [n for n, x in enumerate(inputs) if isinstance(x, Tensor)]
        weights = frozenset(number for number, n in enumerate(places) if n in self.weights)
        if first and options.tunes:
            return GraphCompiler(kind, options, self.compiler.report).kernel(graph, tensors, weights)
        traced = traced_or_why(graph, tensors, kind, options.strict, weights)
        if not isinstance(traced, TracedFunction):
            return traced
        return kernel_or_why(lambda: nearest_kernels(traced, target_of(tensors), log=options.log))

    def _why_slower(self, kernel: TracedKernel, inputs: Sequence[Any]) -> str | None:
        others = self.others
        if others is None:
            return None

        def of_tensors(*drawn: Tensor) -> Sequence[Any]:
            return others(*_with_tensors(inputs, drawn))

        return why_slower(kernel, of_tensors)


def specialised(graph: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[Tensor]]:
    """The graph at the sizes of these inputs, of which it takes the tensors alone; and these, without data."""
    from torch.fx.experimental.proxy_tensor import make_fx

    detached = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    with torch.no_grad(), FakeTensorMode() as mode:
        fake = [mode.from_tensor(x, static_shapes=True) if isinstance(x, Tensor) else x for x in detached]
        tensors = [x for x in fake if isinstance(x, Tensor)]
        return make_fx(lambda *given: graph(*_with_tensors(fake, given)))(*tensors), tensors


def _of_tensors(kernel: TracedKernel, *inputs: Any) -> Sequence[Any]:
    made: Sequence[Any] = kernel(*(x for x in inputs if isinstance(x, Tensor)))
    return made


def _with_tensors(inputs: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
    """The inputs, with these tensors in the place of their own."""
    rest = iter(tensors)
    return [next(rest) if isinstance(x, Tensor) else x for x in inputs]
