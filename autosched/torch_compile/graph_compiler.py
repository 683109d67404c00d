"""The compiler of one graph of ATen operators: kernels of autosched, or what users have anyway, for every segment."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from autosched.machine.deadline import NEVER, Deadline
from autosched.machine.memory import free_bytes
from autosched.measuring.session import local_measurer
from autosched.torch_compile.choosing.alternatives import with_alternatives, with_chosen
from autosched.torch_compile.choosing.timing_parts import MOST_S, seconds_of_graph, seconds_of_segment
from autosched.torch_compile.composition import Boxed, boxed, composed
from autosched.torch_compile.fallback import Call, as_cuda_graph, fallback_for
from autosched.torch_compile.graphs import computes, known, on_data, operators_of, weights_of, why_failed
from autosched.torch_compile.kernel_cache import replay
from autosched.torch_compile.options import Options
from autosched.torch_compile.parts import Choice, Fallbacks, Part, parts_of, reports_of
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.torch_compile.reports import GraphReport, Kind, Maker, OnReport, PartReport
from autosched.torch_compile.segments import DividedGraph, Segment
from autosched.torch_compile.shared_weights import Sharing
from autosched.torch_compile.threads import warn_of_threads, why_other_threads
from autosched.torch_compile.tuning.background import BackgroundTuning, TunedLater
from autosched.torch_compile.tuning.tuning_process import TuningWork
from autosched.torch_compile.tuning.tuning_together import tune_together
from autosched.tracing import TracedKernel, UncheckedWarning
from autosched.tracing.callables.stored import as_bytes
from autosched.tracing.capture.capture import Weights
from search_spaces import AutoschedError, InputError, Target
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)
# Of the time left when others have compiled the whole, searches have this part at least, and what is not needed to load
# kernels, about a second a segment, to compile the segments by others, and to compare.
_SEARCHES = 0.6
_LOADED_S = 1.0
# Part of the free memory that weights may take a second time.
_MOST_PREPARED = 0.25
# Part of the time left in which alternatives to kernels are timed: others' whole segments need most of it.
_ALTERNATIVES = 0.3
# A user's call that exchanges kernels tuned in the background waits so long for alternatives; it loads the kernels, and
# times the graph by them, which takes as long.
_WAITING_S = 5.0


@dataclass(frozen=True)
class GraphCompiler:
    """A compiler for AOTAutograd: takes a graph and inputs without data, returns a boxed call.

    `load`: the kernels of a traced function from a log; by default `replay`. `weights`: the numbers of a graph's inputs
    that are weights of the model; `tensors`: of the inputs, by number, where they are known.
    """

    kind: Kind
    options: Options
    report: OnReport
    load: Callable[..., TracedKernel] | None = None
    weights: Callable[[Sequence[Any], Kind], frozenset[int]] = weights_of
    tensors: Weights = field(default_factory=dict)

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
        """The graph as a function of a list of its inputs, which it empties.

        Raises:
            InputError: it is not computed by kernels of autosched alone, and `strict` refuses that.
        """
        try:
            made, report = self._compile(graph, inputs)
        except AutoschedError:
            raise
        except Exception as error:
            why = why_failed(self.kind, error)
            check_strict(self.options, self.kind, operators_of(graph), why)
            made, report = self._fall_back(graph, inputs, why)
        self._tell(report)
        return made

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> tuple[Boxed, GraphReport]:
        deadline = Deadline.after(self.options.seconds) if self.options.tunes else NEVER
        weights, tensors = self.weights(inputs, self.kind), known(self.tensors, inputs)
        divided = DividedGraph.of(graph, inputs, weights, tensors).for_kernels(self.kind)
        fallbacks = Fallbacks(self.options.graphs and any(x.is_cuda for x in inputs if isinstance(x, Tensor)))
        problems = traced_problems(divided, self.kind, self.options.allowed)
        if self.options.tunes:
            _start_workers(problems)
        compared = self._until_compared(divided, fallbacks, deadline)
        # With strict there must be kernels.
        last = NEVER if self.options.strict else deadline
        sharing = self._sharing(divided, moves=True)
        kernels = self.kernels(problems, compared, last, sharing)
        parts, report = _sharing_weights(sharing, *self._choose_parts(divided, kernels, fallbacks, deadline))
        made = self._plan(divided, parts)
        background = self.options.background
        if background is not None and (work := self._work(problems)) is not None:
            call = TunedLater(made)
            better = partial(self._tuned_or_as_before, background, (divided, problems, fallbacks), parts, made)
            background.add(work, lambda: call.become(better))
            return call, report
        return made, report

    def _until_compared(self, divided: DividedGraph, fallbacks: Fallbacks, deadline: Deadline) -> Deadline:
        """The end of searches, after which there is time to compare their kernels with others."""
        if not self.options.tunes or self.options.strict:
            return deadline
        # What users have without autosched comes first: it is needed in any case, and tells how long others compile.
        fallbacks.of(fallbacks.whole(divided))
        compared_s = MOST_S + sum(fallbacks.expected_s(s) + _LOADED_S for s, _ in divided.problems)
        return deadline.part(max(_SEARCHES, 1 - compared_s / max(deadline.left_s, compared_s)))

    def _choose_parts(
        self,
        divided: DividedGraph,
        kernels: Mapping[str, TracedKernel | str],
        fallbacks: Fallbacks,
        deadline: Deadline = NEVER,
    ) -> tuple[tuple[Part, ...], GraphReport]:
        if self.options.tunes and not self.options.strict:
            kernels = self._with_alternatives(divided, kernels, deadline.part(_ALTERNATIVES))
        choices: dict[str, Choice] = {}
        ordered = _most_first(divided)
        for number, segment in enumerate(ordered):
            share = deadline.part(1 / (1 + len(ordered) - number))
            choices[segment.key] = self._choice(segment, kernels[segment.key], fallbacks, share)
        parts = parts_of(divided, choices, fallbacks)
        seconds: Mapping[Maker, float] = {}
        if (len(parts) > 1 or divided.writes) and self.options.tunes and not self.options.strict:
            parts, seconds = self._whole_or_parts(divided, parts, kernels, fallbacks, deadline)
        moved = divided.before is not None and any(p.choice.kernel is not None for p in parts)
        memory_format = "channels last" if moved else ""
        return parts, GraphReport(
            self.kind, reports_of(parts), seconds=tuple(seconds.items()), memory_format=memory_format
        )

    def _work(self, problems: Mapping[str, TracedProblem | str]) -> TuningWork | None:
        """The tuning of a graph's kernels in another process; None where there is nothing to tune."""
        stored = [kept for p in problems.values() if isinstance(p, TracedProblem) and (kept := _stored(p)) is not None]
        if not stored:
            return None
        options = self.options
        log = None if options.log is None else os.path.abspath(options.log)
        gpu = torch.cuda.current_device() if stored[0][1].kind == "gpu" else None
        return TuningWork(tuple(stored), gpu, options.trials, options.seconds, log)

    def _tuned_or_as_before(
        self,
        background: BackgroundTuning,
        graph: tuple[DividedGraph, Mapping[str, TracedProblem | str], Fallbacks],
        before: tuple[Part, ...],
        made: Boxed,
    ) -> Boxed:
        """A graph by the kernels that logs have now, or as it was made before, whichever is faster."""
        divided, problems, fallbacks = graph
        try:
            # Other threads may be using the weights.
            sharing = self._sharing(divided, moves=False)
            loaded = self.kernels(problems, NEVER, sharing=sharing)
            kernels = self._with_alternatives(divided, loaded, Deadline.after(_WAITING_S))
            tuned, tuned_report = _sharing_weights(sharing, *self._choose_parts(divided, kernels, fallbacks))
            known = {key: kernel for key, kernel in kernels.items() if isinstance(kernel, TracedKernel)}
            # Neither of them is what the user calls: CUDA graphs remember where inputs lay.
            calls = {name: self._call_of(divided, parts) for name, parts in (("tuned", tuned), ("before", before))}
            seconds = seconds_of_graph(divided, known, calls)
        except Exception as error:
            # A user's model runs all the same.
            background.failed(f"{self.kind} graph: {type(error).__name__}: {first_line(error)}")
            return made
        if isinstance(seconds, str):
            background.failed(f"{self.kind} graph: the kernels cannot be timed: {seconds}")
            return made
        text = ", ".join(f"{name} {s * 1e6:.1f} µs" for name, s in seconds.items()) or "no kernels"
        _log.info("tuned in the background: %s graph: %s", self.kind, text)
        if not seconds or seconds["before"] <= seconds["tuned"]:
            return made
        self._tell(tuned_report)
        return self._plan(divided, tuned)

    def _tell(self, report: GraphReport) -> None:
        _log.info("%s", report)
        self.report(report)

    def _fall_back(self, graph: fx.GraphModule, inputs: Sequence[Any], why: str) -> tuple[Boxed, GraphReport]:
        """A graph that a defect leaves to others."""
        fallback = fallback_for(graph, inputs)
        why = "; ".join(filter(None, (why, fallback.failed)))
        call = self._launched(fallback.call, DividedGraph(graph, tuple(inputs), frozenset(), (), graph).whole)
        return boxed(call), GraphReport(self.kind, (PartReport(operators_of(graph), fallback.by, why=why),))

    def _sharing(self, divided: DividedGraph, moves: bool) -> Sharing | None:
        return Sharing(divided, moves) if self.options.share_weights else None

    def kernels(
        self,
        problems: Mapping[str, TracedProblem | str],
        deadline: Deadline,
        last: Deadline = NEVER,
        sharing: Sharing | None = None,
    ) -> dict[str, TracedKernel | str]:
        """For every distinct segment its kernels from the logs, or tuned now; or the reason that there are none.

        `deadline`, `last`: the `ends` of `tune_together`. `sharing`: the weights that need no copies.
        """
        with on_data(), warnings.catch_warnings():
            # Random numbers are in the report.
            warnings.simplefilter("ignore", UncheckedWarning)
            traced = {key: p for key, p in problems.items() if isinstance(p, TracedProblem)}
            errors: list[Exception | None] = [None] * len(traced)
            if self.options.tunes:
                functions = [(p.traced, p.target, p.times) for p in traced.values()]
                ends, chosen = (deadline, last), self.options
                errors = tune_together(functions, chosen.trials, ends, chosen.log, measurer=chosen.measurer)
            known = {key: self._kernel(p, error) for (key, p), error in zip(traced.items(), errors, strict=True)}
            times = {key: p.times for key, p in traced.items()}
            kept = _within_memory(known, times, sharing)
            return {**{key: p for key, p in problems.items() if isinstance(p, str)}, **kept}

    def _kernel(self, problem: TracedProblem, untuned: Exception | None) -> TracedKernel | str:
        try:
            if untuned is not None:
                raise untuned
            load = self.load or partial(replay, strict=self.options.strict)
            kernel = load(problem.traced, problem.target, log=self.options.log)
            return kernel if self.options.strict else with_chosen(kernel)
        except InputError as error:
            why = why_other_threads(problem.traced, problem.target, self.options.log)
            if why is not None:
                warn_of_threads(why)
            return why or str(error)
        except AutoschedError as error:
            return str(error)
        except Exception as error:
            # A user's model runs all the same.
            return why_failed(self.kind, error)

    def choose_alternatives(
        self, divided: DividedGraph, problems: Mapping[str, TracedProblem | str], deadline: Deadline
    ) -> None:
        """Note in the log which alternatives to a graph's kernels are faster in place, as long as there is time."""
        self._with_alternatives(divided, self.kernels(problems, NEVER), deadline)

    def _with_alternatives(
        self, divided: DividedGraph, kernels: Mapping[str, TracedKernel | str], deadline: Deadline
    ) -> Mapping[str, TracedKernel | str]:
        return with_alternatives(self.kind, _most_first(divided), kernels, self._alone, self.options.log, deadline)

    def _choice(self, segment: Segment, kernel: TracedKernel | str, fallbacks: Fallbacks, deadline: Deadline) -> Choice:
        """The maker of a segment: the fastest, where they are timed; others as long as there is time to compile.

        Raises:
            InputError: no kernels compute it, and `strict` refuses that.
        """
        if isinstance(kernel, str):
            if computes(segment.module):
                check_strict(self.options, self.kind, segment.operators, kernel)
            return Choice("inductor", why=kernel)
        if self.options.strict or not self.options.tunes:
            return Choice("autosched", kernel)
        made: dict[Maker, Call] = {}
        if fallbacks.expected_s(segment) <= deadline.left_s:
            fallback = fallbacks.of(segment)
            made[fallback.by] = fallback.call
        made["eager"] = segment.module.forward
        launched = {by: self._launched(call, segment) for by, call in made.items()}
        calls: dict[Maker, Call] = {"autosched": self._alone(segment, kernel), **launched}
        seconds = seconds_of_segment(kernel, calls, deadline)
        if isinstance(seconds, str):
            return Choice("inductor", why=f"the kernels cannot be timed: {seconds}")
        return _fastest(kernel, seconds)

    def _alone(self, segment: Segment, kernel: TracedKernel) -> Call:
        """The kernels of a segment as the whole graph launches them: a slow host must not decide against them."""
        divided = DividedGraph.of(segment.module, segment.examples, segment.weights)
        return self._call_of(divided, [Part(divided.whole, kernel, Choice("autosched", kernel))])

    def _whole_or_parts(
        self,
        divided: DividedGraph,
        parts: tuple[Part, ...],
        kernels: Mapping[str, TracedKernel | str],
        fallbacks: Fallbacks,
        deadline: Deadline,
    ) -> tuple[tuple[Part, ...], Mapping[Maker, float]]:
        """The parts of a graph, or the whole by others where that is faster; and the seconds of both."""
        known = {key: kernel for key, kernel in kernels.items() if isinstance(kernel, TracedKernel)}
        segment = fallbacks.whole(divided)
        whole = fallbacks.of(segment)
        left = [Part(segment, whole.call, Choice(whole.by))]
        calls: dict[Maker, Call] = {"autosched": self._call_of(divided, parts), whole.by: self._call_of(divided, left)}
        seconds = seconds_of_graph(divided, known, calls, deadline)
        if isinstance(seconds, str):
            choice, seconds = Choice(whole.by, why=f"the parts cannot be timed: {seconds}"), {}
        else:
            choice = replace(_fastest(None, seconds), seconds=())
        return (parts if choice.by == "autosched" else (Part(segment, whole.call, choice),)), seconds

    def _plan(self, divided: DividedGraph, parts: Sequence[Part]) -> Boxed:
        # In training, what the forward graph keeps is free when a part of the backward graph has read it.
        apart = self.kind != "inference"
        calls = [(p.segment, self._launched(p.call, p.segment)) for p in parts]
        return composed(divided, calls, self.options.graphs, apart)

    def _call_of(self, divided: DividedGraph, parts: Sequence[Part]) -> Call:
        call = self._plan(divided, parts)
        return lambda *inputs: call([*inputs])

    def _launched(self, call: Call, segment: Segment) -> Call:
        """A part as it is called: by one launch, where the mode says so and others than our kernels compute it."""
        if not self.options.graphs or isinstance(call, TracedKernel):
            return call
        return as_cuda_graph(call, segment.module, segment.examples)


