"""Attention of sequences of any lengths, one behind the other: PyTorch's operator for it, written out.

    torch.nn.attention.varlen.varlen_attn(q, k, v, cu_seq_q, cu_seq_k, …)
    softmax(where(the sequence of row t is that of column u, (q @ kᵀ) * scale, -inf)) @ v

Every row reads the columns of its own sequence alone, as its mask says, which consists of bounds and positions.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from autosched.tracing.capture.fused_functions.written_out import scale_of, softmax_with_logarithm, wide_product


def rules() -> Mapping[Any, Callable[..., Any]]:
    """The decomposition of the operator, where PyTorch has it."""
    with suppress(ImportError):
        # It makes the operator.
        importlib.import_module("torch.nn.attention.varlen")
        return {torch.ops.torch_attn._varlen_attn.default: parts_of_attention}
    return {}


def parts_of_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: list[int] | None = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """The result [rows, heads, size], the log-sum-exp [heads, rows], and a state of random numbers that none reads.

    `max_q`, `max_k`: the longest sequences, which the bounds imply; `num_splits`: how a library splits its work. Rows
    behind the last sequence, and without a column, are 0. Keys in pages are left to PyTorch.
    """
    if block_table is not None or cu_seq_k is None:
        return NotImplemented
    # As in PyTorch's function for heads that are shared.
    groups = query.size(1) // key.size(1)
    rows, keys, values = (t.transpose(0, 1) for t in (query, key, value))
    if groups > 1:
        keys, values = (t.repeat_interleave(groups, 0) for t in (keys, values))
    seen = _seen(_Sequences(cu_seq_q, query), _Sequences(cu_seq_k, key, seqused_k), is_causal, window_size or [-1, -1])
    scores = (wide_product(rows, keys) * scale_of(query, scale)).masked_fill(~seen, -math.inf)
    weights, logarithm = softmax_with_logarithm(scores, True)
    made = (weights.to(value.dtype) @ values).transpose(0, 1).contiguous()
    return made, logarithm.squeeze(-1).float(), torch.zeros(2, dtype=torch.uint64, device=query.device)


class _Sequences:
    """The sequences along the first dimension of a tensor: those of all its positions."""

    def __init__(self, offsets: Tensor, of: Tensor, used: Tensor | None = None) -> None:
        self.offsets, self.used = offsets, used
        self.positions = torch.arange(of.size(0), device=of.device, dtype=offsets.dtype)
        self.number = torch.searchsorted(offsets, self.positions, right=True)

    @property
    def in_one(self) -> Tensor:
        """True at positions that a sequence has."""
        inside = self.number < self.offsets.size(0)
        return inside if self.used is None else inside & (self.positions < self._ends())

    def from_the_end(self) -> Tensor:
        """Positions less the end of their sequence: in attention the last rows and the last columns are level."""
        return self.positions - self._ends()

    def _ends(self) -> Tensor:
        number = self.number.clamp(max=self.offsets.size(0) - 1)
        if self.used is None:
            return self.offsets[number]
        before = (number - 1).clamp(min=0)
        return self.offsets[before] + self.used[before]


def _seen(rows: _Sequences, columns: _Sequences, is_causal: bool, window: list[int]) -> Tensor:
    """The columns that each row reads. `window`: how many before and behind its own position, -1 for all."""
    seen = (rows.number[:, None] == columns.number) & columns.in_one
    left, right = window[0], 0 if is_causal else window[1]
    if left < 0 and right < 0:
        return seen
    # Sequences of the same bounds are level from their first positions on.
    level = rows.offsets is columns.offsets and columns.used is None
    row, column = (s.positions if level else s.from_the_end() for s in (rows, columns))
    if left >= 0:
        seen = seen & (row[:, None] - left <= column)
    return seen & (column <= row[:, None] + right) if right >= 0 else seen
