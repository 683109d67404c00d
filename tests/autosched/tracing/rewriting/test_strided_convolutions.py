"""Strided convolutions by depth: as exact as they are written, along any dimensions; and other convolutions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from rewritten_cuts import computed, cuts_by, errors
from search_spaces.workloads.dtypes import DTYPES

RULE = "strided convolutions"


def stem(channels: int = 3, groups: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 8, 7, 2, 3, groups=groups), nn.ReLU())


MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "stem": (stem(), (2, 3, 16, 15)),
    "one image": (stem(1), (1, 1, 9, 12)),
    "strides of their own": (nn.Conv2d(2, 8, (5, 3), (3, 1), (2, 0)), (2, 2, 11, 9)),
    "along one dimension": (nn.Conv1d(2, 4, 10, 5, 3), (2, 2, 47)),
    "along three dimensions": (nn.Conv3d(2, 4, 3, 2, 1), (1, 2, 5, 6, 7)),
    "edges cut off": (nn.Conv2d(3, 8, 3, 2), (1, 3, 10, 10)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_they_are_as_exact_by_depth(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, shape = MODELS[name]
    model, x = copy.deepcopy(model).to(dtype), torch.randn(shape, dtype=dtype)
    with torch.no_grad():
        (cut,) = cuts_by(RULE, model, x)
        exact = copy.deepcopy(model).double()
        (usual,), (found,) = errors(model, exact, x), errors(computed(cut), exact, x)
    assert found <= 1.5 * usual + 1e-7


def test_images_are_stored_channels_last_in_whole_loads() -> None:
    for dtype, channels in ((torch.float32, 12), (torch.float16, 16)):
        with torch.no_grad():
            (cut,) = cuts_by(RULE, stem().to(dtype), torch.randn(2, 3, 16, 16, dtype=dtype))
        image, _ = cut.launched
        (stored,) = image.outputs
        assert stored.elements == 2 * 11 * 11 * channels
        assert channels * DTYPES[stored.dtype].bytes % 16 == 0


def test_they_follow_weights_that_change() -> None:
    model, x = stem().requires_grad_(False), torch.randn(2, 3, 16, 16)
    (cut,) = cuts_by(RULE, model, x)
    kernel = computed(cut)
    for _ in range(2):
        torch.testing.assert_close(kernel(x), model(x), rtol=1e-4, atol=1e-4)
        model[0].weight.mul_(-2)


def test_a_batch_norm_behind_goes_into_the_weights_as_well() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(stem()[0], nn.BatchNorm2d(8), nn.ReLU()).eval().requires_grad_(False)
    nn.init.uniform_(model[1].running_var, 0.5, 2)
    x = torch.randn(2, 3, 16, 16)
    found = [cut for cut in cuts_by(RULE, model, x) if len(cut.rewrites) > 1]
    assert found
    for cut in found:
        torch.testing.assert_close(computed(cut)(x), model(x), rtol=1e-4, atol=1e-4)


def other(model: nn.Module, x: Tensor) -> bool:
    with torch.no_grad():
        return not cuts_by(RULE, model, x)


def test_other_convolutions_stay_as_they_are() -> None:
    assert other(stem(16), torch.randn(1, 16, 16, 16))
    assert other(stem(4, groups=2), torch.randn(1, 4, 16, 16))
    assert other(nn.Conv2d(3, 8, 4, 4), torch.randn(1, 3, 16, 16))
    assert other(nn.Conv2d(3, 8, 3, 2, dilation=2), torch.randn(1, 3, 16, 16))
    assert other(nn.ConvTranspose2d(3, 8, 4, 2), torch.randn(1, 3, 8, 8))
