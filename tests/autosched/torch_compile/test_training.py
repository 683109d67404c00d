"""Training of models with attention: results, gradients and steps are eager's, by kernels in both directions.

Kernels are untuned, so that everything that has one is computed by it.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import same
from torch.utils.checkpoint import checkpoint

from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from untuned import untuned_replay

SIZE, HEADS, CHANNELS = 16, 4, 4
BOTH = [(kind, "autosched", ()) for kind in ("forward", "backward")]


@pytest.fixture(autouse=True)
def kernels_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels without a log or a search, and PyTorch's operators in the place of Inductor, which takes seconds."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    torch.compiler.reset()


class Attending(nn.Module):
    """A layer of a transformer; each of `shared` heads of keys and values serves several of queries."""

    def __init__(self, shared: int = HEADS, causal: bool = False) -> None:
        super().__init__()
        self.queries, self.keys, self.out = (nn.Linear(SIZE, n) for n in (SIZE, 2 * shared * CHANNELS, SIZE))
        self.norm, self.causal, self.attention = nn.LayerNorm(SIZE), causal, F.scaled_dot_product_attention

    def forward(self, x: Tensor, read: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        projected = self.queries(x), *self.keys(x if read is None else read).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (-1, CHANNELS)).transpose(1, 2) for t in projected)
        made = self.attention(q, k, v, mask, is_causal=self.causal, enable_gqa=k.shape[1] < HEADS)
        normed: Tensor = self.norm(x + self.out(made.transpose(1, 2).flatten(2)))
        return normed


def decoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Attending(shared=2, causal=True), (torch.randn(2, 12, SIZE),)


def cross() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Attention to another sequence, of which some is padding."""
    lengths = torch.tensor([7, 10]).view(2, 1, 1, 1)
    return Attending(), (torch.randn(2, 12, SIZE), torch.randn(2, 10, SIZE), torch.arange(10) < lengths)


def compiled(model: Callable[..., Any], reports: list[GraphReport]) -> Callable[..., Any]:
    return torch.compile(model, backend=backend_of(Options(strict=True), reports.append))


def loss_of(made: Tensor) -> Tensor:
    return made.square().mean()


def steps(model: nn.Module, called: Callable[..., Any], inputs: tuple[Tensor, ...], count: int) -> list[Tensor]:
    """Losses of as many steps, of two batches each, with gradients clipped."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(count):
        for batch in (inputs, tuple(t.flip(0) for t in inputs)):
            losses.append(loss_of(called(*batch)))
            losses[-1].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return losses


@pytest.mark.parametrize("made", [decoder, cross])
def test_attention_learns_as_it_does_without_kernels(made: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]) -> None:
    torch.manual_seed(0)
    model, inputs = made()
    expected, reports = copy.deepcopy(model), list[GraphReport]()
    attention = compiled(F.scaled_dot_product_attention, reports)
    for layer in model.modules():
        if isinstance(layer, Attending):
            layer.attention = attention
    losses = steps(model, model, inputs, 3)
    torch.testing.assert_close(losses, steps(expected, expected, inputs, 3))
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=1e-4, atol=1e-5)
    assert [(r.kind, r.by, r.left) for r in reports] == BOTH


def checkpointed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in bfloat16, which is computed again in the backward graph."""
    with torch.autocast("cpu", torch.bfloat16, enabled=q.dtype is not torch.float64):
        made: Tensor = checkpoint(F.scaled_dot_product_attention, q, k, v, use_reentrant=False).sin()
    return made


def test_gradients_are_as_near_to_exact_ones_as_eagers() -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 2, n, 16, requires_grad=True) for n in (12, 20, 20)]
    reports = list[GraphReport]()

    def graded(function: Callable[..., Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        made = function(*given)
        return [made.detach(), *torch.autograd.grad(loss_of(made), given)]

    exact = graded(checkpointed, [t.detach().double().requires_grad_() for t in given])
    found = graded(compiled(checkpointed, reports), given)
    assert same(graded(checkpointed, given), found, exact)
    assert [(r.kind, r.by, r.left) for r in reports] == BOTH


def test_attention_with_dropout_is_pytorchs() -> None:
    def function(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).tanh()

    x = torch.randn(1, 2, 4, 8, requires_grad=True)
    called = torch.compile(function, backend=backend_of(Options(), lambda _: None))
    found = []
    for each in (called, function):
        torch.manual_seed(0)
        made = each(x)
        found.append([made, *torch.autograd.grad(made.sum(), x)])
    torch.testing.assert_close(*found)
