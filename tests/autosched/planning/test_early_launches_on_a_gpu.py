"""Plans whose kernels begin while the one before them ends: bit by bit what they compute in order, call after call."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from autosched import backends
from autosched.backends import spaces
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.torch_compile.kernel_cache import early_kernels
from launch_chains import chained, operands
from needed import needs_hopper
from search_spaces import ops
from untuned import untuned_kernel

pytestmark = [pytest.mark.gpu, needs_hopper]
LAUNCHES, CALLS = 200, 200
PRODUCT = ops.matmul(64, 512, 512, dtype="float16", layout="nt")
Pair = tuple[Kernel, Kernel]


def pair(backend: str, seed: int) -> Pair:
    """A kernel of any schedule that gives the same bits every time, and the same that begins early."""
    target, rng = devices.resolve(None), np.random.default_rng(seed)
    space = spaces.build(PRODUCT, target, [backends.named(backend)])
    drawn = (space.sample(rng) for _ in itertools.count())
    kernel = untuned_kernel(next(s for s in drawn if not s.program.zeroed), PRODUCT, target)
    return kernel, early_kernels([kernel])[PRODUCT.key]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return [pair(backend, seed) for backend in ("triton", "cuda") for seed in range(3)]


@pytest.mark.parametrize("graphs", [False, True])
def test_a_chain_of_many_launches_in_memory_that_is_used_again_is_right_in_every_call(
    pairs: list[Pair], graphs: bool
) -> None:
    check([*itertools.islice(itertools.cycle(pairs), LAUNCHES)], graphs)


def test_kernels_in_order_may_lie_between_early_ones(pairs: list[Pair]) -> None:
    in_order = [(kernel, kernel) for kernel, _ in pairs]
    check([*itertools.islice(itertools.cycle([*pairs, *in_order]), LAUNCHES)], graphs=True)


def check(launches: list[Pair], graphs: bool) -> None:
    wanted, found = chained([kernel for kernel, _ in launches]), chained([early for _, early in launches], graphs)
    _, weight = operands(launches[0][0], 0)
    x = torch.randn(CALLS, 64, 512, device="cuda", dtype=torch.float16)
    # Enqueued without a pause, so that calls meet.
    made = [found(given, weight) for given in x]
    for given, result in zip(x, made, strict=True):
        assert torch.equal(result, wanted(given, weight))
        assert result.isfinite().all()
