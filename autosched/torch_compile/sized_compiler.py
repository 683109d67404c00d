"""The compiler of graphs with symbolic sizes: kernels at the sizes of calls, and what users have anyway at others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from autosched.machine.deadline import Deadline
from autosched.replaying.nearest import nearest_kernels, trials_of_nearest
from autosched.torch_compile.choosing.timing_parts import seconds_of_graph
from autosched.torch_compile.composition import Boxed, boxed, composed
from autosched.torch_compile.fallback import Call, Fallback, fallback_for
from autosched.torch_compile.graph_compiler import GraphCompiler, check_strict
from autosched.torch_compile.graphs import computes, operators_of, weights_of, why_failed
from autosched.torch_compile.options import Options
from autosched.torch_compile.parts import Choice, Fallbacks, parts_of, reports_of
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.torch_compile.reports import GraphReport, Kind, Maker, OnReport, PartReport
from autosched.torch_compile.segments import DividedGraph
from autosched.torch_compile.sized_graph import SizedGraph, SizePlaces, Sizes
from autosched.tracing import TracedKernel
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SizedCompiler:
    """A compiler for AOTAutograd: takes a graph and symbolic inputs without data, returns a boxed call."""

    kind: Kind
    options: Options
    report: OnReport

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
        """The graph as a function of a list of its inputs, which it empties."""
        other = None if self.options.strict else fallback_for(graph, inputs)
        if other is not None:
            why = "; ".join(filter(None, ("its sizes change", other.failed)))
            self.inform(GraphReport(self.kind, (PartReport(operators_of(graph), other.by, why=why),)))
        at_sizes = _AtSizes(self, graph, weights_of(inputs, self.kind), other)
        return SizedGraph(SizePlaces.of(inputs), at_sizes, None if other is None else boxed(other.call))

    def inform(self, report: GraphReport) -> None:
        """Tell users of a report."""
        _log.info("%s", report)
        self.report(report)


@dataclass(frozen=True)
class _TracedGraph:
    """A graph at some sizes, in segments, and these cut into kernels (`traced_problems`)."""

    divided: DividedGraph
    problems: Mapping[str, TracedProblem | str]


@dataclass(frozen=True)
class _AtSizes:
    """A graph by kernels at the sizes of calls; `other` computes it at any sizes, None where `strict` refuses that.

    `begun`: the graph at sizes whose kernels are on trial.
    """

    compiler: SizedCompiler
    graph: fx.GraphModule
    weights: frozenset[int]
    other: Fallback | None
    begun: dict[Sizes, _TracedGraph] = field(default_factory=dict)

    def __call__(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Boxed | None:
        """The graph at the sizes of these inputs by kernels that are faster than others; None where there are none.

        Raises:
            InputError: there are none, and `strict` refuses others.
        """
        compiler, count = self.compiler, operators_of(self.graph)
        try:
            found = self._by_kernels(sizes, inputs, first)
        except Exception as error:
            # A user's model runs all the same.
            found = why_failed(compiler.kind, error)
        if not isinstance(found, str):
            call, parts = found
            compiler.inform(GraphReport(compiler.kind, parts, sizes))
            return call
        check_strict(compiler.options, compiler.kind, count, found)
        assert self.other is not None
        compiler.inform(GraphReport(compiler.kind, (PartReport(count, self.other.by, why=found),), sizes))
        return None

    def before(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Callable[[], None] | None:
        """Trials of schedules of other sizes."""
        options = self.compiler.options
        if self.other is None or (first and options.tunes):
            return None
        try:
            found = self._traced(inputs)
            if isinstance(found, str):
                return None
            self.begun.clear()
            self.begun[sizes] = found
            problems = [problem for problem in found.problems.values() if isinstance(problem, TracedProblem)]
            trials = [trials_of_nearest(p.traced, p.target, log=options.log) for p in problems]
        except Exception:
            # There are no kernels, and who asks for these tells why.
            return None
        needed = [each for each in trials if each is not None]
        return partial(_each, needed) if needed else None

    def _traced(self, inputs: Sequence[Any]) -> _TracedGraph | str:
        """The graph at the sizes of these inputs, or the reason that it cannot be had."""
        try:
            graph, tensors = specialised(self.graph, inputs)
        except Exception as error:
            # A user's model runs all the same.
            return f"it is not captured at these sizes: {type(error).__name__}: {first_line(error)}"
        places = [n for n, x in enumerate(inputs) if isinstance(x, Tensor)]
        weights = frozenset(number for number, n in enumerate(places) if n in self.weights)
        divided = DividedGraph.of(graph, tensors, weights).for_kernels(self.compiler.kind)
        return _TracedGraph(divided, traced_problems(divided, self.compiler.kind, self.compiler.options.allowed))

    def _by_kernels(
        self, sizes: Sizes, inputs: Sequence[Any], first: bool
    ) -> tuple[Boxed, tuple[PartReport, ...]] | str:
        """The graph by kernels alone, with reports of its parts; or the reason that others compute it."""
        found = self.begun.pop(sizes, None) or self._traced(inputs)
        if isinstance(found, str):
            return found
        divided, kernels = found.divided, self._kernels_of(found, first)
        if isinstance(kernels, str):
            return kernels
        choices = {s.key: _choice(kernels.get(s.key)) for s, _ in divided.problems}
        parts = parts_of(divided, choices, Fallbacks())
        graphs, apart = self.compiler.options.graphs, self.compiler.kind != "inference"
        whole = composed(divided, [(part.segment, part.call) for part in parts], graphs, apart)
        call = partial(_of_tensors, whole)
        return self._why_slower(divided, kernels, call, inputs) or (call, reports_of(parts))

    def _kernels_of(self, traced: _TracedGraph, first: bool) -> dict[str, TracedKernel] | str:
        """The kernels of all segments that compute something, or the reason that one has none."""
        kind, options, report = self.compiler.kind, self.compiler.options, self.compiler.report
        tuned = first and options.tunes
        if not tuned:
            options = replace(options, mode="default")
        loaded = GraphCompiler(kind, options, report, None if tuned or options.strict else nearest_kernels)
        found = loaded.kernels(traced.problems, Deadline.after(options.seconds))
        computing = {s.key for s, _ in traced.divided.problems if computes(s.module)}
        missing = [made for key, made in found.items() if isinstance(made, str) and key in computing]
        if missing:
            return missing[0]
        return {key: made for key, made in found.items() if isinstance(made, TracedKernel)}

    def _why_slower(
        self, divided: DividedGraph, kernels: Mapping[str, TracedKernel], call: Boxed, inputs: Sequence[Any]
    ) -> str | None:
        """Reason that others compute the graph at these sizes: schedules of other sizes may be slow there."""
        if self.other is None:
            return None
        by, other = self.other.by, self.other.call

        def of_tensors(*tensors: Tensor) -> Sequence[Any]:
            return other(*_with_tensors(inputs, tensors))

        calls: dict[Maker, Call] = {"autosched": lambda *tensors: call(list(tensors)), by: of_tensors}
        seconds = seconds_of_graph(divided, kernels, calls)
        if isinstance(seconds, str):
            return f"the kernels cannot be timed: {seconds}"
        if not seconds or seconds["autosched"] <= seconds[by]:
            return None
        return f"it takes {seconds[by] * 1e6:.1f} µs, the kernels {seconds['autosched'] * 1e6:.1f}"


def _choice(kernel: TracedKernel | None) -> Choice:
    return Choice("eager", why="it computes nothing") if kernel is None else Choice("autosched", kernel)


def _each(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()


def specialised(graph: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[Tensor]]:
    """The graph at the sizes of these inputs, of which it takes the tensors alone; and these, without data."""
    from torch.fx.experimental.proxy_tensor import make_fx

    detached = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    with torch.no_grad(), FakeTensorMode() as mode:
        fake = [mode.from_tensor(x, static_shapes=True) if isinstance(x, Tensor) else x for x in detached]
        tensors = [x for x in fake if isinstance(x, Tensor)]
        return make_fx(lambda *given: graph(*_with_tensors(fake, given)))(*tensors), tensors


def _of_tensors(call: Boxed, inputs: list[Any]) -> Sequence[Any]:
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    inputs.clear()
    return call(tensors)


def _with_tensors(inputs: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
    """The inputs, with these tensors in the place of their own."""
    rest = iter(tensors)
    return [next(rest) if isinstance(x, Tensor) else x for x in inputs]
