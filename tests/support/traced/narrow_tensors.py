"""Tensors of narrow numbers and their scales, and what tracing makes of a function of them against float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autosched import trace
from search_spaces import Workload
from traced_reference import computed

_GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


def integers(low: int, end: int, *shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(low, end, shape, generator=_GENERATOR).to(dtype)


def scales(*shape: int) -> Tensor:
    """From 1e-4 to 1e4."""
    return 10.0 ** (8 * torch.rand(shape, generator=_GENERATOR) - 4)


def of_one_kernel(function: Callable[..., Tensor], *inputs: Tensor) -> Workload:
    """The workload of the cut into one kernel."""
    (cut,) = [c for c in trace(function, *inputs).cuts if len(c.launched) == 1]
    return cut.launched[0]


def assert_equal(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], expected: Tensor) -> None:
    """What tracing made of the function is the expected result, all but for float64's rounding."""
    (got,) = computed(trace(function, *inputs), inputs)
    wanted = expected.double()
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=1e-13 * float(wanted.abs().max()))


def by_groups(x: Tensor, each: int) -> Tensor:
    return x.double().repeat_interleave(each, -1)
