"""Joint decomposition of operators and their gradients: both are decomposed, or neither.

The operator of a gradient may take outputs that its forward operator keeps for it alone: flash attention, the logarithm
of its sums and the state of its random numbers. A decomposition of the forward operator gives its result, and arbitrary
values for these; only a decomposition of the gradient computes them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.view.default)


def has_gradient_operators(graph: fx.Graph) -> bool:
    """True if the gradient of an operator is left in a graph as an operator of its own."""
    return any(_is_gradient(node) for node in graph.nodes)


def one_sided(joint: fx.Graph, table: Mapping[Any, Callable[..., Any]]) -> set[Any]:
    """The operators of the table with outputs kept for a gradient which is not in the table.

    `joint`: a forward and backward graph in which nothing is decomposed yet.
    """
    left = [n for n in joint.nodes if _is_gradient(n) and n.target not in table]
    kept = (_kept_by(given) for node in left for given in node.all_input_nodes)
    return {maker.target for maker in kept if maker is not None and maker.target in table}


def _is_gradient(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and "backward" in node.target._schema.name


def _kept_by(given: fx.Node) -> fx.Node | None:
    """The operator of which this is another result than the first; None where it is none."""
    while given.target in _SAME:
        given = given.all_input_nodes[0]
    if given.target is not operator.getitem or given.args[1] == 0:
        return None
    maker = given.args[0]
    return maker if isinstance(maker, fx.Node) else None
