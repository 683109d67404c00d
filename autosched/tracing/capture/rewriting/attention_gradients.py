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

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from autosched.tracing.capture.rewriting.fused_functions import (
    masked_scores,
    scale_of,
    softmax_with_logarithm,
    wide_product,
)

_aten = torch.ops.aten
# Memory-efficient attention keeps log-sum-exps of whole multiples of as many rows (kAlignLSE of its kernels).
_ROWS_AT_A_TIME = 32


def forward_parts(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Attention, and the log-sum-exps of its rows [batch, heads, rows, 1]; both are 0 in fully masked rows."""
    key, value = (_repeated(t, query) for t in (key, value))
    scores = masked_scores(query, key, mask, is_causal, scale)
    weights, logarithm = softmax_with_logarithm(scores, mask is not None)
    return weights.to(value.dtype) @ value, logarithm


def gradient_parts(
    slope: Tensor,
    tensors: tuple[Tensor, Tensor, Tensor, Tensor | None],
    out: Tensor,
    logarithm: Tensor,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and mask, which are the `tensors`; the last is not summed where one is shared.

    `slope`: the gradient of `out`. Products are of narrow tensors, as in the libraries, and sums float32.
    """
    query, key, value, mask = tensors
    scores = masked_scores(query, _repeated(key, query), mask, is_causal, scale)
    if mask is not None:
        # Of a fully masked row, whose points are -inf.
        logarithm = logarithm.masked_fill(logarithm == -math.inf, 0.0)
    weights = torch.exp(scores - logarithm)
    delta = (out.to(scores.dtype) * slope.to(scores.dtype)).sum(-1, keepdim=True)
    of_scores = weights * (wide_product(slope, _repeated(value, query)) - delta)
    narrow = (of_scores * scale_of(query, scale)).to(query.dtype)
    of_query = narrow @ _repeated(key, query)
    of_key = _by_group(narrow, key).mT @ _by_group(query, key)
    of_value = _by_group(weights.to(slope.dtype), value).mT @ _by_group(slope, value)
    return of_query, of_key, of_value, of_scores


def _repeated(shared: Tensor, query: Tensor) -> Tensor:
    """Keys or values, for each head of queries."""
    times = query.size(1) // shared.size(1)
    return shared if times == 1 else shared.repeat_interleave(times, 1)


def _by_group(rows: Tensor, shared: Tensor) -> Tensor:
    """Rows of all heads that share one of keys or values, as rows of one head."""
    batch, heads, _, columns = rows.shape
    return rows if heads == shared.size(1) else rows.reshape(batch, shared.size(1), -1, columns)


@dataclass(frozen=True)
class _Call:
    """The arguments of an operator that all libraries have."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float | None

    @property
    def stays(self) -> bool:
        """True where the operator is not taken apart: it has dropout, or nothing to compute with."""
        return self.dropout_p > 0 or 0 in (*self.query.shape, self.key.size(-2))


def _called(given: Mapping[str, Any]) -> _Call:
    mask = given.get("attn_mask", given.get("attn_bias"))
    names = ("dropout_p", "is_causal", "scale")
    return _Call(given["query"], given["key"], given["value"], mask, *(given[name] for name in names))


def _by_name(operator: torch._ops.OpOverload, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    arguments = operator._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return {**defaults, **dict(zip((a.name for a in arguments), given, strict=False)), **named}


def _forward_rule(operator: torch._ops.OpOverload, *given: Any, **named: Any) -> Any:
    arguments = _by_name(operator, given, named)
    called = _called(arguments)
    if called.stays:
        return NotImplemented
    out, logarithm = forward_parts(called.query, called.key, called.value, called.mask, called.is_causal, called.scale)
    logarithm = _laid_out(operator, logarithm, arguments.get("compute_log_sumexp", True))
    # Besides sizes there is state of random numbers and the like, of which nothing is read.
    sizes = {"max_q": called.query.size(-2), "max_k": called.key.size(-2)}
    return (out, logarithm, *(sizes.get(r.name) for r in operator._schema.returns[2:]))


def _laid_out(operator: torch._ops.OpOverload, logarithm: Tensor, wanted: bool) -> Tensor:
    """Log-sum-exps as the library keeps them."""
    if operator is _aten._scaled_dot_product_cudnn_attention.default:
        return logarithm
    rows = logarithm.squeeze(-1)
    if operator is not _aten._scaled_dot_product_efficient_attention.default:
        return rows
    if not wanted:
        return rows[..., :0]
    missing = -rows.size(-1) % _ROWS_AT_A_TIME
    return F.pad(rows, (0, missing), value=math.inf) if missing else rows


def _gradient_rule(operator: torch._ops.OpOverload, *given: Any, **named: Any) -> Any:
    arguments = _by_name(operator, given, named)
    called = _called(arguments)
    if called.stays:
        return NotImplemented
    rows = called.query.size(-2)
    logarithm = arguments["logsumexp"][:, :, :rows].reshape(*called.query.shape[:-1], 1)
    tensors = (called.query, called.key, called.value, called.mask)
    *made, of_mask = gradient_parts(given[0], tensors, arguments["out"], logarithm, called.is_causal, called.scale)
    if len(operator._schema.returns) == len(made):
        return tuple(made)
    wanted = called.mask is not None and arguments["grad_input_mask"][-1]
    return (*made, of_mask.sum_to_size(called.mask.shape).to(called.mask.dtype) if wanted else None)


def rules() -> dict[Any, Callable[..., Any]]:
    """The decompositions of the libraries' operators and of their gradients."""
    names = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    found: dict[Any, Callable[..., Any]] = {}
    for name in names:
        forward = getattr(_aten, f"_scaled_dot_product_{name}").default
        gradient = getattr(_aten, f"_scaled_dot_product_{name}_backward").default
        found |= {forward: partial(_forward_rule, forward), gradient: partial(_gradient_rule, gradient)}
    return found


def without_random_state(joint: fx.GraphModule) -> None:
    """Let attention without dropout be no operator of random numbers where AOTAutograd partitions a joint graph.

    Before:  out, lse, …, state = attention(q, k, v);  … = attention_backward(dout, q, k, v, out, lse, …, state)
    After:   out, lse, … = attention(q, k, v);         … = attention_backward(dout, q, k, v, out, lse, …, constant)

    A forward graph then has nothing to return that only the library makes; and where attention is computed again,
    PyTorch does not save the state of its generator for that. `with_operators` undoes the latter.
    """
    known = rules()
    for node in joint.graph.nodes:
        if node.target not in known:
            continue
        given = _by_name(node.target, node.args, node.kwargs)
        if given["dropout_p"] > 0:
            continue
        for state in (given.get("philox_seed"), given.get("philox_offset")):
            if isinstance(state, fx.Node) and state.op != "get_attr":
                node.replace_input_with(state, _constant_like(joint, state))
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


def _constant_like(joint: fx.GraphModule, state: fx.Node) -> fx.Node:
    """A constant 0 of the graph, first in it, of the shape, element type and device of this value."""
    like: Tensor = state.meta["val"]
    name = f"no_state_{like.dtype}_{like.dim()}".replace(".", "_")
    for node in joint.graph.find_nodes(op="get_attr", target=name):
        return node
    with unset_fake_temporarily():
        zeros = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    joint.register_buffer(name, zeros, persistent=False)
    with joint.graph.inserting_before(next(iter(joint.graph.nodes))):
        made = joint.graph.get_attr(name)
    made.meta["val"] = like
    return made