def _start_workers(problems: Mapping[str, TracedProblem | str]) -> None:
    """Let the processes that compile and measure kernels start, which takes seconds, while others compile the whole."""
    for target in {p.target for p in problems.values() if isinstance(p, TracedProblem)}:
        # The search itself says that there is none.
        with contextlib.suppress(AutoschedError):
            local_measurer(target)


def _most_first(divided: DividedGraph) -> list[Segment]:
    """The distinct segments, those of most operators first: they are compared as long as there is time."""
    ordered = sorted(divided.problems, key=lambda problem: -problem[0].operators * problem[1])
    return [segment for segment, _ in ordered]


def _sharing_weights(
    sharing: Sharing | None, parts: tuple[Part, ...], report: GraphReport
) -> tuple[tuple[Part, ...], GraphReport]:
    """The parts of a graph, which share weights from now on, and its report."""
    if sharing is not None:
        parts = sharing.applied(parts)
        report = replace(report, parts=reports_of(parts))
    return parts, report


def _within_memory(
    kernels: Mapping[str, TracedKernel | str], times: Mapping[str, int], sharing: Sharing | None
) -> Mapping[str, TracedKernel | str]:
    """The kernels, all as written where what rewrites prepare of weights would take much of the free memory.

    `times`: how often each is in the graph.
    """
    made = {key: k for key, k in kernels.items() if isinstance(k, TracedKernel)}
    copied = sharing.copied_bytes(made) if sharing else {key: times[key] * k.rewritten_bytes for key, k in made.items()}
    rewritten = {key: made[key] for key, n in copied.items() if n}
    needed = sum(copied.values())
    free = free_bytes(next(iter(rewritten.values())).device) if rewritten else None
    if free is None or needed <= _MOST_PREPARED * free:
        return kernels
    why = f"rewrites of the graph would prepare {needed / 1e9:.2f} GB of weights, of {free / 1e9:.2f} free"
    _log.info("%s: they are left out", why)
    return {**kernels, **{key: kernel.as_written(why) or kernel for key, kernel in rewritten.items()}}


def _stored(problem: TracedProblem) -> tuple[bytes, Target, int] | None:
    """A segment for another process; None where something in it has no bytes."""
    try:
        return as_bytes(problem.traced.for_target(problem.target)), problem.target, problem.times
    except Exception:
        # Operators of users have no bytes, and what cannot be cut says so in its search.
        return None


def _fastest(kernel: TracedKernel | None, seconds: Mapping[Maker, float]) -> Choice:
    """The fastest maker; autosched where none was timed."""
    by: Maker = min(seconds, key=lambda maker: seconds[maker]) if seconds else "autosched"
    timed = tuple(seconds.items())
    if by == "autosched":
        return Choice(by, kernel, seconds=timed)
    why = f"it takes {seconds[by] * 1e6:.1f} µs, the kernels {seconds['autosched'] * 1e6:.1f}"
    return Choice(by, why=why, seconds=timed)


def check_strict(options: Options, kind: Kind, operators: int, why: str) -> None:
    """Raise InputError where operators of a graph are to be left to others, and `strict` refuses that."""
    if options.strict:
        raise InputError(
            f"strict: {operators} operators of the {kind} graph are left: {why}; without strict PyTorch computes them"
        )
