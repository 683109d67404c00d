"""Weights that are joined for some kernels, of which others read one alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched import TracedFunction
from autosched.tracing.values.values import Prepared
from traced_reference import computed

SIZE = 64


class Layers(nn.Module):
    """Queries and keys, which are one wide product, and a gate that a chain of products computes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.gate, self.up = nn.Linear(SIZE, 2 * SIZE), nn.Linear(SIZE, 2 * SIZE)
        self.down = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        y = (self.q(x).cos() @ self.k(x).mT).softmax(-1) @ x
        return y + self.down(F.silu(self.gate(y)) * self.up(y))


def joined(cut: TracedFunction) -> set[frozenset[str]]:
    """The names of the weights that are prepared together."""
    return {frozenset(c.name for c in value.constants) for value in cut.made if isinstance(value, Prepared)}


def test_what_some_kernels_read_joined_others_read_whole_without_a_copy() -> None:
    torch.manual_seed(0)
    model, x = Layers(), torch.randn(8, SIZE)
    with torch.no_grad():
        cuts = autosched.trace(model, x).cuts
        exact = model.double()(x.double())
    for cut in cuts:
        read = {view.value for step in cut.steps if step.assembled is not None for view in step.assembled.inputs}
        assert all(value in read for value in cut.made if isinstance(value, Prepared))
        torch.testing.assert_close(computed(cut, (x,))[0], exact)
    together, apart = frozenset({"q.weight", "k.weight"}), frozenset({"gate.weight", "up.weight"})
    assert any(together in joined(cut) and apart not in joined(cut) for cut in cuts)
