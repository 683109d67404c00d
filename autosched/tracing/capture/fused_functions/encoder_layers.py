"""PyTorch's inference functions of transformers, written out as the modules that call them are without them.

    nn.TransformerEncoderLayer    without a gradient: torch._transformer_encoder_layer_fwd    →  its parts
    nn.MultiheadAttention         without a gradient: torch._native_multi_head_attention      →  its parts

Dynamo follows these modules to one operator of a library for each layer. A gradient, or a mode for functions as
capture uses, leads them to the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from autosched.tracing.capture.fused_functions.attention import attention

# Masks of the types (query, key), (batch, key) and (batch, head, query, key) as tensors of four dimensions.
_MASK_VIEWS = {0: (None, None, ...), 1: (slice(None), None, None), 2: (...,)}


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """torch._native_multi_head_attention of tensors (batch, sequence, embed_dim), with its result and weights.

    `mask`: True, or anything but 0, where a key is not seen. A query that sees no key has 0 without weights, and NaN
    with them, as in the module without this function.
    """
    # One product, where all three are of the same tensor.
    if query is key and key is value:
        projected = list(F.linear(query, qkv_weight, qkv_bias).chunk(3, -1))
    else:
        parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        projected = [F.linear(x, weight, bias) for x, weight, bias in parts]
    q, k, v = (t.unflatten(-1, (num_head, -1)).transpose(1, 2) for t in projected)
    hidden = None if mask is None else mask.to(torch.bool)[_MASK_VIEWS[mask_type or 0]]
    if not need_weights:
        mixed, weights = attention(q, k, v, None if hidden is None else ~hidden), query.new_empty(0)
    else:
        scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)
        shares = torch.softmax(scores if hidden is None else scores.masked_fill(hidden, -torch.inf), -1)
        mixed, weights = shares @ v, shares.mean(1) if average_attn_weights else shares
    return F.linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """torch._transformer_encoder_layer_fwd of a tensor (batch, sequence, embed_dim)."""

    def first_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Tensor) -> Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]

    def fed_forward(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first_norm(src))
        return x + fed_forward(second_norm(x))
    x = first_norm(src + attended(src))
    return second_norm(x + fed_forward(x))


def write_encoder_layers_out(graph: fx.Graph) -> None:
    """Let calls of these functions in a graph of Dynamo's become their parts, when the graph is taken apart."""
    replacements: dict[Any, Callable[..., Any]] = {
        torch._transformer_encoder_layer_fwd: encoder_layer,
        torch._native_multi_head_attention: multi_head_attention,
    }
    for function, parts in replacements.items():
        for node in graph.find_nodes(op="call_function", target=function):
            node.target = parts
