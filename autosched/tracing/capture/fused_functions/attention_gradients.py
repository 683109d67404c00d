"""Attention of PyTorch's libraries in parts, with the log-sum-exp of every row, and the parts of its gradient.

    s = (q @ kᵀ) * scale + mask;  lse = logsumexp(s);  out = exp(s - lse) @ v

    p = exp(s - lse);  delta = sum over channels of out * dout;  ds = p * (dout @ vᵀ - delta)
    dq = scale * ds @ k;  dk = scale * dsᵀ @ q;  dv = pᵀ @ dout

(Dao et al., "FlashAttention", 2022, appendix B.) AOTAutograd puts an operator of a library into the forward graph, and
its gradient into the backward graph; which library, PyTorch decides by device, shapes and masks. What the first keeps
for the second, each lays out in its own way. So either may be by kernels, and the other by the library. With dropout,
both stay as they are: the state of random numbers is the library's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from autosched.tracing.capture.fused_functions.written_out import (
    masked_scores,
    scale_of,
    softmax_with_logarithm,
    wide_product,
)

_aten = torch.ops.aten
_LOWER_RIGHT = (
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_backward.default,
)
# Memory-efficient attention keeps log-sum-exps of whole multiples of as many rows (kAlignLSE of its kernels).
_ROWS_AT_A_TIME = 32


@dataclass(frozen=True)
class _Attention:
    """The operands of an operator: [batch, heads, rows, channels]; heads of keys and values may be fewer."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float | None

    def scores(self) -> Tensor:
        """The scores before their softmax, float32 where the tensors are narrower."""
        return masked_scores(self.query, self.per_head(self.key), self.mask, self.is_causal, self.scale)

    def per_head(self, shared: Tensor) -> Tensor:
        """Keys or values for each head of queries."""
        times = self.query.size(1) // shared.size(1)
        return shared if times == 1 else shared.repeat_interleave(times, 1)

    def by_group(self, rows: Tensor) -> Tensor:
        """Rows of the heads that share keys and values, as rows of one head."""
        batch, heads, _, columns = rows.shape
        shared = self.key.size(1)
        return rows if heads == shared else rows.reshape(batch, shared, -1, columns)


def _forward_parts(given: _Attention) -> tuple[Tensor, Tensor]:
    """Attention, and the log-sum-exps of its rows [batch, heads, rows, 1]; both are 0 in fully masked rows."""
    weights, logarithm = softmax_with_logarithm(given.scores(), given.mask is not None)
    return weights.to(given.value.dtype) @ given.per_head(given.value), logarithm


