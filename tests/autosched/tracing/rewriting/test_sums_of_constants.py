"""Norms of weights are computed once, and again when a weight has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from autosched import cpu_target, trace
from autosched.tracing import TracedFunction, loaded
from autosched.tracing.capture.capture import Numerics
from autosched.tracing.values.values import Prepared
from untuned import untuned_kernels

X = torch.randn(6, 16)


def normed() -> nn.Module:
    """A layer whose weight is divided by the norms of its rows in every call."""
    return weight_norm(nn.Linear(16, 8)).requires_grad_(False)


def cuts(layer: nn.Module, numerics: Numerics = "reassociate") -> list[TracedFunction]:
    return list(trace(layer.forward, X, numerics=numerics).cuts)


def test_a_norm_of_weights_costs_no_kernel() -> None:
    written, *others = cuts(normed())
    once = [cut for cut in others if any("sums of constants" in text for text in cut.rewrites)]
    assert min(len(cut.launched) for cut in once) == len(written.launched) - 1
    assert {v.elements for cut in once for v in cut.made if isinstance(v, Prepared)} == {8}


def test_a_norm_follows_its_weight() -> None:
    layer = normed()
    once = cuts(layer)[-1].for_target(cpu_target())
    kernel = loaded(once, untuned_kernels(once.workloads, cpu_target()))
    for _ in range(2):
        torch.testing.assert_close(kernel(X), layer(X))
        for weight in layer.parameters():
            weight.mul_(1.5).add_(0.1)


def test_eager_numerics_leave_sums_to_every_call() -> None:
    assert not any(cut.rewrites for cut in cuts(normed(), "eager"))


@pytest.mark.parametrize("of", [torch.exp, lambda w: w[:, None].expand(16, 16).sum(1), lambda w: w.reshape(4, 4)])
def test_what_does_not_become_smaller_stays_where_it_is_read(of: Callable[[Tensor], Tensor]) -> None:
    weight = torch.randn(16)

    def scaled(x: Tensor) -> Tensor:
        return (x.view(6, 4, 4) * of(weight).view(4, 4)).sum(0)

    made = trace(scaled, X)
    assert not any(isinstance(v, Prepared) for cut in made.cuts for v in cut.made)
