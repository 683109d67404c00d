"""Latencies of segments and of whole graphs by their makers, measured in turn on random inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, fx

from autosched.machine.timing import interleaved, timer_for
from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.others import Call
from autosched.torch_compile.segments import DividedGraph
from autosched.tracing import TracedKernel
from autosched.tracing.callables.random_arguments import random_arguments, unknown_integers
from search_spaces import Target
from tuning_logs.text import first_line

# Rounds in which makers are compared; the median of so many is stable to some percent.
_ROUNDS = 20
_SEED = 0

Name = TypeVar("Name", bound=str)


def seconds_of_segment(kernel: TracedKernel, calls: Mapping[Name, Call]) -> dict[Name, float] | str:
    """Median latency of every call in place of a kernel, by name; or the reason that there is none.

    Empty where random integers might be out of the range of what PyTorch looks up: nothing is run then.
    """
    if unknown_integers(kernel.traced):
        return {}
    return _seconds(lambda: random_arguments(kernel.traced, _SEED, kernel.device), calls, kernel.target)


def seconds_of_graph(
    divided: DividedGraph, kernels: Mapping[str, TracedKernel], calls: Mapping[Name, Call]
) -> dict[Name, float] | str:
    """The same of a whole graph. `kernels`: of segments, by their keys; these tell the ranges of integers."""
    targets = [k.target for k in kernels.values() if k.kernels]
    if not targets or any(unknown_integers(k.traced) for k in kernels.values()) or not _all_known(divided, kernels):
        return {}
    return _seconds(lambda: _random_inputs(divided, kernels), calls, targets[0])


def _seconds(
    draw: Callable[[], Sequence[Tensor]], calls: Mapping[Name, Call], target: Target
) -> dict[Name, float] | str:
    try:
        with on_data(), torch.no_grad():
            given = draw()
            runs: dict[str, Callable[[], object]] = {name: partial(call, *given) for name, call in calls.items()}
            samples = interleaved(runs, _ROUNDS, timer_for(target, "hot"))
    except Exception as error:
        # A user's model runs all the same.
        return f"{type(error).__name__}: {first_line(error)}"
    return {name: statistics.median(samples[name]) for name in calls}


def _all_known(divided: DividedGraph, kernels: Mapping[str, TracedKernel]) -> bool:
    """True if every input of a graph is of floating-point numbers, or read by one segment, which has kernels."""
    readers = {n: [s for s in divided.segments if n in s.inputs] for n in divided.whole.inputs}
    return all(
        example.is_floating_point() or (len(readers[n]) == 1 and readers[n][0].key in kernels)
        for n, example in zip(divided.whole.inputs, divided.examples, strict=True)
    )


def _random_inputs(divided: DividedGraph, kernels: Mapping[str, TracedKernel]) -> list[Tensor]:
    drawn: dict[fx.Node, Tensor] = {}
    for segment in divided.segments:
        if (kernel := kernels.get(segment.key)) is not None:
            drawn |= dict(zip(segment.inputs, random_arguments(kernel.traced, _SEED, kernel.device), strict=True))
    return [drawn[n] if n in drawn else _normal(x) for n, x in zip(divided.whole.inputs, divided.examples, strict=True)]


def _normal(like: Any) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).normal_()
