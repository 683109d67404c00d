"""Attention as people write it: functions of q, k, v and what masks or biases their scores, with small inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
B, H, G, M, C, D = 2, 6, 2, 24, 40, 16


def scores(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)) * 0.25


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k), -1) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("bhmd,bhcd->bhmc", q, k) * 0.25, -1)
    return torch.einsum("bhmc,bhce->bhme", weights, v)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def masked(condition: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """With scores only where the condition of positions holds."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = scores(q, k)
        m, c = torch.arange(s.shape[-2])[:, None], torch.arange(s.shape[-1])
        return torch.softmax(torch.where(condition(m, c), s, -math.inf), -1) @ v

    return function


def causal_by_tril(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    return torch.softmax(s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), -math.inf), -1) @ v


def causal_by_triu(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    above = torch.triu(torch.ones(s.shape[-2:]), 1).bool()
    return torch.softmax(s.masked_fill(above, -math.inf), -1) @ v


def causal_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    heads = torch.arange(1, s.shape[1] + 1).view(-1, 1, 1)
    distance = torch.arange(s.shape[-1]) - torch.arange(s.shape[-2])[:, None]
    bias = 2.0 ** (-8.0 * heads / s.shape[1]) * distance
    return torch.softmax(s + bias.to(s.dtype), -1) @ v


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) + bias, -1) @ v


def biased_fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def soft_capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(30 * torch.tanh(scores(q, k) / 30), -1) @ v


def padded(q: Tensor, k: Tensor, v: Tensor, kept: Tensor) -> Tensor:
    return torch.softmax(scores(q, k).masked_fill(~kept[:, None, None], -math.inf), -1) @ v


def padded_fused(q: Tensor, k: Tensor, v: Tensor, kept: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=kept[:, None, None])


def grouped_repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    times = q.shape[1] // k.shape[1]
    return plain(q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1))


def grouped_expanded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, g, c, d = k.shape
    k, v = (t[:, :, None].expand(b, g, q.shape[1] // g, c, d).reshape(b, -1, c, d) for t in (k, v))
    return plain(q, k, v)


def grouped_by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, h, m, d = q.shape
    g = k.shape[1]
    s = torch.einsum("bgrmd,bgcd->bgrmc", q.view(b, g, h // g, m, d), k) * 0.25
    return torch.einsum("bgrmc,bgce->bgrme", torch.softmax(s, -1), v).reshape(b, h, m, d)


def grouped_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def with_logarithm(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    s = scores(q, k).float()
    return torch.softmax(s, -1).to(v.dtype) @ v, torch.logsumexp(s, -1)


def paged(q: Tensor, keys: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """Pages of `keys` and `values`, each of some positions, in the order of the table's rows."""
    k, v = (t[table].flatten(1, 2).transpose(1, 2) for t in (keys, values))
    return plain(q, k, v)


def _of(heads: int, walked: int, rows: int = M, size: int = D) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = R(B, H, rows, D), R(B, heads, walked, D), R(B, heads, walked, size)
    return q, k, v


ALIKE, SQUARE, GROUPED = _of(H, C), _of(H, M), _of(G, C)
_KEPT = torch.arange(C) < torch.tensor([[C], [C // 2]])
# What each is, and what it is called with, in float32; functions of one row are one workload.
FORMS: dict[str, tuple[tuple[Callable[..., Any], ...], tuple[Tensor, ...]]] = {
    "plain": ((plain, by_einsum, fused), ALIKE),
    "causal": ((causal_by_tril, causal_by_triu, masked(torch.ge), causal_fused), SQUARE),
    "causal, more keys": ((causal_by_tril, masked(lambda m, c: c <= m), causal_fused), ALIKE),
    "window": ((masked(lambda m, c: (c <= m) & (m - c < 8)), masked(lambda m, c: (m >= c) & (c > m - 8))), SQUARE),
    "blocks": ((masked(lambda m, c: m // 8 >= c // 8),), SQUARE),
    "alibi": ((alibi,), ALIKE),
    "bias of positions": ((biased,), (*ALIKE, R(H, M, C))),
    "bias of keys": ((biased,), (*ALIKE, R(B, 1, 1, C))),
    "soft cap": ((soft_capped,), ALIKE),
    "padding": ((padded,), (*ALIKE, _KEPT)),
    "padding, fused": ((padded_fused,), (*ALIKE, _KEPT)),
    "grouped heads": ((grouped_repeated, grouped_expanded, grouped_by_einsum, grouped_fused), GROUPED),
    "other values": ((plain, fused), _of(H, C, size=24)),
    "one query": ((plain, fused), _of(H, C, rows=1)),
    "one query, grouped": ((grouped_repeated, grouped_by_einsum, grouped_fused), _of(G, C, rows=1)),
    "with logarithm": ((with_logarithm,), ALIKE),
    "pages": ((paged,), (R(B, H, M, D), R(9, 8, H, D), R(9, 8, H, D), torch.tensor([[4, 0, 7], [2, 8, 1]]))),
}
