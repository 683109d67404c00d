"""Gradients of products of products, so that nothing has to be stored at the points between two of them.

    s = q @ kᵀ;  p = softmax(s);  out = p @ v

What the gradient needs of s and p is computed again from q and k, and from one number of each row, the logarithm of
its sum of exponentials: that is cheaper than storing and reading a value for every row and column.

    p = exp(s - lse)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from autosched.tracing.capture.graph_nodes import SAME, arguments_of, call, elements_of, is_product, shape_of

_aten = torch.ops.aten
# Sums of deeper products take longer than moving what they are; rows of more do not stay in registers either.
_DEEPEST = 256


def recompute_points(graph: fx.Graph) -> tuple[fx.Node, ...]:
    """Mark what a joint graph's partition is to compute again: points of products that are folded and then multiplied.

    Those are products with more elements than both operands, and pointwise work on them, unless they are returned.

    Returns what is to be kept instead, of which the forward graph needs nothing: a number of each row.
    """
    kept: list[fx.Node] = []
    tangents = _after(graph, (n for n in graph.nodes if _is_tangent(n)))
    forward = [n for n in graph.nodes if n.op != "output" and n not in tangents]
    constants = _constants(forward)
    for product in [n for n in forward if is_product(n) and _pays(n)]:
        points = _points(product, forward)
        folds = [n for n in forward if n not in points and not is_product(n) and points & {*n.all_input_nodes}]
        relative = _after(graph, folds) - points
        about = any(relative & {*p.all_input_nodes} for p in points)
        multiplied = [n for n in forward if n not in points and is_product(n) and points & {*n.all_input_nodes}]
        returned = any(user.op == "output" for p in points for user in p.users)
        if about and multiplied and not returned:
            logarithms, shares = _logarithms(graph, points, tangents)
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


def _logarithms(
    graph: fx.Graph, points: Collection[fx.Node], tangents: Collection[fx.Node]
) -> tuple[list[fx.Node], set[fx.Node]]:
    """Of exponentials about a number of a row, divided by another, those of the gradient about one number.

    Before:  p = exp(s - top) / total
    After:   p = exp(s - lse);  lse = top + log(total)

    Returns these numbers, and what is computed of the points with them.
    """
    kept: list[fx.Node] = []
    made: set[fx.Node] = set()
    for quotient in [n for n in points if n.target is _aten.div.Tensor]:
        power, total = arguments_of(quotient)
        difference = arguments_of(power)[0] if getattr(power, "target", None) is _aten.exp.default else None
        if not isinstance(difference, fx.Node) or difference.target is not _aten.sub.Tensor:
            continue
        value, top = arguments_of(difference)
        if value not in points or any(not isinstance(x, fx.Node) or x in points for x in (top, total)):
            continue
        with graph.inserting_before(quotient.next):
            lse = call(graph, _aten.add.Tensor, (top, call(graph, _aten.log.default, (total,))))
            away = call(graph, _aten.sub.Tensor, (value, lse))
            share = call(graph, _aten.exp.default, (away,))
        kept.append(lse)
        made |= {away, share} | _used_instead(graph, {quotient: share}, points, tangents)
    return kept, made


def _used_instead(
    graph: fx.Graph, other: dict[fx.Node, fx.Node], points: Collection[fx.Node], tangents: Collection[fx.Node]
) -> set[fx.Node]:
    """Compute the gradient with these instead, and from them what of the points it needs, which is returned."""
    for node in list(graph.nodes):
        if node in points and node not in other and other.keys() & {*node.all_input_nodes}:
            with graph.inserting_before(node.next):
                other[node] = graph.node_copy(node, lambda n: other.get(n, n))
        elif node in tangents:
            for given in node.all_input_nodes:
                node.replace_input_with(given, other.get(given, given))
    return {*other.values()}


def _moved(nodes: Iterable[fx.Node], constants: Collection[fx.Node]) -> set[fx.Node]:
    """What these are given that only renames or widens what something else is, and what is the same in every call."""
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
    """What is computed from nothing."""
    found: set[fx.Node] = set()
    for node in forward:
        if node.op == "call_function" and {*node.all_input_nodes} <= found and not _is_random(node):
            found.add(node)
    return found


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _points(product: fx.Node, forward: Iterable[fx.Node]) -> set[fx.Node]:
    """What is computed for every element of a product, from it and from what has a value of its rows."""
    found = {product}
    for node in forward:
        alike = elements_of(node) == elements_of(product) and not is_product(node) and not _is_random(node)
        if alike and found & {*node.all_input_nodes}:
            found.add(node)
    return found


def _after(graph: fx.Graph, first: Iterable[fx.Node]) -> set[fx.Node]:
    """These, and all that is computed from them."""
    found = {*first}
    for node in graph.nodes:
        if found & {*node.all_input_nodes}:
            found.add(node)
    return found


def _given(graph: fx.Graph, nodes: Collection[fx.Node], last: Collection[fx.Node]) -> set[fx.Node]:
    """Those of the nodes that are given to the last ones, or to others of them that are."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in nodes and any(user in last or user in found for user in node.users):
            found.add(node)
    return found
