"""Common subexpressions: operators that a graph applies to equal arguments more than once.

    f(x): y = exp(x); z = exp(x); return y @ z        =        f(x): y = exp(x); return y @ y

(Cocke, "Global common subexpression elimination", 1970.) PyTorch's own pass runs where a gradient is partitioned, and
in no other graph.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from autosched.tracing.capture.graph_nodes import OWN_OPERATORS


def merge_equal(graph: fx.Graph, apart: frozenset[str] = frozenset()) -> None:
    """Let the first of equal nodes take the place of the others, except for nodes of the names `apart`.

    A result that is returned twice is then one node: its memory is decided elsewhere (`result_memory`).
    """
    if changes_in_place(graph):
        return
    for node, first in first_equal(graph).items():
        if first is not node and not {node.name, first.name} & apart:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def changes_in_place(graph: fx.Graph) -> bool:
    """True if an operator of the graph changes a tensor: equal arguments may then have other elements."""
    return any(isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable for n in graph.nodes)


def first_equal(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """For every node of a graph without changes in place, last ones first, the first that is equal to it; or itself."""
    first: dict[fx.Node, fx.Node] = {}
    known: dict[Hashable, fx.Node] = {}
    for node in graph.nodes:
        first[node] = known.setdefault(_key(node, first), node) if _has_one_result(node) else node
    return dict(reversed(first.items()))


def _has_one_result(node: fx.Node) -> bool:
    """True if a node of equal arguments has the same result, of sizes that are known."""
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        # Operators of other libraries may have another result in every call.
        repeats = target.namespace in OWN_OPERATORS and torch.Tag.nondeterministic_seeded not in target.tags
    else:
        repeats = target is operator.getitem
    made = pytree.tree_leaves(node.meta.get("val"))
    return repeats and any(isinstance(x, Tensor) for x in made) and all(map(_is_known, made))


def _is_known(made: object) -> bool:
    return made is None or (isinstance(made, Tensor) and all(isinstance(n, int) for n in made.shape))


def _key(node: fx.Node, first: dict[fx.Node, fx.Node]) -> Hashable:
    return node.target, _key_of(node.args, first), _key_of(node.kwargs, first)


def _key_of(argument: Any, first: dict[fx.Node, fx.Node]) -> Hashable:
    """Equal for equal arguments: 1, 1.0 and True are not, nor are 0.0 and -0.0."""
    match argument:
        case fx.Node():
            return first[argument]
        case list() | tuple():
            return tuple(_key_of(x, first) for x in argument)
        case dict():
            return tuple((name, _key_of(x, first)) for name, x in sorted(argument.items()))
        case slice(start=start, stop=stop, step=step):
            return slice, _key_of((start, stop, step), first)
        case _:
            return type(argument), repr(argument)
