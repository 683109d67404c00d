"""Scales and biases in weights: batch norm and layer scale, as exact as PyTorch, and products that others read."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from autosched.tracing.values.values import Prepared
from rewritten_cuts import computed, cuts_by, errors

RULE = "scales into weights"


class Convolution(nn.Module):
    """A convolution and a batch norm, as ResNet has them."""

    def __init__(self, conv: nn.Conv2d | None = None) -> None:
        super().__init__()
        self.conv, self.norm = conv or nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        for tensor in (self.norm.running_mean, self.norm.weight, self.norm.bias):
            nn.init.normal_(tensor)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu()


class Scaled(nn.Module):
    """A linear layer of sequences and a layer scale, as CaiT has it, before a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(32, 32), nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x) * self.scale


@pytest.mark.parametrize(("kind", "shape"), [(Convolution, (2, 4, 6, 6)), (Scaled, (2, 6, 32))])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_scaled_weights_are_as_exact(kind: type[nn.Module], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = kind().eval().to(dtype), torch.randn(shape, dtype=dtype)
    with torch.no_grad():
        (cut,) = cuts_by(RULE, model, x)
        exact = copy.deepcopy(model).double()
        (usual,), (found,) = errors(model, exact, x), errors(computed(cut), exact, x)
        assert found <= 1.5 * usual


class Grouped(nn.Module):
    """Convolutions of groups, of one channel or several, with batch norms, as EfficientNet and ResNeXt have them."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.grouped = (
            Convolution(nn.Conv2d(8, 8, 3, groups=8)),
            Convolution(nn.Conv2d(8, 8, 1, groups=2)),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.depthwise(x), self.grouped(x)


def test_weights_of_groups_are_scaled() -> None:
    torch.manual_seed(0)
    model, x = Grouped().eval(), torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        (cut,) = cuts_by(RULE, model, x)
        # The weights and biases of both.
        assert len([v for v in cut.made if isinstance(v, Prepared)]) == 4
        exact = copy.deepcopy(model).double()
        usual, found = errors(model, exact, x), errors(computed(cut), exact, x)
        assert all(e <= 1.5 * u for e, u in zip(found, usual, strict=True))


def test_products_that_others_read_keep_their_weights() -> None:
    weight, scale = torch.randn(32, 32), torch.randn(32)

    def read_twice(x: Tensor) -> Tensor:
        y = x @ weight
        return y * scale + y

    def returned(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x @ weight
        return y, y * scale

    for function in (read_twice, returned):
        assert not cuts_by(RULE, function, torch.randn(6, 32))


def test_scales_of_rows_and_plain_numbers_stay_behind_products() -> None:
    weight = torch.randn(32, 32)
    assert not cuts_by(RULE, lambda x: (x @ weight) * 0.5, torch.randn(6, 32))
    assert not cuts_by(RULE, lambda x, r: (x @ weight) * r, torch.randn(6, 32), torch.randn(6, 1))


def test_batch_norm_in_training_stays() -> None:
    assert not cuts_by(RULE, Convolution().train(), torch.randn(2, 4, 6, 6))
