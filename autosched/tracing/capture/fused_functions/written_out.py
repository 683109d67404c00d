"""PyTorch's fused functions written out, before PyTorch replaces them by operators of some library.

    scaled_dot_product_attention(q, k, v)    →    softmax((q @ kᵀ) * scale) @ v
    dropout(x, training=False)               →    x
    interpolate(x, mode="bilinear")          →    the same along one dimension, then along the other

Their parts are then partitioned and fused like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float16, torch.bfloat16)


class TakenApart(TorchFunctionMode):
    """A context in which calls of fused functions are written out as their parts."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        rule = _RULES.get(func)
        made = None if rule is None else rule(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if made is None else made


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """The function of its documentation; None where it has dropout.

    Scores are float32, as they are in all kernels of it; the probabilities have the type of the values. Fully masked
    rows are 0.
    """
    if dropout_p > 0:
        return None
    if enable_gqa:
        key, value = (t.repeat_interleave(query.size(-3) // t.size(-3), -3) for t in (key, value))
    if not key.size(-2):
        # Empty sums, as without a mask: a softmax over no score has no maximum.
        attn_mask, is_causal = None, False
    scores = masked_scores(query, key, attn_mask, is_causal, scale)
    weights = torch.softmax(scores, -1) if attn_mask is None else _softmax_or_nothing(scores)
    return weights.to(value.dtype) @ value


def masked_scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """query @ keyᵀ * scale, in float32 where they are narrower, and with the mask."""
    scores = _scores(query, key) * scale_of(query, scale)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if attn_mask is None:
        return scores
    return scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is torch.bool else scores + attn_mask


def scale_of(query: Tensor, scale: float | None) -> float:
    """The factor of scores, by default 1 / √size of a head."""
    # Heads of size 0 have scores of 0 at any scale.
    return 1 / math.sqrt(query.size(-1) or 1) if scale is None else scale


def _scores(query: Tensor, key: Tensor) -> Tensor:
    """query @ keyᵀ, in float32 where they are narrower."""
    if query.dtype in _NARROW and torch.is_grad_enabled():
        return cast(Callable[..., Tensor], _WideProduct.apply)(query, key)
    return wide_product(query, key)


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ bᵀ, in float32 where they are narrower."""
    if a.dtype in _NARROW:
        a, b = a.float(), b.float()
    return a @ b.transpose(-2, -1)


class _WideProduct(torch.autograd.Function):
    """The product of narrow tensors in float32, whose gradient is rounded to the type of the other operand."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor) -> Tensor:
        ctx.save_for_backward(query, key)
        return wide_product(query, key)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        query, key = ctx.saved_tensors
        narrow = slope.to(query.dtype)
        of_query, of_key = narrow @ key, narrow.transpose(-2, -1) @ query
        return of_query.sum_to_size(query.shape), of_key.sum_to_size(key.shape)


def _softmax_or_nothing(x: Tensor) -> Tensor:
    """softmax(x, -1), but 0 in rows of -inf alone."""
    if torch.is_grad_enabled():
        return cast(Callable[..., Tensor], _SoftmaxOrNothing.apply)(x)
    return _weights(x)


class _SoftmaxOrNothing(torch.autograd.Function):
    """With the gradient of a softmax, which is 0 in fully masked rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        weights = _weights(x)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        weights: Tensor = ctx.saved_tensors[0]
        made = slope * weights
        return made - weights * made.sum(-1, keepdim=True)


def _weights(x: Tensor) -> Tensor:
    return softmax_with_logarithm(x, True)[0]


def softmax_with_logarithm(x: Tensor, masked: bool) -> tuple[Tensor, Tensor]:
    """softmax(x, -1) and logsumexp(x, -1, keepdim=True); `masked`: both are 0 in rows of -inf alone."""
    top = x.amax(-1, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0) if masked else top
    powers = torch.exp(x - top)
    total = powers.sum(-1, keepdim=True)
    total = total.masked_fill(total == 0.0, 1.0) if masked else total
    return powers / total, top + torch.log(total)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
    """The tensor itself, and no copy, where nothing is dropped; None where it drops at random."""
    return None if training else x


def _channel_shuffle(x: Tensor, groups: int) -> Tensor | None:
    """One group is copied on a CPU, where torch.export says that it is returned; None of several."""
    return x.clone() if groups == 1 and x.device.type == "cpu" else None


# Dimensions of an image, by the mode of its interpolation.
_RANKS = {"bilinear": 2, "trilinear": 3}


def _interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor | None:
    """Linear interpolation along one dimension after the other where a gradient is wanted of it.

    The gradient puts slopes at two places along each dimension, instead of at all corners of a cell.
    """
    rank = input.dim() - 2
    if _RANKS.get(mode) != rank or antialias or not (torch.is_grad_enabled() and input.requires_grad):
        return None
    name, given = ("scale_factor", scale_factor) if size is None else ("size", size)
    each = given if isinstance(given, list | tuple) else [given] * rank
    # Arguments that PyTorch refuses.
    if (size is None) == (scale_factor is None) or len(each) != rank:
        return None
    made = input.float() if input.dtype in _NARROW else input
    for d, number in enumerate(each, 2):
        lines = made.movedim(d, -1)
        flat = F.interpolate(
            lines.reshape(1, -1, lines.shape[-1]),
            mode="linear",
            align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
            **{name: number},
        )
        made = flat.view(*lines.shape[:-1], -1).movedim(-1, d)
    return made.to(input.dtype).contiguous(memory_format=torch._prims_common.suggest_memory_format(input))


_RULES: Mapping[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.dropout: _dropout,
    F.interpolate: _interpolate,
    F.channel_shuffle: _channel_shuffle,
}
