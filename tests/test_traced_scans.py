"""Scans of traced functions: what PyTorch's operators become, and in how many kernels."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace

sys.path.append(str(Path(__file__).parent))
from traced_reference import computed

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
NOT_FINITE = torch.tensor([[1.0, 2.0, math.inf, 3.0, -math.inf, 1.0], [0.0, math.nan, 1.0, 2.0, math.nan, 5.0]])


def I(*shape: int) -> Tensor:  # noqa: E743  # as short as R, for the table
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(1))


# name: how many kernels, the function, and its arguments. Each must come out as the function itself does in float64.
CASES: dict[str, tuple[int, Callable[..., Any], *tuple[Tensor, ...]]] = {
    "rows": (1, lambda x: x.cumsum(-1), R(6, 33)),
    "columns": (1, lambda x: x.cumsum(0), R(33, 6)),
    "middle": (1, lambda x: x.cumsum(1), R(3, 33, 6)),
    "vector": (1, lambda x: x.cumsum(0), R(300)),
    "transposed": (1, lambda x: x.t().cumsum(0), R(6, 33)),
    "product": (1, lambda x: (1 + 0.1 * x).cumprod(1), R(6, 33)),
    "cummax": (1, lambda x: x.cummax(1), R(6, 33)),
    "cummin0": (1, lambda x: x.cummin(0), R(33, 6)),
    "places": (1, lambda x: x.round().cummax(1)[1], R(6, 33)),
    "integers": (1, lambda x: x.cummin(1), I(4, 20)),
    "logcumsumexp": (1, lambda x: x.logcumsumexp(1), R(6, 33)),
    "mask": (1, lambda x: (x > 0).cumsum(1), R(6, 33)),
    "places of a mask": (1, lambda x: (x > 0).cumsum(1) - 1, R(6, 33)),
    "int32": (1, lambda x: x.int().cumsum(1), I(4, 20)),
    "int product": (1, lambda x: x.cumprod(1), I(4, 7)),
    "reversed": (1, lambda x: x.flip(1).cumsum(1).flip(1), R(6, 33)),
    "reversed before": (1, lambda x: x.flip(1).cumsum(1), R(6, 33)),
    "reversed by the total": (1, lambda x: x + x.sum(1, keepdim=True) - x.cumsum(1), R(6, 33)),
    "exclusive": (1, lambda x: F.pad(x.cumsum(1), (1, -1)), R(6, 33)),
    "exclusive by its element": (1, lambda x: x.cumsum(1) - x, R(6, 33)),
    "exclusive first": (1, lambda x: F.pad(x, (1, -1)).cumsum(1), R(6, 33)),
    "between": (1, lambda x, w: (x.softmax(-1).cumsum(-1) * w).half(), R(6, 33), R(33)),
    "folded": (1, lambda x: x.cumsum(1).amax(1), R(6, 33)),
    "and its sum": (1, lambda x: (x.cumsum(1), x.sum(1)), R(6, 33)),
    "twice": (1, lambda x: x.cumsum(1).cumsum(1), R(6, 33)),
    "both ways": (2, lambda x: x.cumsum(1) + x.flip(1).cumsum(1).flip(1), R(6, 32)),
    "two axes": (2, lambda x: x.cumsum(1).cumsum(0), R(6, 33)),
    "differences": (2, lambda x: x.cumsum(1).diff(dim=1), R(6, 33)),
    "the last": (2, lambda x: x.cumsum(1)[:, -1] * 2, R(6, 33)),
    "one element": (1, lambda x: x.cumsum(1) + 1, R(6, 1)),
    "a number": (1, lambda x: x.cumsum(0) + 1, R(())),
    "trapezoids": (1, lambda x: torch.cumulative_trapezoid(x, dim=1), R(6, 33)),
    "sums that are not finite": (1, lambda x: x.cumsum(1), NOT_FINITE),
    "maxima that are not finite": (1, lambda x: x.cummax(1), NOT_FINITE),
    "minima that are not finite": (1, lambda x: x.cummin(1), NOT_FINITE),
    "logarithms that are not finite": (1, lambda x: x.logcumsumexp(1), NOT_FINITE),
    "in half": (1, lambda x: x.cumsum(1, dtype=torch.float16), R(6, 33)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_workloads_of_scans_compute_what_pytorch_does(name: str) -> None:
    kernels, function, *inputs = CASES[name]
    traced = trace(function, *inputs)
    wanted = function(*(x.double() if x.is_floating_point() else x for x in inputs))
    results = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(computed(traced, tuple(inputs)), results, strict=True):
        tolerance = 2.0**-9 if want.dtype == torch.float16 else 1e-6
        torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert len(traced.steps) == kernels, str(traced)
