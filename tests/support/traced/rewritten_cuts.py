"""Cuts of traced functions by one rule, and how far their kernels are from float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

import autosched
from autosched.machine import devices
from autosched.tracing import TracedFunction, TracedKernel
from untuned import untuned_kernels


def cuts_by(rule: str, function: Callable[..., object], *inputs: Tensor) -> list[TracedFunction]:
    """The cuts with all algebra allowed in which a rule was applied."""
    return with_rule(rule, autosched.trace(function, *inputs, numerics="fold").for_target(devices.cpu_target()))


def with_rule(rule: str, traced: TracedFunction) -> list[TracedFunction]:
    """The cuts of a function in which a rule was applied."""
    return [cut for cut in traced.cuts if any(r.startswith(rule) for r in cut.rewrites)]


def computed(cut: TracedFunction) -> TracedKernel:
    return TracedKernel(cut, untuned_kernels(cut.workloads, devices.cpu_target()))


def errors(function: Callable[..., Any], exact: nn.Module, *inputs: Tensor) -> list[float]:
    """For each result the root of the mean squared error."""
    pairs = zip(_results(function(*inputs)), _results(exact(*(x.double() for x in inputs))), strict=True)
    return [float((got.double() - wanted).square().mean().sqrt()) for got, wanted in pairs]


def _results(returned: Any) -> tuple[Tensor, ...]:
    return returned if isinstance(returned, tuple) else (returned,)
