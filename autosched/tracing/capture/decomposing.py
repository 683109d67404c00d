"""Operators and their gradients are written by others together, or not at all.

The operator of a gradient may take what its forward operator keeps for it alone: flash attention, the logarithms of its
sums and the state of its random numbers. A decomposition of the forward operator gives its result, and anything in
these other places; only a decomposition of the gradient knows what.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.view.default)


def has_gradient_operators(graph: fx.Graph) -> bool:
    """Whether the gradient of an operator is left in a graph as an operator of its own."""
    return any(_is_gradient(node) for node in graph.nodes)


def one_sided(joint: fx.Graph, table: Mapping[Any, Callable[..., Any]]) -> set[Any]:
    """The operators of the table that keep something for a gradient which is not in the table.

    `joint`: a forward and backward graph in which nothing is decomposed yet.
    """
    left = [n for n in joint.nodes if _is_gradient(n) and n.target not in table]
    kept = (_kept_by(given) for node in left for given in node.all_input_nodes)
    return {maker.target for maker in kept if maker is not None and maker.target in table}


def _is_gradient(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and "backward" in node.target._schema.name


def _kept_by(given: fx.Node) -> fx.Node | None:
    """The operator that this is another result of than the first; None where it is no such thing."""
    while given.target in _SAME:
        given = given.all_input_nodes[0]
    if given.target is not operator.getitem or given.args[1] == 0:
        return None
    maker = given.args[0]
    return maker if isinstance(maker, fx.Node) else None
