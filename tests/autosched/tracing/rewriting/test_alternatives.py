"""Functions computed in other ways: every alternative's kernels compute what the function does."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from rewritten_values import kernel_of, rewritten


class Attention(nn.Module):
    """Heads that share keys in pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).view(1, 6, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)


def test_merged_products_are_right_also_after_their_weights_have_changed() -> None:
    torch.manual_seed(0)
    model, x = Attention().eval(), torch.randn(1, 6, 32)
    with torch.no_grad():
        cut = rewritten(autosched.trace(model, x))[0]
        kernel = kernel_of(cut)
        torch.testing.assert_close(kernel(x), model(x))
        model.k.weight.mul_(2)
        torch.testing.assert_close(kernel(x), model(x))
        model.v.load_state_dict({"weight": torch.ones(16, 32), "bias": torch.zeros(16)})
        torch.testing.assert_close(kernel(x), model(x))


def test_results_with_equal_elements_keep_memory_of_their_own() -> None:
    weights = torch.randn(3, 8, 8)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x @ weights[0], x @ weights[1], x @ weights[0], (x @ weights[1]).relu()

    x = torch.randn(4, 8)
    for cut in rewritten(autosched.trace(function, x)):
        results = kernel_of(cut)(x)
        torch.testing.assert_close(results, function(x))
        assert len({r.untyped_storage().data_ptr() for r in results}) >= 3
