"""Latencies of segments and of whole graphs by their makers, in interleaved rounds on random inputs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, fx

from autosched.checking.histograms import over
from autosched.machine.deadline import NEVER, Deadline
from autosched.machine.timing import Operand, activations_of, interleaved, timer_for
from autosched.torch_compile.fallback import Call
from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.segments import DividedGraph
from autosched.tracing import TracedKernel
from autosched.tracing.callables.random_arguments import (
    random_arguments,
    timed_bounds,
    unknown_integers,
    with_least_integers,
)
from search_spaces import Target
from tuning_logs.text import first_line

# Rounds in which makers are compared; the median of so many is stable to some percent. Where they take longer than
# `MOST_S`, calls take tenths of seconds, which differ less; the median of fewer than three may be a disturbed one.
_ROUNDS, _LEAST_ROUNDS = 20, 3
MOST_S = 4.0
_SEED = 0

Name = TypeVar("Name", bound=str)


def rounds_of_segment(
    kernel: TracedKernel, calls: Mapping[Name, Call], deadline: Deadline = NEVER
) -> dict[Name, list[float]] | str:
    """Seconds of every call in place of a kernel, in interleaved rounds, by name; or the reason that there are none.

    As within a model: weights come from memory.
    """
    operands, ends = kernel.traced.arguments, partial(_timed_ends, kernel)
    return _rounds(lambda: _arguments(kernel), calls, kernel.target, deadline, operands, ends)


def seconds_of_segment(
    kernel: TracedKernel, calls: Mapping[Name, Call], deadline: Deadline = NEVER
) -> dict[Name, float] | str:
    """Median latency of every call in place of a kernel, by name; or the reason that there is none.

    After the deadline, in few rounds.
    """
    ends = partial(_timed_ends, kernel)
    return _medians(_rounds(lambda: _arguments(kernel), calls, kernel.target, deadline, ends=ends))


def seconds_of_graph(
    divided: DividedGraph,
    kernels: Mapping[str, TracedKernel],
    calls: Mapping[Name, Call],
    deadline: Deadline = NEVER,
) -> dict[Name, float] | str:
    """The same of a whole graph. `kernels`: of segments, by their keys; these tell the ranges of integers.

    Empty where no segment has kernels.
    """
    targets = [k.target for k in kernels.values() if k.kernels]
    # A position that every run moves on would end outside of what it is a position in.
    moved = frozenset(n for n in divided.writes if not divided.examples[n].is_floating_point())
    apart = {name: partial(_on_copies, call, moved) for name, call in calls.items()} if moved else calls
    return _medians(_rounds(lambda: _inputs(divided, kernels), apart, targets[0], deadline)) if targets else {}


def _on_copies(call: Call, numbers: frozenset[int], *inputs: Tensor) -> Sequence[Any]:
    return call(*[x.clone() if n in numbers else x for n, x in enumerate(inputs)])


def _medians(rounds: dict[Name, list[float]] | str) -> dict[Name, float] | str:
    return rounds if isinstance(rounds, str) else {name: statistics.median(taken) for name, taken in rounds.items()}


def _rounds(
    draw: Callable[[], Sequence[Tensor]],
    calls: Mapping[Name, Call],
    target: Target,
    deadline: Deadline = NEVER,
    operands: Sequence[Operand] | None = None,
    ends: Callable[[Sequence[Tensor]], Mapping[str, Mapping[int, Tensor]]] = lambda _: {},
) -> dict[Name, list[float]] | str:
    """`operands`: of the calls, whose weights come from memory; None: with hot caches. `ends`: of segments."""
    # PyTorch raises where integers are divisors that must not be 0, and kernels end the process.
    names = sorted(calls, key=lambda name: name == "autosched")
    gpus = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    try:
        # The user's next random numbers are as they would be without.
        with on_data(), torch.no_grad(), torch.random.fork_rng(gpus):
            given = draw()
            activations = [] if operands is None else activations_of(operands, given)
            plain = timer_for(target, "hot" if operands is None else "model", activations=lambda: activations)
            timer = over(ends(given), given, plain)
            runs: dict[str, Callable[[], object]] = {name: partial(calls[name], *given) for name in names}
            samples = interleaved(runs, _ROUNDS, timer, deadline.within(MOST_S), _LEAST_ROUNDS)
    except Exception as error:
        # A user's model runs all the same.
        return f"{type(error).__name__}: {first_line(error)}"
    return {name: samples[name] for name in calls}


def _arguments(kernel: TracedKernel) -> list[Tensor]:
    """Random arguments; integers are 0, an index into any tensor, where PyTorch may find others out of range."""
    drawn = random_arguments(kernel.traced, _SEED, kernel.device)
    return list(with_least_integers(drawn))[-1] if unknown_integers(kernel.traced) else drawn


def _timed_ends(kernel: TracedKernel, arguments: Sequence[Tensor]) -> Mapping[str, Mapping[int, Tensor]]:
    """Ends of segments for timing; none where integers are to stay 0."""
    return {} if unknown_integers(kernel.traced) else timed_bounds(kernel.traced, arguments)


def _inputs(divided: DividedGraph, kernels: Mapping[str, TracedKernel]) -> list[Tensor]:
    """Random inputs of a graph; integers are as of the only segment that reads them, if that has kernels, or else 0."""
    drawn: dict[fx.Node, Tensor] = {}
    readers = Counter(node for segment in divided.segments for node in segment.inputs)
    for segment in divided.segments:
        if (kernel := kernels.get(segment.key)) is not None:
            drawn |= dict(zip(segment.inputs, _arguments(kernel), strict=True))
    return [
        drawn[node] if node in drawn and (readers[node] == 1 or drawn[node].is_floating_point()) else _like(example)
        for node, example in zip(divided.whole.inputs, divided.examples, strict=True)
    ]


def _like(example: Tensor) -> Tensor:
    """Normal numbers, or 0 where there are none."""
    made = torch.empty_strided(example.shape, example.stride(), dtype=example.dtype, device=example.device).zero_()
    return made.normal_() if made.is_floating_point() and made.dtype.itemsize > 1 else made
