"""Modules with smaller sizes: they run, compute as much less as they should, and what fits together goes on to."""

from __future__ import annotations

import resource

import pytest
import torch

from rearranging import rearrange
from smaller_modules import made, smaller, unfilled

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.first = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.pool = torch.nn.AdaptiveAvgPool2d(7)
        self.last = torch.nn.Linear(channels * 7 * 7, 1000)

    def forward(self, x, times):
        x = self.pool(self.first(x)).flatten(1) * times
        return self.last(x).view(x.shape[0], self.heads, -1)

batch_size = 128
def get_inputs():
    return [torch.rand(batch_size, 3, 224, 224), 2]
def get_init_inputs():
    return [512, 10]
"""


def test_sizes_become_smaller_and_still_fit() -> None:
    given = made(smaller(SOURCE))
    (x,) = given.tensors
    assert x.shape[1] == 3
    assert x.numel() < 128 * 3 * 224 * 224 / 1000
    result = given.function()(x)
    assert result.shape[:1] == x.shape[:1]
    # Equal sizes stay equal, and integers that are no sizes stay.
    assert x.shape[2] == x.shape[3]
    assert given.arguments[1] == 2


def test_a_module_that_runs_with_no_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="neither with smaller sizes"):
        smaller(SOURCE.replace("channels * 7 * 7", "channels + 1").replace("128", "4").replace("224", "16"))


def test_modules_that_are_not_filled_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with unfilled():
        (x,) = made(SOURCE.replace("128", "4096")).tensors
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < x.numel() * x.element_size() / 1024 / 2


def test_dimensions_are_split_moved_and_merged() -> None:
    x = torch.arange(2 * 6 * 4 * 5).view(2, 6, 4, 5)
    split = rearrange(x, "b (c l) ... -> b c l ...", l=3)
    assert torch.equal(split, x.view(2, 2, 3, 4, 5))
    assert torch.equal(rearrange(split, "b c l h p -> b (c l) h p"), x)
    assert torch.equal(rearrange(x, "b l h p -> h b (p l)"), x.permute(2, 0, 3, 1).reshape(4, 2, 30))
