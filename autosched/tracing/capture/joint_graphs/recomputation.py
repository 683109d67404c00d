"""Rematerialisation in gradients of chained products, so that no point between two products is stored.

    s = q @ kᵀ;  p = softmax(s);  out = p @ v

The gradient recomputes s and p from q and k, and from one number of each row, its log-sum-exp, or from two
(`log_sum_exp`): that is cheaper than storing and reading a value for every row and column.

    p = exp(s - lse)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from autosched.tracing.capture.graph_nodes import SAME, elements_of, is_product, shape_of
from autosched.tracing.capture.joint_graphs.log_sum_exp import about_one_number

_aten = torch.ops.aten
# With a larger k, recomputing a product takes longer than moving it, and longer rows do not stay in registers either.
_DEEPEST = 256


def recompute_points(graph: fx.Graph) -> tuple[fx.Node, ...]:
    """Mark the nodes that a joint graph's partition recomputes: points of products that are reduced and then
    multiplied.

    Those are products with more elements than both operands, and pointwise work on them, unless they are returned.
    Returns the nodes to keep instead, which the forward graph itself does not need: a number of each row.
    """
    kept: list[fx.Node] = []
    tangents = _after(graph, (n for n in graph.nodes if _is_tangent(n)))
    forward = [n for n in graph.nodes if n.op != "output" and n not in tangents]
    constants = _constants(forward)
    for node in constants:
        # The positions that a gradient puts elements at are known when they are not read from memory.
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    for product in [n for n in forward if is_product(n) and _pays(n)]:
        points = _points(product, forward)
        folds = [n for n in forward if n not in points and not is_product(n) and points & {*n.all_input_nodes}]
        relative = _after(graph, folds) - points
        about = any(relative & {*p.all_input_nodes} for p in points)
        multiplied = [n for n in forward if n not in points and is_product(n) and points & {*n.all_input_nodes}]
        returned = any(user.op == "output" for p in points for user in p.users)
        if about and multiplied and not returned:
            logarithms, shares = about_one_number(graph, points, tangents)
            kept += logarithms
            given = _given(graph, points | shares, tangents)
            for node in given | _moved([*points, *multiplied], constants) - points:
                node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    graph.eliminate_dead_code()
    return tuple(node for node in kept if node.users)


def _is_tangent(node: fx.Node) -> bool:
    return node.op == "placeholder" and node.name.startswith("tangents")


def _pays(product: fx.Node) -> bool:
    a, b = product.all_input_nodes if len(product.all_input_nodes) == 2 else 2 * product.all_input_nodes
    return shape_of(a)[-1] <= _DEEPEST and elements_of(product) > elements_of(a) + elements_of(b)


def _moved(nodes: Iterable[fx.Node], constants: Collection[fx.Node]) -> set[fx.Node]:
    """The operands of these that only rename or widen others, and constants."""
    found: set[fx.Node] = set()
    rest = [given for node in nodes for given in node.all_input_nodes]
    while rest:
        node = rest.pop()
        if node not in found and (node in constants or _renames(node)):
            found.add(node)
            rest += node.all_input_nodes
    return found


def _renames(node: fx.Node) -> bool:
    if node.target not in (*SAME, _aten.permute.default):
        return False
    (given,) = node.all_input_nodes
    return bool(given.meta["val"].itemsize <= node.meta["val"].itemsize)


def _constants(forward: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes without inputs, and those computed from such alone."""
    found: set[fx.Node] = set()
    for node in forward:
        if node.op == "call_function" and {*node.all_input_nodes} <= found and not _is_random(node):
            found.add(node)
    return found


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _points(product: fx.Node, forward: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes computed for every element of a product, from it and from per-row values."""
    found = {product}
    for node in forward:
        alike = elements_of(node) == elements_of(product) and not is_product(node) and not _is_random(node)
        if alike and found & {*node.all_input_nodes}:
            found.add(node)
    return found


def _after(graph: fx.Graph, first: Iterable[fx.Node]) -> set[fx.Node]:
    """These nodes, and all that depend on them."""
    found = {*first}
    for node in graph.nodes:
        if found & {*node.all_input_nodes}:
            found.add(node)
    return found


def _given(graph: fx.Graph, nodes: Collection[fx.Node], last: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes from which `last` is reachable within `nodes`."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in nodes and any(user in last or user in found for user in node.users):
            found.add(node)
    return found
