"""Gradients of traced functions: those that both graphs give, and those of the functions themselves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autosched.checking import reference
from autosched.tracing.callables.differentiable import DifferentiableFunction
from traced_reference import Evaluate, computed


def wanted(function: Callable[..., Tensor], given: tuple[Tensor, ...], slope: Tensor) -> tuple[Tensor, ...]:
    """The gradients in float64."""
    wide = [x.detach().double().requires_grad_() if x.is_floating_point() else x for x in given]
    return torch.autograd.grad(function(*wide), [x for x in wide if x.requires_grad], slope.double())


def graded(
    made: DifferentiableFunction, given: tuple[Tensor, ...], slope: Tensor, evaluate: Evaluate = reference.evaluate
) -> list[Tensor]:
    """The gradients that both graphs give."""
    kept = computed(made.forward, tuple(x.detach() for x in given), evaluate)[made.memory :]
    found = computed(made.backward, (*kept, slope), evaluate)
    return [found[place] for place in made.gradients if place is not None]
