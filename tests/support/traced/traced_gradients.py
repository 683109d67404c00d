"""Gradients of traced functions: those that both graphs give, and those of the functions themselves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

from autosched.checking import reference
from autosched.tracing.callables.differentiable import DifferentiableFunction
from autosched.tracing.callables.differentiable_results import memory_of_results
from autosched.tracing.capture.joint_graphs.parting import joint_graph, parted
from traced_reference import Evaluate, computed


def wanted(function: Callable[..., Tensor], given: tuple[Tensor, ...], slope: Tensor) -> tuple[Tensor, ...]:
    """The gradients in float64."""
    wide = [_wide(x) for x in given]
    return torch.autograd.grad(function(*wide), [x for x in wide if x.requires_grad], slope.double())


def graded(
    made: DifferentiableFunction, given: tuple[Tensor, ...], slope: Tensor, evaluate: Evaluate = reference.evaluate
) -> list[Tensor]:
    """The gradients that both graphs give."""
    kept = computed(made.forward, tuple(x.detach() for x in given), evaluate)[made.memory :]
    found = computed(made.backward, (*kept, slope), evaluate)
    return [found[place] for place in made.gradients if place is not None]


def graded_by_graphs(
    function: Callable[..., Tensor], given: tuple[Tensor, ...], slope: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients that both graphs give in float64, before they are cut into kernels, and what they keep."""
    wide = tuple(_wide(x) for x in given)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = tuple(mode.from_tensor(x) for x in wide)
        memory, _ = memory_of_results((function(*fake),), fake)
        joint = joint_graph(lambda *inputs: tuple(m.of((function(*inputs),), inputs) for m in memory), fake)
        forward, backward = (fx.Interpreter(module) for module in parted(joint, len(memory)))
    with torch.no_grad():
        made, *kept = forward.run(*wide)
        return [x for x in backward.run(*kept, slope.double().view(made.shape)) if x is not None], kept


def _wide(x: Tensor) -> Tensor:
    return x.detach().double().requires_grad_() if x.is_floating_point() else x
