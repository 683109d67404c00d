"""A layer of experts as users write it, and what computes it besides; timed by `irregular.py --only experts`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Operands = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def layer(x: Tensor, experts: Tensor, shares: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    """The sum of each token's experts, times their shares; `experts`, `shares`: [tokens, chosen ones]."""
    tokens, chosen = experts.shape
    number, order = experts.view(-1).sort()
    counts = torch.histc(number.float(), bins=down.shape[0], min=0, max=down.shape[0] - 1)
    ends = counts.cumsum(0, dtype=torch.int32)
    gate, up = F.grouped_mm(x[order // chosen], gate_and_up.mT, offs=ends).chunk(2, -1)
    made = F.grouped_mm(F.silu(gate) * up, down.mT, offs=ends) * shares.view(-1)[order][:, None]
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.numel(), device=x.device)
    return made[inverse].view(tokens, chosen, -1).sum(1)


def in_a_loop(x: Tensor, experts: Tensor, shares: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    """One expert after the other; which tokens each has comes to the host."""
    made = torch.zeros_like(x)
    for number in experts.unique().tolist():
        tokens, place = torch.where(experts == number)
        gate, up = F.linear(x[tokens], gate_and_up[number]).chunk(2, -1)
        rows = F.linear(F.silu(gate) * up, down[number])
        made.index_add_(0, tokens, rows * shares[tokens, place, None])
    return made


def routed(parts: Tensor, chosen: int, tokens: int) -> tuple[Tensor, Tensor]:
    """The experts of each token, drawn by their parts without repetition, and the shares of these."""
    generator = torch.Generator().manual_seed(2)
    # An expert without a part is chosen where there are not enough others.
    experts = (parts + 1e-9).expand(tokens, -1).multinomial(chosen, generator=generator)
    shares = torch.rand(tokens, chosen, generator=generator)
    return experts, (shares / shares.sum(-1, keepdim=True)).bfloat16()


def others(operands: Operands) -> Mapping[str, Callable[[], Tensor]]:
    """Who else computes the layer; the first one says what is right."""
    made: dict[str, Callable[[], Tensor]] = {
        "loop": partial(in_a_loop, *operands),
        "eager": partial(layer, *operands),
        "torch.compile": partial(torch.compile(layer, dynamic=False), *operands),
    }
    try:
        by_vllm = importlib.import_module("vllm.model_executor.layers.fused_moe").fused_experts
    except ImportError:
        return made
    x, experts, shares, gate_and_up, down = operands
    return {**made, "vLLM": partial(by_vllm, x, gate_and_up, down, shares.float(), experts.int())}
