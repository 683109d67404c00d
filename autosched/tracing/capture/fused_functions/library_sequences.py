"""Attention of sequences by PyTorch's libraries, which `scaled_dot_product_attention` of jagged tensors calls.

    _flash_attention_forward(q, k, v, offsets, offsets, …)            [rows, heads, size]
    _efficient_attention_forward(q, k, v, None, offsets, offsets, …)  [1, rows, heads, size]

Both are attention of sequences one behind the other (`varlen_attention`). What else they can do is left to PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from autosched.tracing.capture.fused_functions.varlen_attention import parts_of_attention

_aten = torch.ops.aten


def rules() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions of the operators."""
    return {
        _aten._flash_attention_forward.default: parts_of_flash,
        _aten._efficient_attention_forward.default: parts_of_efficient,
    }


def parts_of_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """As `parts_of_attention`, and two tensors that none reads."""
    if cum_seq_q is None or dropout_p or return_debug_mask or alibi_slopes is not None:
        return NotImplemented
    window = [-1 if size is None else size for size in (window_size_left, window_size_right)]
    made = parts_of_attention(
        query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, scale, window, False, seqused_k, block_table
    )
    if made is NotImplemented:
        return made
    unused = torch.zeros((), dtype=torch.uint64, device=query.device)
    return *made, unused, query.new_zeros(0)


def parts_of_efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> Any:
    """The result, no log-sum-exp, the state of random numbers, and the longest sequences."""
    if cu_seqlens_q is None or bias is not None or dropout_p or custom_mask_type or compute_log_sumexp:
        return NotImplemented
    if seqlen_k is not None or window_size is not None:
        return NotImplemented
    longest = max_seqlen_q or 0, max_seqlen_k or 0
    q, k, v = (t.squeeze(0) for t in (query, key, value))
    made = parts_of_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, scale=scale)
    if made is NotImplemented:
        return made
    nothing = query.new_zeros(cu_seqlens_q.size(0) - 1, query.size(2), 0, dtype=torch.float32)
    seed, offset = (torch.zeros((), dtype=torch.int64, device=query.device) for _ in range(2))
    return made[0].unsqueeze(0), nothing, seed, offset, *longest