def _gradient_parts(
    given: _Attention, slope: Tensor, out: Tensor, logarithm: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value and scores, from that of `out`: products are of narrow tensors, as in the
    libraries.
    """
    scores, query, key = given.scores(), given.query, given.key
    if given.mask is not None:
        # A library may say -inf of a fully masked row, whose scores are -inf.
        logarithm = logarithm.masked_fill(logarithm == -math.inf, 0.0)
    weights = torch.exp(scores - logarithm)
    delta = (out.to(scores.dtype) * slope.to(scores.dtype)).sum(-1, keepdim=True)
    of_scores = weights * (wide_product(slope, given.per_head(given.value)) - delta)
    narrow = (of_scores * scale_of(query, given.scale)).to(query.dtype)
    of_query = narrow @ given.per_head(key)
    of_key = given.by_group(narrow).mT @ given.by_group(query)
    of_value = given.by_group(weights.to(slope.dtype)).mT @ given.by_group(slope)
    return of_query, of_key, of_value, of_scores


def rules() -> dict[Any, Callable[..., Any]]:
    """The decompositions of the libraries' operators and of their gradients."""
    found: dict[Any, Callable[..., Any]] = {}
    for name in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu"):
        forward = getattr(_aten, f"_scaled_dot_product_{name}").default
        gradient = getattr(_aten, f"_scaled_dot_product_{name}_backward").default
        found |= {forward: partial(_forward_rule, forward), gradient: partial(_gradient_rule, gradient)}
    return found


def _forward_rule(operator: torch._ops.OpOverload, *given: Any, **named: Any) -> Any:
    arguments = _by_name(operator, given, named)
    if _stays(operator, arguments):
        return NotImplemented
    attention = _attention_of(arguments)
    out, logarithm = _forward_parts(attention)
    # Besides sizes there is state of random numbers and the like, of which nothing is read.
    sizes = {"max_q": attention.query.size(-2), "max_k": attention.key.size(-2)}
    rest = (sizes.get(r.name) for r in operator._schema.returns[2:])
    return (out, _laid_out(operator, logarithm, arguments.get("compute_log_sumexp", True)), *rest)


def _gradient_rule(operator: torch._ops.OpOverload, *given: Any, **named: Any) -> Any:
    arguments = _by_name(operator, given, named)
    if _stays(operator, arguments):
        return NotImplemented
    attention = _attention_of(arguments)
    *batch, rows, _ = attention.query.shape
    logarithm = arguments["logsumexp"][:, :, :rows].reshape(*batch, rows, 1)
    *made, of_scores = _gradient_parts(attention, given[0], arguments["out"], logarithm)
    if len(operator._schema.returns) == len(made):
        return tuple(made)
    mask = attention.mask
    if mask is None or not arguments["grad_input_mask"][-1]:
        return (*made, None)
    return (*made, of_scores.sum_to_size(mask.shape).to(mask.dtype))


def _by_name(operator: torch._ops.OpOverload, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call, defaults included."""
    arguments = operator._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return {**defaults, **dict(zip((a.name for a in arguments), given, strict=False)), **named}


def _stays(operator: torch._ops.OpOverload, given: Mapping[str, Any]) -> bool:
    """True where the operator is not taken apart: it has dropout, float64, or nothing to compute with; it returns what
    is for debugging; or its causal mask ends in the lower right corner, as that of the flash library does.
    """
    query, drops = given["query"], given["dropout_p"] > 0 or given.get("return_debug_mask", False)
    rows, columns = query.size(-2), given["key"].size(-2)
    lower_right = operator in _LOWER_RIGHT and given["is_causal"] and rows != columns
    return drops or lower_right or query.dtype is torch.float64 or 0 in (*query.shape, columns)


def _attention_of(given: Mapping[str, Any]) -> _Attention:
    mask = given.get("attn_mask", given.get("attn_bias"))
    return _Attention(given["query"], given["key"], given["value"], mask, given["is_causal"], given["scale"])


def _laid_out(operator: torch._ops.OpOverload, logarithm: Tensor, wanted: bool) -> Tensor:
    """Log-sum-exps as the library keeps them; memory-efficient attention keeps those that are `wanted`."""
    rows = logarithm.squeeze(-1)
    if operator is _aten._scaled_dot_product_cudnn_attention.default:
        return logarithm if _keeps_last_dimension() else rows
    if operator is not _aten._scaled_dot_product_efficient_attention.default:
        return rows
    missing = -rows.size(-1) % _ROWS_AT_A_TIME
    padded = F.pad(rows, (0, missing), value=math.inf) if missing else rows
    return padded if wanted else padded[..., :0]


def without_random_state(joint: fx.GraphModule) -> None:
    """Let attention without dropout be no operator of random numbers where AOTAutograd partitions a joint graph.

    Before:  out, lse, …, state = attention(q, k, v);  … = attention_backward(dout, q, k, v, out, lse, …, state)
    After:   out, lse, … = attention(q, k, v);         … = attention_backward(dout, q, k, v, out, lse, …, lse)

    No library reads the state then. A forward graph has nothing to return that only the library makes; and where
    attention is computed again, PyTorch does not save the state of its generator for that. `with_operators` undoes the
    latter.
    """
    known = rules()
    for node in joint.graph.nodes:
        if node.target not in known:
            continue
        given = _by_name(node.target, node.args, node.kwargs)
        if given["dropout_p"] > 0:
            continue
        for state in (given.get("philox_seed"), given.get("philox_offset")):
            if isinstance(state, fx.Node):
                node.replace_input_with(state, given["logsumexp"])
        if "recompute" in node.meta:
            node.target = _Deterministic(node.target)
    joint.graph.eliminate_dead_code()


def with_operators(graph: fx.GraphModule) -> None:
    """Let calls of attention be those of PyTorch's operators again."""
    for node in graph.graph.nodes:
        if isinstance(node.target, _Deterministic):
            node.target = node.target.operator
    graph.recompile()


class _Deterministic:
    """An operator without its tags."""

    def __init__(self, operator: torch._ops.OpOverload) -> None:
        self.operator = operator
        # As code of a graph names it.
        self.__name__ = operator._schema.name.replace("::", "_")

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.operator(*given, **named)


@functools.cache
def _keeps_last_dimension() -> bool:
    """True if cuDNN's log-sum-exps are [batch, heads, rows, 1]: in some versions of PyTorch they are [batch, heads,
    rows].
    """
    with _disable_current_modes():
        given = [torch.empty((1, 1, 8, 8), device="meta", dtype=torch.float16)] * 3
        kept: Tensor = _aten._scaled_dot_product_cudnn_attention(*given, None, True)[1]
    return kept.dim() == 4
