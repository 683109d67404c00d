"""Attention of sequences by PyTorch's libraries, which run on GPUs alone, against attention of each sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.tracing.capture.fused_functions.library_sequences import parts_of_efficient, parts_of_flash
from traced_reference import computed

OFFSETS, ROWS = torch.tensor([0, 4, 4, 10, 12], dtype=torch.int32), 12
FLASH, EFFICIENT = (getattr(torch.ops.aten, f"_{name}_attention_forward").default for name in ("flash", "efficient"))


def flash(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Any:
    return FLASH(q, k, v, offsets, offsets, ROWS, ROWS, 0.0, False, False, scale=0.5)[0]


def efficient(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Any:
    of_batch = (t.unsqueeze(0) for t in (q, k, v))
    made, *_ = EFFICIENT(*of_batch, None, offsets, offsets, ROWS, ROWS, 0.0, 0, scale=0.5)
    return made.squeeze(0)


def operands() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(ROWS, 2, 8, generator=generator) for _ in range(3)]


@pytest.mark.parametrize("function", [flash, efficient])
def test_sequences_read_themselves_alone_in_one_kernel(function: Any) -> None:
    traced = trace(function, *operands(), OFFSETS)
    assert len(traced.workloads) == 1
    (got,) = computed(traced, (*operands(), OFFSETS))
    q, k, v = (x.double().split(OFFSETS.diff().tolist()) for x in operands())
    each = (
        F.scaled_dot_product_attention(*(t.transpose(0, 1) for t in one), scale=0.5).transpose(0, 1)
        for one in zip(q, k, v, strict=True)
    )
    torch.testing.assert_close(got, torch.cat([*each]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {"cum_seq_q": None},
        {"cum_seq_k": None},
        {"dropout_p": 0.1},
        {"return_debug_mask": True},
        {"alibi_slopes": torch.ones(2)},
        {"block_table": torch.zeros(4, 1, dtype=torch.int32)},
    ],
    ids=str,
)
def test_flash_is_left_to_pytorch_with(more: dict[str, Any]) -> None:
    own = {"cum_seq_q": OFFSETS, "cum_seq_k": OFFSETS, "dropout_p": 0.0, "return_debug_mask": False}
    given: dict[str, Any] = {**own, "max_q": ROWS, "max_k": ROWS, "is_causal": False}
    assert parts_of_flash(*operands(), **given) is not NotImplemented
    assert parts_of_flash(*operands(), **{**given, **more}) is NotImplemented


@pytest.mark.parametrize(
    "more",
    [
        {"cu_seqlens_q": None},
        {"cu_seqlens_k": None},
        {"dropout_p": 0.1},
        {"bias": torch.zeros(1)},
        {"custom_mask_type": 1},
        {"compute_log_sumexp": True},
        {"seqlen_k": OFFSETS},
        {"window_size": 4},
    ],
    ids=str,
)
def test_efficient_attention_is_left_to_pytorch_with(more: dict[str, Any]) -> None:
    own = {"bias": None, "cu_seqlens_q": OFFSETS, "cu_seqlens_k": OFFSETS, "max_seqlen_q": ROWS, "max_seqlen_k": ROWS}
    given: dict[str, Any] = {**own, "dropout_p": 0.0, "custom_mask_type": 0}
    of_batch = [x.unsqueeze(0) for x in operands()]
    assert parts_of_efficient(*of_batch, **given) is not NotImplemented
    assert parts_of_efficient(*of_batch, **{**given, **more}) is NotImplemented
