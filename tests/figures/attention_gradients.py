"""Gradients of attention by tuned kernels against those of other backends: one row of the figures of attention.

The gradients are checked against float64's, of the first of the batch: their error is relative to the largest of each.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import autosched
from autosched.machine.timing import Run, Timer, interleaved
from autosched.tracing.callables.differentiable import DifferentiableKernel
from autosched.tuning.history import all_of, tuning_history
from search_spaces import Target
from tuning_logs import TuningLog
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
HEAD = ("gradients of", "launches", "forward", "backward", "error", "tuning", "to 95 %")
# What is multiplied is rounded to 8 bits, and so is each gradient: of the largest of one that is 0.4 %, and points of a
# row are rounded twice before they are summed up.
TOLERANCE = 0.02


@dataclass(frozen=True)
class Tuning:
    """How gradients are tuned, and timed afterwards."""

    target: Target
    trials: int
    log: Path
    rounds: int
    timer: Timer


def gradient_row(
    name: str, function: Attention, inputs: tuple[Tensor, ...], others: Mapping[str, Attention], tuning: Tuning
) -> tuple[str, ...]:
    """One function with its gradient: tuned, checked, and timed in turn with other ways to compute both.

    Raises:
        AssertionError: a gradient is further from float64's than `TOLERANCE`.
    """
    given = tuple(x.requires_grad_() for x in inputs)
    result = autosched.tune(autosched.trace(function, *given, backward=True), trials=tuning.trials, log=tuning.log)
    print(result, flush=True)
    kernel = result.kernel
    assert isinstance(kernel, DifferentiableKernel)
    generator = torch.Generator(device=given[0].device).manual_seed(1)
    slope = torch.randn(function(*given).shape, generator=generator, device=given[0].device, dtype=given[0].dtype)
    backward = {"tuned": _backward(kernel, given, slope)}
    forward: dict[str, Run] = {"tuned": partial(kernel, *given)}
    for other, called in others.items():
        try:
            backward[other] = _backward(called, given, slope)
            forward[other] = partial(called, *given)
        except RuntimeError as error:
            print(f"  {other}: {str(error).splitlines()[0]}", flush=True)
    error = worst(backward["tuned"](), function, given, slope)
    assert error <= TOLERANCE, f"{name}: a gradient is {error:.1e} of the largest away from float64's"
    seconds = [interleaved(runs, tuning.rounds, tuning.timer) for runs in (forward, backward)]
    known = TuningLog(tuning.log)
    history = all_of([tuning_history(list(known.records(r.workload, tuning.target))) for r in result.results])
    took = f"{history.seconds:.0f} s, {history.trials} trials" if history else ""
    near = f"{history.near_trials} trials, {history.near_s:.1f} s" if history else ""
    traced = kernel.traced
    launches = f"{len(traced.forward.launched)} + {len(traced.backward.launched)}"
    return (name, launches, *map(_timed, seconds), f"{error:.1e}", took, near)


def worst(got: tuple[Tensor, ...], function: Attention, given: tuple[Tensor, ...], slope: Tensor) -> float:
    """The largest error of these gradients for the first of the batch, relative to the largest of each."""
    wide = [x.detach()[:1].double().requires_grad_() for x in given]
    wanted = torch.autograd.grad(function(*wide), wide, slope[:1].double())
    errors = [(a[:1].double() - b).abs().max() / b.abs().max() for a, b in zip(got, wanted, strict=True)]
    # A maximum of tensors, so that NaN is the largest.
    return float(torch.stack(errors).max())


def _backward(
    function: Callable[..., Tensor], given: tuple[Tensor, ...], slope: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    """What computes the gradients of a result that is computed once, here."""
    return partial(torch.autograd.grad, function(*given), given, slope, retain_graph=True)


def _timed(seconds: Mapping[str, list[float]]) -> str:
    """The median of the tuned kernels, and that of each of the others by it."""
    tuned = seconds["tuned"]
    ratios = (
        f"{other} / tuned {ratio_text(paired_ratio(taken, tuned), ratio_interval(taken, tuned))}"
        for other, taken in seconds.items()
        if other != "tuned"
    )
    return ", ".join((duration_text(statistics.median(tuned)), *ratios))
