"""Functions of one or two kernels that models are made of, memory-bound ones and products with what surrounds them.

autosched bench fused --suite tests/figures/suites/functions.py --trials 150
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TOKENS, HIDDEN, INNER = 16384, 768, 3072


def gelu_scaled(x: Tensor) -> Tensor:
    return 2 * F.gelu(x)


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def softmax_from_parts(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def softmax_wide(x: Tensor) -> Tensor:
    return x.float().softmax(-1)


def layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rmsnorm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight)


def layernorm_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(layernorm(x, weight, bias))


def add_rmsnorm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    return rmsnorm(x + residual, weight)


def batchnorm_relu(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, mean, variance, weight, bias).relu()


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def cross_entropy(scores: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(scores.float(), classes, reduction="none")


def mean_of_squares(x: Tensor) -> Tensor:
    return x.float().square().mean(-1)


def column_sum(x: Tensor) -> Tensor:
    return x.float().sum(0)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def linear_residual(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return F.linear(x, weight, bias) + residual


def layernorm_linear(x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor) -> Tensor:
    return F.linear(layernorm(x, scale, shift), weight)


def ffn(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    return F.linear(linear_gelu(x, up, up_bias), down, down_bias)


def gated_linear(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


SUITE = {
    "gelu_scaled_1k": (gelu_scaled, [((1024,), "f32")]),
    "gelu_scaled_1m": (gelu_scaled, [((2**20,), "f32")]),
    "gelu_scaled_16m": (gelu_scaled, [((2**24,), "f32")]),
    "softmax_4096": (softmax, [((4096, 4096), "f32")]),
    "softmax_from_parts": (softmax_from_parts, [((4096, 4096), "f32")]),
    "softmax_short_rows": (softmax, [((131072, 128), "f16")]),
    "softmax_long_rows": (softmax_wide, [((512, 131072), "bf16")]),
    "layernorm": (layernorm, [((TOKENS, HIDDEN), "bf16"), *[((HIDDEN,), "bf16")] * 2]),
    "rmsnorm": (rmsnorm, [((8192, 4096), "bf16"), ((4096,), "bf16")]),
    "layernorm_gelu": (layernorm_gelu, [((TOKENS, 4096), "bf16"), *[((4096,), "bf16")] * 2]),
    "add_rmsnorm": (add_rmsnorm, [*[((8192, 4096), "bf16")] * 2, ((4096,), "bf16")]),
    "batchnorm_relu": (
        batchnorm_relu,
        [((32, 256, 56, 56), "f32"), ((256,), "f32"), ((256,), "positive f32"), *[((256,), "f32")] * 2],
    ),
    "swiglu": (swiglu, [((4096, 11008), "bf16")] * 2),
    "cross_entropy": (cross_entropy, [((4096, 32000), "bf16"), ((4096,), "int64 below 32000")]),
    "mean_of_squares": (mean_of_squares, [((TOKENS, 4096), "bf16")]),
    "column_sum": (column_sum, [((65536, 1024), "bf16")]),
    "linear_gelu": (linear_gelu, [((TOKENS, HIDDEN), "bf16"), ((INNER, HIDDEN), "bf16"), ((INNER,), "bf16")]),
    "linear_residual": (
        linear_residual,
        [((TOKENS, INNER), "bf16"), ((HIDDEN, INNER), "bf16"), ((HIDDEN,), "bf16"), ((TOKENS, HIDDEN), "bf16")],
    ),
    "layernorm_linear": (
        layernorm_linear,
        [((TOKENS, HIDDEN), "bf16"), *[((HIDDEN,), "bf16")] * 2, ((HIDDEN, HIDDEN), "bf16")],
    ),
    "ffn": (
        ffn,
        [
            ((TOKENS, HIDDEN), "bf16"),
            ((INNER, HIDDEN), "bf16"),
            ((INNER,), "bf16"),
            ((HIDDEN, INNER), "bf16"),
            ((HIDDEN,), "bf16"),
        ],
    ),
    "gated_linear": (gated_linear, [((2048, 4096), "bf16"), *[((14336, 4096), "bf16")] * 2]),
}
