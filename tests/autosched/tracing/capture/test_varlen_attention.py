"""Attention of sequences one behind the other, against attention of each alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.capture.fused_functions.varlen_attention import parts_of_attention
from search_spaces import ops
from untuned import untuned_kernels

varlen_attn = pytest.importorskip(
    "torch.nn.attention.varlen", reason="not in every PyTorch that is supported"
).varlen_attn

ROWS, COLUMNS = torch.tensor([0, 4, 4, 10, 12], dtype=torch.int32), torch.tensor([0, 7, 9, 11, 20], dtype=torch.int32)


def operands(rows: Tensor, columns: Tensor, heads: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(int(rows[-1]), 2, 8), *[(int(columns[-1]), heads, 8)] * 2]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def each_alone(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, window: tuple[int, int], used: Tensor | None = None
) -> Tensor:
    made = torch.zeros_like(q)
    for n, ((a, b), (c, d)) in enumerate(zip(pairwise(rows.tolist()), pairwise(columns.tolist()), strict=True)):
        end = d if used is None else c + int(used[n])
        row, column = torch.arange(b - a)[:, None] + (end - c) - (b - a), torch.arange(end - c)
        left, right = (10**6 if w < 0 else w for w in window)
        mask = (row - left <= column) & (column <= row + right)
        of_one = (t.transpose(0, 1) for t in (q[a:b], k[c:end], v[c:end]))
        found = F.scaled_dot_product_attention(*of_one, attn_mask=mask, enable_gqa=k.size(1) != q.size(1))
        # A row without columns.
        made[a:b] = found.nan_to_num().transpose(0, 1)
    return made


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 1), (1, -1)])
@pytest.mark.parametrize("bounds", [(ROWS, ROWS), (ROWS, COLUMNS), (COLUMNS, ROWS)], ids=["self", "longer", "shorter"])
def test_sequences_read_themselves_alone(bounds: tuple[Tensor, Tensor], window: tuple[int, int]) -> None:
    q, k, v = operands(*bounds)
    got, *_ = parts_of_attention(q, k, v, *bounds, 20, 20, window == (-1, 0), None, list(window))
    torch.testing.assert_close(got, each_alone(q, k, v, *bounds, window))


def test_keys_that_are_not_used_are_not_read() -> None:
    q, k, v = operands(ROWS, COLUMNS)
    used = torch.tensor([5, 0, 2, 3], dtype=torch.int32)
    k[5:7] = torch.nan
    v[5:7] = 0
    got, *_ = parts_of_attention(q, k, v, ROWS, COLUMNS, 20, 20, True, None, [-1, 0], seqused_k=used)
    torch.testing.assert_close(got, each_alone(q, k, v, ROWS, COLUMNS, (-1, 0), used))


def test_rows_behind_the_last_sequence_are_zero() -> None:
    q, k, v = operands(ROWS, ROWS)
    before = ROWS.clamp(max=10)
    got, *_ = parts_of_attention(q, k, v, before, before, 20, 20)
    assert not got[10:].any()
    torch.testing.assert_close(got[:10], each_alone(q, k, v, before, before, (-1, -1))[:10])


def test_keys_in_pages_are_left_to_pytorch() -> None:
    q, k, v = operands(ROWS, ROWS)
    pages = torch.zeros(4, 1, dtype=torch.int32)
    assert parts_of_attention(q, k, v, ROWS, ROWS, 20, 20, block_table=pages) is NotImplemented


def attended(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
    made: Tensor = varlen_attn(q, k, v, offsets, offsets, 6, 6, window_size=(-1, 0), enable_gqa=True)
    return made


@pytest.mark.parametrize("causal", [False, True])
def test_a_traced_attention_is_the_operator(causal: bool) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
        made: Tensor = varlen_attn(q, k, v, offsets, offsets, 6, 6, window_size=(-1, 0 if causal else -1))
        return made

    (workload,) = trace(function, *operands(ROWS, ROWS, dtype=torch.bfloat16), ROWS).workloads
    assert workload.key == ops.varlen_attention(12, heads=2, size=8, sequences=4, causal=causal).key


def test_it_is_one_kernel_of_the_bounds() -> None:
    inputs = operands(ROWS, ROWS, heads=1, dtype=torch.bfloat16)
    traced = trace(attended, *inputs, ROWS)
    assert 1 in [len(cut.workloads) for cut in traced.cuts]
    here = traced.for_target(cpu_target())
    with pytest.warns(match="without having been compared"):
        # PyTorch has this attention on GPUs alone.
        got = loaded(here, untuned_kernels(here.workloads, cpu_target()))(*inputs, ROWS)
    want = each_alone(*(t.float() for t in inputs), ROWS, ROWS, (-1, 0))
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=2e-2)
