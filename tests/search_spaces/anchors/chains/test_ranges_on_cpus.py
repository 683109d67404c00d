"""Chains on a CPU under masks that are ranges whose ends are data: pieces outside are neither read nor multiplied."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import best_spaces
from autosched import trace
from autosched.kernels.kernel import Kernel
from autosched.machine.devices import cpu_target
from search_spaces import Schedule, Workload, ops
from search_spaces.programs.statements import Gather, statements
from untuned import untuned_kernel

HERE = cpu_target(1)
# Neither tiles of rows nor pieces of columns end with them.
ROWS, HEADS, SIZE, SEQUENCES = 109, 2, 16, 4
SIZES = {"rows": ROWS, "heads": HEADS, "size": SIZE, "sequences": SEQUENCES}
BOUNDS = st.lists(st.integers(0, ROWS), min_size=SEQUENCES + 1, max_size=SEQUENCES + 1).map(sorted)


def skipping(workload: Workload, rows: int = 32, columns: int = 32) -> Schedule:
    """Any schedule that skips, with tiles of so many rows and pieces of so many columns."""
    space = best_spaces.build(workload, HERE)
    knobs = {k.name: k for k in space.sketch("chain").knobs}
    tiles = {n: [v for v in knobs[n].values if v[-1] == x] for n, x in (("m", rows), ("c", columns))}
    return space.restricted("chain", skip=[True], **tiles).sample(np.random.default_rng(0))


@pytest.fixture(scope="module", params=[False, True], ids=["all", "causal"])
def attention(request: pytest.FixtureRequest) -> tuple[bool, Kernel]:
    workload = ops.varlen_attention(**SIZES, causal=request.param, dtype="float32")
    return request.param, untuned_kernel(skipping(workload), workload, HERE)


def drawn() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(ROWS, HEADS, SIZE, generator=generator) for _ in range(3)]


def each_alone(q: Tensor, k: Tensor, v: Tensor, bounds: list[int], causal: bool) -> Tensor:
    made = torch.zeros_like(q)
    for a, b in pairwise(bounds):
        of_one = (x[a:b].transpose(0, 1) for x in (q, k, v))
        made[a:b] = F.scaled_dot_product_attention(*of_one, is_causal=causal).transpose(0, 1)
    return made


@settings(max_examples=40, deadline=None)
@given(BOUNDS)
def test_sequences_of_any_lengths_read_themselves_alone(attention: tuple[bool, Kernel], bounds: list[int]) -> None:
    causal, kernel = attention
    bounds[0] = 0
    inputs = drawn()
    got = kernel(*inputs, torch.tensor(bounds, dtype=torch.int32))
    torch.testing.assert_close(got, each_alone(*inputs, bounds, causal))


def test_pieces_of_others_alone_are_not_read(attention: tuple[bool, Kernel]) -> None:
    causal, kernel = attention
    q, k, v = drawn()
    bounds = [0, 32, 64, 96, 96]
    want = each_alone(q, k, v, bounds, causal)
    for x in (k, v):
        x[64:] = torch.nan
    got = kernel(q, k, v, torch.tensor(bounds, dtype=torch.int32))
    torch.testing.assert_close(got[:64], want[:64])


def test_no_column_is_looked_for_in_the_bounds(attention: tuple[bool, Kernel]) -> None:
    (kernel,) = attention[1].schedule.program.kernels
    looked_up = [s for s in statements(kernel.body) if isinstance(s, Gather)]
    assert looked_up
    assert not [s for s in looked_up if "c" in s.dst.axes]


def first_keys(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Attention to so many first keys of each batch; rows without any are NaN."""
    seen = torch.arange(k.shape[2]) < lengths[:, None, None, None]
    scores = (q @ k.mT).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ v


def document(q: Tensor, k: Tensor, v: Tensor, last: Tensor) -> Tensor:
    """Attention to keys up to a last one of each row."""
    seen = torch.arange(k.shape[2]) <= last[:, None]
    return (q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "ends"),
    [(first_keys, torch.tensor([40, 128, 0])), (document, torch.arange(64) * 3 - 30)],
    ids=["of batches", "of rows"],
)
def test_rows_of_which_nothing_is_left_are_as_pytorch_has_them(function: Callable[..., Tensor], ends: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 2, n, 16, generator=generator) for n in (64, 128, 128))
    (workload,) = trace(function, q, k, v, ends).workloads
    kernel = untuned_kernel(skipping(workload), workload, HERE)
    torch.testing.assert_close(kernel(q, k, v, ends), function(q, k, v, ends), equal_nan=True)
