"""Norms behind the products that read them: kernels as near to float64 as PyTorch, and norms that must stay."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from rewritten_cuts import computed, cuts_by, errors

RULE = "norm into product"


class Llama(nn.Module):
    """An RMS norm as Llama has it: in float32, rounded before the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64) + 0.5)
        self.gate, self.up = nn.Linear(64, 32, bias=False), nn.Linear(64, 48, bias=False)

    def normed(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.normed(x)
        return self.gate(y), self.up(y)


class Gpt(nn.Module):
    """A layer norm before products with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.k = nn.LayerNorm(64), nn.Linear(64, 32), nn.Linear(64, 16)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(x)
        return self.q(y), self.k(y)


@pytest.mark.parametrize("kind", [Llama, Gpt])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_products_of_unnormalized_rows_are_as_exact(kind: type[nn.Module], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = kind().to(dtype), torch.randn(2, 6, 64, dtype=dtype)
    with torch.no_grad():
        cuts = cuts_by(RULE, model, x)
        assert cuts
        exact = copy.deepcopy(model).double()
        eager = errors(model, exact, x)
        for cut in cuts:
            found = errors(computed(cut), exact, x)
            assert all(e <= 1.5 * usual for e, usual in zip(found, eager, strict=True))


def test_norms_with_other_readers_stay() -> None:
    torch.manual_seed(0)
    model, x = Llama(), torch.randn(6, 64)

    def returned(x: Tensor) -> tuple[Tensor, Tensor]:
        return model.normed(x), model.gate(model.normed(x))

    def added(x: Tensor) -> Tensor:
        y = model.normed(x)
        return F.linear(y, model.up.weight[:16]) + y[:, :16]

    def of_a_function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = model.normed(x)
        return model.gate(y), model.up(y.relu())

    with torch.no_grad():
        for function in (returned, added, of_a_function):
            assert not cuts_by(RULE, function, x)


def test_residual_sums_keep_their_rounding_before_a_norm() -> None:
    torch.manual_seed(0)
    model = Llama().bfloat16()
    x, y = torch.randn(6, 64).bfloat16(), torch.randn(6, 64).bfloat16()

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = model(x + y)
        return made

    with torch.no_grad():
        (cut, *_) = cuts_by(RULE, function, x, y)
        # The sum itself is rounded by 2⁻⁹; results are of about 30.
        torch.testing.assert_close(computed(cut)(x, y), function(x, y), rtol=2**-5, atol=2**-5)


def test_weights_that_are_arguments_stay() -> None:
    model = Llama()
    with torch.no_grad():
        assert not cuts_by(RULE, lambda x, w: model.normed(x) @ w, torch.randn(6, 64), torch.randn(64, 32))


def test_narrow_products_of_wide_values_stay() -> None:
    """Without the factor, float16 might not hold them."""
    weight = torch.randn(64, 32, dtype=torch.float16)

    def function(x: Tensor) -> Tensor:
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True))).half() @ weight

    assert not cuts_by(RULE, function, torch.randn(6, 64))


def test_a_mean_along_another_dimension_centres_nothing() -> None:
    w = torch.randn(4, 4)
    traced = autosched.trace(lambda x: (x - x.mean(1)) @ w, torch.randn(4, 4), numerics="fold")
    assert not any("norm into product" in text for cut in traced.cuts for text in cut.rewrites)
