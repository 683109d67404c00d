"""What stands in models and is neither a single product nor a reduction of rows: 27 functions, as a suite.

autosched bench fused --suite tests/figures/suites/structures.py --trials 64

Several results of one kernel, reductions over several axes, parts put together, scans, and chains of products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan

FEATURES, IMAGE = (512,), (32, 64, 256, 256)
HEADS_64, HEADS_128, LONG_HEADS = (4, 16, 2048, 64), (4, 16, 2048, 128), (1, 32, 8192, 128)
ROPE = (8, 32, 2048, 128)


def adamw_step(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient * gradient
    return 0.99 * weight - 1e-3 * mean / (torch.sqrt(square) + 1e-8), mean, square


def add_rmsnorm_both(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    added = x + residual
    return F.rms_norm(added, (added.shape[-1],), weight), added


def layernorm_stats(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    # 448 is the largest number of float8 e4m3.
    scale = x.abs().amax(-1, keepdim=True).float() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def softmax_lse(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    return wide.softmax(-1), wide.logsumexp(-1)


def groupnorm_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 32, weight, bias))


def batchnorm_train(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
    normalised = (x - mean) * torch.rsqrt(variance + 1e-5)
    return normalised * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1), mean, variance


def global_norm(x: Tensor) -> Tensor:
    return x.float().pow(2).sum().sqrt()


def mean_of_image(x: Tensor) -> Tensor:
    return x.mean((2, 3))


def logsumexp_rows(x: Tensor) -> Tensor:
    return x.float().logsumexp(-1)


def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat((-high, low), -1) * sine


def rope_interleaved(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)


def glu_halves(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def cat_relu(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat((a, b), 1).relu()


def pixel_shuffle_relu(x: Tensor) -> Tensor:
    return F.pixel_shuffle(x, 2).relu()


def pad_blur(x: Tensor) -> Tensor:
    """The mean of a point's four neighbours, zeros around the image."""
    x = F.pad(x, (1, 1, 1, 1))
    return (x[..., :-2, 1:-1] + x[..., 2:, 1:-1] + x[..., 1:-1, :-2] + x[..., 1:-1, 2:]) * 0.25


def transpose_cast(x: Tensor) -> Tensor:
    return x.transpose(-1, -2).contiguous().to(torch.bfloat16)


def max_pool(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2, 1)


def embedding_sum(words: Tensor, positions: Tensor, table: Tensor) -> Tensor:
    return F.embedding(words, table) + positions


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(-1)


def linear_recurrence(decay: Tensor, x: Tensor) -> Tensor:
    """h[t] = sigmoid(decay[t]) h[t-1] + x[t] along rows."""

    def combined(first: tuple[Tensor, Tensor], then: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return first[0] * then[0], first[1] * then[0] + then[1]

    _, found = associative_scan(combined, (torch.sigmoid(decay), x), -1, combine_mode="generic")
    return found


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5, -1) @ v


def attention_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v


def attention_gqa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Eight heads of queries share one of keys and values."""
    batch, heads, length, size = q.shape
    grouped = q.view(batch, heads // 8, 8, length, size)
    weights = torch.softmax(torch.einsum("bgrqd,bgkd->bgrqk", grouped, k) * size**-0.5, -1)
    return torch.einsum("bgrqk,bgkd->bgrqd", weights, v).reshape(q.shape)


def attention_softcap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(30 * torch.tanh(scores / 30), -1) @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def lora(x: Tensor, weight: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return F.linear(x, weight) + F.linear(F.linear(x, down), up)


SUITE = {
    "adamw": (adamw_step, [*[((2**26,), "f32")] * 3, ((2**26,), "positive f32")]),
    "add_rmsnorm_both": (add_rmsnorm_both, [*[((8192, 4096), "bf16")] * 2, ((4096,), "bf16")]),
    "layernorm_stats": (layernorm_stats, [((16384, 1024), "bf16"), *[((1024,), "bf16")] * 2]),
    "quantize_rows": (quantize_rows, [((8192, 8192), "bf16")]),
    "softmax_lse": (softmax_lse, [((8192, 4096), "bf16")]),
    "groupnorm_silu": (groupnorm_silu, [((16, 512, 64, 64), "bf16"), *[(FEATURES, "bf16")] * 2]),
    "batchnorm_train": (batchnorm_train, [((64, 256, 56, 56), "f32"), *[((256,), "f32")] * 2]),
    "global_norm": (global_norm, [((2**27,), "bf16")]),
    "mean_of_image": (mean_of_image, [((256, 2048, 7, 7), "f16")]),
    "logsumexp_odd_rows": (logsumexp_rows, [((4096, 50257), "bf16")]),
    "rope": (rope, [(ROPE, "bf16"), *[(ROPE[2:], "bf16")] * 2]),
    "rope_interleaved": (rope_interleaved, [(ROPE, "bf16"), *[((2048, 64), "bf16")] * 2]),
    "glu_halves": (glu_halves, [((8192, 22016), "bf16")]),
    "cat_relu": (cat_relu, [((32, 256, 56, 56), "f16"), ((32, 128, 56, 56), "f16")]),
    "pixel_shuffle_relu": (pixel_shuffle_relu, [((16, 256, 64, 64), "f16")]),
    "pad_blur": (pad_blur, [(IMAGE, "f16")]),
    "transpose_cast": (transpose_cast, [((64, 2048, 1024), "f32")]),
    "max_pool": (max_pool, [((64, 64, 112, 112), "f16")]),
    "embedding_sum": (
        embedding_sum,
        [((64, 512), "int64 below 30000"), ((512, 768), "bf16"), ((30000, 768), "bf16")],
    ),
    "cumsum": (cumsum, [((8192, 8192), "f32")]),
    "linear_recurrence": (linear_recurrence, [((4096, 4096), "f32")] * 2),
    "attention_64": (attention, [(HEADS_64, "bf16")] * 3),
    "attention_causal_128": (attention_causal, [(HEADS_128, "bf16")] * 3),
    "attention_gqa": (attention_gqa, [((4, 32, 2048, 128), "bf16"), *[((4, 4, 2048, 128), "bf16")] * 2]),
    "attention_softcap": (attention_softcap, [((2, 8, 4096, 256), "bf16")] * 3),
    "sdpa_long": (sdpa, [(LONG_HEADS, "bf16")] * 3),
    "lora": (lora, [((8192, 4096), "bf16"), ((4096, 4096), "bf16"), ((16, 4096), "bf16"), ((4096, 16), "bf16")]),
}
