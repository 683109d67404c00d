"""Functions that are traced, by name, each with arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import inductor_prims

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
CLOSED_OVER = R(8)


def Z(below: int, *shape: int) -> Tensor:
    """Whole numbers, as R are real ones."""
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(1))


def grouped_queries(q: Tensor, k: Tensor) -> Tensor:
    """Scores of attention whose keys are shared by two heads each: a batch axis along which an operand is the same."""
    return q @ k[:, :, None].expand(2, 3, 2, 6, 4).reshape(2, 6, 6, 4).transpose(-1, -2)


def rotated_halves(x: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embedding: the first half of every row turned against the second; the two halves of the result."""
    a, b = x.chunk(2, -1)
    return a * c - b * s, b * c + a * s


def rotated_pairs(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """Rotary embedding: neighbours turned against each other, and stored where they were."""
    turned = torch.empty_like(x)
    turned[..., ::2] = x[..., ::2] * c - x[..., 1::2] * s
    turned[..., 1::2] = x[..., 1::2] * c + x[..., ::2] * s
    return turned


# name: the function, and its arguments. Each must come out as the function itself does in float64.
CASES: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "gelu": (lambda x: F.gelu(x) * 2, R(4, 8)),
    "softmax0": (lambda x: x.softmax(0), R(6, 8)),
    "softmax1of3": (lambda x: x.softmax(1), R(3, 6, 8)),
    "logsm": (lambda x: x.log_softmax(-1), R(6, 8)),
    "ln": (lambda x, w, b: F.layer_norm(x, (8,), w, b), R(2, 3, 8), R(8), R(8)),
    "ln2": (lambda x: F.layer_norm(x, (6, 8)), R(4, 6, 8)),
    "gn": (lambda x: F.group_norm(x, 4), R(2, 8, 5)),
    "bn": (lambda x, m, v: F.batch_norm(x, m, v), R(2, 8, 5), R(8), R(8).abs() + 0.1),
    "bn_train_stats": (lambda x: (x.mean((0, 2)), x.var((0, 2))), R(4, 8, 5)),
    "rms": (lambda x, w: F.rms_norm(x, (8,), w), R(4, 8), R(8)),
    "ce": (lambda x, t: F.cross_entropy(x, t, reduction="none"), R(5, 9), Z(9, 5)),
    "ce_mean": (lambda x, t: F.cross_entropy(x, t), R(5, 9), Z(9, 5)),
    "nll": (lambda x, t: F.nll_loss(x, t), R(5, 9), Z(9, 5)),
    "foreach": (lambda a, b, c: torch._foreach_addcdiv([a, b], [b, c], [c, a], [2.0, 3.0]), R(7), R(7), R(7) ** 2 + 1),
    "fma": (lambda a, b, c: inductor_prims.fma(a, b, c), R(4, 5), R(4, 5), R(4, 5)),
    "colsum": (lambda x: x.sum(0), R(50, 9)),
    "sumall": (lambda x: x.sum(), R(50, 9)),
    "mean_mid": (lambda x: x.mean(1), R(5, 9, 7)),
    "norm": (lambda x: x.norm(dim=-1), R(5, 9)),
    "normalize": (lambda x: F.normalize(x, dim=-1), R(5, 9)),
    "argmax": (lambda x: x.argmax(-1), R(5, 9)),
    "argmin0": (lambda x: x.argmin(0), R(5, 9)),
    "argmaxall": (lambda x: x.argmax(), R(5, 9)),
    "maxdim": (lambda x: x.max(-1), R(5, 9)),
    "any": (lambda x: (x > 1).any(-1), R(5, 9)),
    "all": (lambda x: (x > -1).all(), R(5, 9)),
    "prod": (lambda x: x.prod(-1), R(5, 9)),
    "logsumexp": (lambda x: x.logsumexp(-1), R(5, 9)),
    "var": (lambda x: x.var(-1), R(5, 9)),
    "std": (lambda x: x.std(0), R(5, 9)),
    "linear": (lambda x, w, b: F.relu(F.linear(x, w, b)), R(4, 5, 8), R(6, 8), R(6)),
    "mm": (lambda a, b: a @ b, R(4, 8), R(8, 6)),
    "mmT": (lambda a, b: (a @ b.t()).t(), R(4, 8), R(6, 8)),
    "bmm": (lambda a, b: a @ b, R(3, 4, 8), R(3, 8, 6)),
    "bmm_shared": (lambda a, b: a @ b, R(3, 4, 8), R(8, 6)),
    "mv": (lambda a, b: a @ b, R(4, 8), R(8)),
    "vm": (lambda b, a: b @ a, R(4), R(4, 8)),
    "dot": (lambda a, b: a @ b, R(8), R(8)),
    "attn": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        R(2, 3, 5, 8),
        R(2, 3, 5, 8),
        R(2, 3, 5, 8),
    ),
    "attn_heads": (
        lambda x, w: (
            F.scaled_dot_product_attention(*(t.view(2, 5, 2, 4).transpose(1, 2) for t in (x @ w).split(8, -1)))
            .transpose(1, 2)
            .reshape(2, 5, 8)
        ),
        R(2, 5, 8),
        R(8, 24),
    ),
    "embed": (lambda i, w: F.embedding(i, w) * 2, Z(9, 3, 4), R(9, 8)),
    "embed_ln": (lambda i, w: F.layer_norm(F.embedding(i, w), (8,)), Z(9, 3, 4), R(9, 8)),
    "gather": (lambda x, i: x.gather(1, i), R(4, 9), Z(9, 4, 3)),
    "index": (lambda x, i: x[i], R(9, 4), Z(9, 3)),
    "index2": (lambda x, i, j: x[i, :, j], R(9, 4, 5), Z(9, 3), Z(5, 3)),
    "index_adj": (lambda x, i, j: x[:, i, j], R(3, 9, 5), Z(9, 3), Z(5, 3)),
    "index_sel": (lambda x, i: x.index_select(1, i), R(3, 9), Z(9, 4)),
    "masked": (lambda x, m: x.masked_fill(m, -math.inf).softmax(-1), R(4, 8), R(4, 8) > 0.5),
    "tril": (lambda x: (x.tril(), x.triu(1)), R(6, 6)),
    "where": (lambda x, y: torch.where(x > 0, x, y), R(4, 8), R(8)),
    "clamp": (lambda x: x.clamp(-1, 1) + x.clamp(min=0), R(4, 8)),
    "chain": (lambda x: x.sigmoid().tanh().exp().log1p().sqrt().sin().cos(), R(4, 8)),
    "rounds": (lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.sign()), R(4, 8) * 3),
    "pow": (lambda x: (x**3, x.abs() ** 1.7, x**2, x.abs() ** -0.5, 2**x), R(4, 8)),
    "constants_of_constants": (lambda x: torch.zeros_like(x).abs() ** x.abs() + torch.ones_like(x).exp() * x, R(4, 8)),
    "two_zeros": (lambda x: ((x * 0.0).reciprocal(), (x * -0.0).reciprocal()), R(4, 8)),
    "any_of_uint8": (lambda x: (x.any(), x.any(0), x.all(1)), Z(2, 4, 5).to(torch.uint8)),
    "uint8_and_larger": (lambda x: (x < 300, x > -1), Z(256, 4, 5).to(torch.uint8)),
    "rounds_to_signed_zero": (lambda x: torch.atan2(x.round(), x), torch.tensor([-0.3, -0.0, 0.0, 0.3, -0.5, -1.5])),
    "rem": (lambda x: (x % 3, torch.fmod(x, 2.0)), R(4, 8) * 5),
    "slices": (lambda x: x[1:3, ::2] * 2 + x[2:4, 1::2], R(5, 8)),
    "halves": (lambda x: x[..., :4] - x[..., 4:], R(5, 8)),
    "rope_halves": (rotated_halves, R(3, 5, 8), R(5, 4), R(5, 4)),
    "rope_rolled": (lambda x, c, s: x * c + x.roll(4, -1) * s, R(3, 5, 8), R(5, 8), R(5, 8)),
    "rope_pairs": (rotated_pairs, R(3, 5, 8), R(5, 4), R(5, 4)),
    "perm": (lambda x: (x * 2).permute(2, 0, 1), R(3, 4, 5)),
    "perm_reshape": (lambda x: (x * 2).permute(2, 0, 1).reshape(5, 12) + 1, R(3, 4, 5)),
    "viewonly": (lambda x: x.t(), R(3, 4)),
    "ident": (lambda x: x, R(3, 4)),
    "bcast": (lambda x, y: x[:, None] + y[None], R(3), R(4)),
    "expand": (lambda x: x.expand(3, 4) * 2, R(4)),
    "const": (lambda x: x + CLOSED_OVER, R(4, 8)),
    "bf16": (lambda x, w: F.silu(x) * w, R(4, 8).bfloat16(), R(4, 8).bfloat16()),
    "intsum": (lambda x: (x > 2).sum(-1), Z(9, 4, 5)),
    "ffn": (lambda x, a, b: F.gelu(x @ a, approximate="tanh") @ b, R(4, 8), R(8, 16), R(16, 8)),
    "diag": (lambda x: x.diagonal() * 2, R(5, 5)),
    "global_norm": (lambda x: x / x.sum(), R(4, 5)),
    "two_red": (lambda x: x.sum(0) / x.sum(), R(4, 5)),
    "outer_softmax_mm": (lambda x, y: (x @ y).softmax(-1), R(4, 5), R(5, 6)),
    "size1": (lambda x: x.softmax(-1) + x.mean(0), R(1, 5)),
    "size1b": (lambda x: x.softmax(-1), R(5, 1)),
    "scalarin": (lambda x, s: x * s, R(4, 5), R(())),
    "scalar_out": (lambda x, s: s * 2, R(4, 5), R(())),
    "topmean": (lambda x: x - x.mean(-1, keepdim=True) - x.mean(0, keepdim=True) + x.mean(), R(4, 5)),
    "mse": (lambda x, y: F.mse_loss(x, y), R(4, 5), R(4, 5)),
    "kl": (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), R(4, 5), R(4, 5)),
    "bce": (lambda x, y: F.binary_cross_entropy_with_logits(x, y), R(4, 5), R(4, 5).sigmoid()),
    "huber": (lambda x, y: F.smooth_l1_loss(x, y), R(4, 5), R(4, 5)),
    "acts": (
        lambda x: (
            F.elu(x),
            F.leaky_relu(x),
            F.hardswish(x),
            F.softplus(x),
            F.mish(x),
            F.hardtanh(x),
            F.relu6(x),
            F.selu(x),
            F.celu(x),
        ),
        R(4, 5),
    ),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), R(2, 4, 5), R(2, 6, 5)),
    "addmmab": (lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2), R(4, 6), R(4, 5), R(5, 6)),
    "arange": (lambda x: x * torch.arange(8), R(4, 8)),
    "causal": (lambda x: x.masked_fill(torch.arange(8)[:, None] < torch.arange(8), -1e9).softmax(-1), R(2, 8, 8)),
    "strided_factor": (lambda x: x[:, :, 0] @ x[:, :, 1].t(), R(4, 6, 5)),
    "strided_sum": (lambda x: x[:, :3].sum(), R(4, 6)),
    "repeated_factor": (lambda x: x[:, None].expand(4, 3, 5).transpose(1, 2) @ x[:, None].expand(4, 3, 5), R(4, 5)),
    "sums_multiplied": (lambda x, w: x.sum(-1) @ w, R(4, 6, 5), R(6, 3)),
    "grouped_queries": (grouped_queries, R(2, 6, 5, 4), R(2, 3, 6, 4)),
    "modulo": (lambda x: x[torch.arange(3) * 5 % 4], R(4, 6)),
    "prologue": (lambda x, w: F.relu(x) @ w, R(4, 6).bfloat16(), R(6, 3).bfloat16()),
    "two_products": (lambda x, a, b: F.silu(x @ a) * (x @ b), *(R(4, 4).bfloat16() for _ in range(3))),
}
