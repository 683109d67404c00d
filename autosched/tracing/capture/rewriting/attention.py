"""Attention as one operator, whichever library PyTorch would call: kernels see its parts, others call the library.

Before:  scaled_dot_product_attention(q, k, v, mask)     in a graph of Dynamo's
After:   autosched_functions.attention(q, k, v, mask)    in the graph of ATen operators
         softmax((q @ kᵀ) * scale + mask) @ v            where kernels are cut from that

PyTorch would put the operator of a library there, or, where it knows of none, products of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from autosched.tracing.capture.rewriting.fused_functions import scaled_dot_product_attention

_NAME = "autosched_functions::attention"
torch.library.define(
    _NAME,
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale, bool enable_gqa)"
    " -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


@torch.library.impl(_NAME, "CompositeExplicitAutograd")
def _by_library(*given: Any) -> Tensor:
    """PyTorch's function; its result is copied where the library laid it out otherwise than the operator promises."""
    query, key, value, mask, *options = given
    made = _of_operator(F.scaled_dot_product_attention, (query, key, value, _with_dense_rows(mask), *options))
    promised = _empty(made, made.shape)
    return made if made.stride() == promised.stride() else promised.copy_(made)


def _with_dense_rows(mask: Tensor | None) -> Tensor | None:
    """The mask with the columns of a row next to each other, as the fused libraries require; else PyTorch multiplies in
    float32. Masks that models compute are often expanded along them; dimensions before stay so.
    """
    if mask is None or mask.stride(-1) == 1:
        return mask
    once = [slice(1) if stride == 0 else slice(None) for stride in mask.stride()[:-1]]
    return mask[*once].contiguous().expand_as(mask)


def _of_operator(function: Callable[..., Any], given: Sequence[Any]) -> Tensor:
    """PyTorch's function, or another of its signature, of the operator's arguments; nothing is dropped."""
    *tensors, is_causal, scale, enable_gqa = given
    made: Tensor = function(*tensors, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return made


def _without_data(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    batches = [t.shape[: -3 if enable_gqa else -2] for t in (query, key, value)]
    heads = [query.shape[-3]] if enable_gqa else []
    return _empty(query, (*torch.broadcast_shapes(*batches), *heads, query.shape[-2], value.shape[-1]))


torch.library.register_fake(_NAME, _without_data)


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Memory in which heads are next to their channels, as the fused libraries of GPUs leave it."""
    if len(shape) < 4:
        return like.new_empty(shape)
    *outer, heads, length, channels = shape
    return like.new_empty((*outer, length, heads, channels)).transpose(-3, -2)


OPERATOR = torch.ops.autosched_functions.attention.default


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """PyTorch's scaled_dot_product_attention as the operator, where no gradient is wanted and nothing is dropped.

    Transforms such as torch.vmap, and tensors that consist of others, have rules for PyTorch's operators alone.
    """
    given = (query, key, value, attn_mask)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
    transformed = torch._C._functorch.maybe_current_level() is not None
    if wanted or dropout_p > 0 or transformed or any(map(is_traceable_wrapper_subclass, given)):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    made: Tensor = OPERATOR(*_as_by_autocast(given), is_causal, scale, enable_gqa)
    return made


def _as_by_autocast(given: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The tensors in the type in which autocast, where it is on, computes attention."""
    device = next(t.device.type for t in given if t is not None)
    if not torch.is_autocast_enabled(device):
        return list(given)
    dtype = torch.get_autocast_dtype(device)
    return [t if t is None or not t.is_floating_point() or t.dtype is torch.float64 else t.to(dtype) for t in given]


def parts_of_attention(*given: Any) -> Tensor:
    """The decomposition of the operator, of its arguments."""
    made = _of_operator(scaled_dot_product_attention, given)
    return made if made.dim() < 4 else made.transpose(-3, -2).contiguous().transpose(-3, -2)


def replaced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or that of the operator for attention."""
    return attention if function is F.scaled_dot_product_attention else function


def keep_attention_whole(graph: fx.Graph) -> None:
    """Let calls of attention in a graph of Dynamo's become the operator, when the graph is taken apart."""
    for node in graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention):
        node.target = attention
