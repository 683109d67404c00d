"""Gradients of products of products, so that nothing has to be stored at the points between two of them.

    s = q @ kᵀ;  p = softmax(s);  out = p @ v

What the gradient needs of s and p is computed again from q and k, from the maximum and the sum of each row: that is
cheaper than storing and reading a value for every row and column. And what it sums up along rows of p is known:

    dp = dout @ vᵀ;  sum over c of p * dp        =        sum over e of (p @ v) * dout

(Dao et al., "FlashAttention", 2022, appendix B.2.) So it is one number of a row that all of a row's points are less:

    p * dp - p * delta        =        p * (dp - delta)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.checkpoint import CheckpointPolicy

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.bmm.default)
# What has the elements of its argument, in their order.
_SAME = (
    *(_aten.alias.default, _aten.detach.default, _aten._to_copy.default, _aten.clone.default, _aten.expand.default),
    *(_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default),
    *(_aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims),
)
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
    for product in [n for n in forward if _is_product(n) and _pays(n)]:
        points = _points(product, forward)
        folds = [n for n in forward if n not in points and not _is_product(n) and points & {*n.all_input_nodes}]
        relative = _after(graph, folds) - points
        about = any(relative & {*p.all_input_nodes} for p in points)
        multiplied = [n for n in forward if n not in points and _is_product(n) and points & {*n.all_input_nodes}]
        returned = any(user.op == "output" for p in points for user in p.users)
        if about and multiplied and not returned:
            logarithms, shares = _logarithms(graph, points, tangents)
            kept += logarithms
            given = _given(graph, points | shares, tangents)
            for node in given | _moved([*points, *multiplied], constants) - points:
                node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    graph.eliminate_dead_code()
    return tuple(node for node in kept if node.users)


def fold_products(graph: fx.Graph) -> None:
    """Sums along rows of p * (g @ vᵀ) as those of (p @ v) * g, where p @ v is computed anyhow."""
    nodes = list(graph.nodes)
    for number, node in enumerate(nodes):
        if not _sums_rows(node):
            continue
        products = [n for n in nodes[:number] if _is_product(n)]
        factors = _arguments(_arguments(node)[0])
        for made, other in (factors, factors[::-1]):
            known = _of_the_same(_itself(made), _itself(other), products)
            if known:
                _replace(graph, node, *known)
                break
    graph.eliminate_dead_code()


def _of_the_same(made: fx.Node, p: fx.Node, products: Iterable[fx.Node]) -> tuple[fx.Node, fx.Node] | None:
    """p @ v and g, of p and `made`, g @ vᵀ; None where that is no such product."""
    if not _is_product(made) or _shape(made)[-1] != _shape(p)[-1] or _elements(made) != _elements(p):
        return None
    g, transposed = _arguments(made)
    for product in products:
        first, second = _arguments(product)
        if _itself(first) is p and _shape(first)[-1] == _shape(p)[-1] and _are_transposed(second, transposed):
            return product, g
    return None


def _replace(graph: fx.Graph, node: fx.Node, product: fx.Node, g: fx.Node) -> None:
    dtype, shape = _dtype(node), _shape(node)
    product = _returned(graph, product)
    with graph.inserting_before(node):
        alike = _call(graph, _aten.view.default, (product, [*_shape(g)]))
        wide = [_call(graph, _aten._to_copy.default, (x,), {"dtype": dtype}) for x in (alike, g)]
        multiplied = _call(graph, _aten.mul.Tensor, (*wide,))
        total = _call(graph, _aten.sum.dim_IntList, (multiplied, [-1], True))
        made = _call(graph, _aten.view.default, (total, list(shape)))
    for new in (alike, *wide, multiplied, total, made):
        new.meta = {**node.meta, "val": new.meta["val"]}
    node.replace_all_uses_with(made)
    for multiplied in [*made.users]:
        _take_out_factor(graph, multiplied, made)


def _take_out_factor(graph: fx.Graph, multiplied: fx.Node, delta: fx.Node) -> None:
    """Of differences p * dp - p * delta, with the second product given, make p * (dp - delta)."""
    if multiplied.target is not _aten.mul.Tensor:
        return
    (p,) = (a for a in _arguments(multiplied) if a is not delta)
    for difference in [u for u in multiplied.users if u.target is _aten.sub.Tensor and u.args[1] is multiplied]:
        slope = _arguments(difference)[0]
        others = [a for a in slope.args if a is not p] if getattr(slope, "target", None) is _aten.mul.Tensor else []
        if len(others) == 1:
            with graph.inserting_before(difference):
                about = _call(graph, _aten.sub.Tensor, (others[0], delta))
                made = _call(graph, _aten.mul.Tensor, (p, about))
            for new in (about, made):
                new.meta = {**difference.meta, "val": new.meta["val"]}
            difference.replace_all_uses_with(made)


def _returned(graph: fx.Graph, product: fx.Node) -> fx.Node:
    """The result of the graph that is this product, or else the product."""
    (output,) = (n for n in graph.nodes if n.op == "output")
    alike = (n for n in output.all_input_nodes if _itself(n) is product and _dtype(n) == _dtype(product))
    return next((n for n in alike if n.meta["val"].is_contiguous()), product)


def _call(graph: fx.Graph, target: Any, arguments: tuple[Any, ...], named: dict[str, Any] | None = None) -> fx.Node:
    """A call in the graph, with the fake tensor that it makes."""
    made = graph.call_function(target, arguments, named or {})
    given = [a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments]
    made.meta["val"] = target(*given, **(named or {}))
    return made


def _sums_rows(node: fx.Node) -> bool:
    """Whether this sums products of points along the last dimension, in an element type that holds such sums."""
    if node.target is not _aten.sum.dim_IntList:
        return False
    summed, dims, *_ = _arguments(node)
    wide = _dtype(node) in (torch.float32, torch.float64)
    last = dims in ([-1], [len(_shape(summed)) - 1])
    return wide and last and summed.target is _aten.mul.Tensor and all(isinstance(a, fx.Node) for a in summed.args)


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    """Nodes and numbers, as the operator has them."""
    return node.args


def _itself(node: fx.Node) -> fx.Node:
    """What this has the elements of, in their order."""
    while _keeps_order(node) and _elements(node.all_input_nodes[0]) == _elements(node):
        node = node.all_input_nodes[0]
    return node


def _keeps_order(node: fx.Node) -> bool:
    if node.target is not _aten.permute.default:
        return node.target in _SAME
    given, order = _arguments(node)
    long = [d for d in order if _shape(given)[d] != 1]
    return long == sorted(long)


def _are_transposed(a: Any, b: Any) -> bool:
    return any(x.target is _aten.permute.default and x.args[0] is y and _swaps(x.args[1]) for x, y in ((a, b), (b, a)))


def _swaps(order: Sequence[int]) -> bool:
    return [*order] == [*range(len(order) - 2), len(order) - 1, len(order) - 2]


def _is_product(node: fx.Node) -> bool:
    return node.target in _PRODUCTS


def _is_tangent(node: fx.Node) -> bool:
    return node.op == "placeholder" and node.name.startswith("tangents")


def _pays(product: fx.Node) -> bool:
    a, b = product.all_input_nodes if len(product.all_input_nodes) == 2 else 2 * product.all_input_nodes
    return _shape(a)[-1] <= _DEEPEST and _elements(product) > _elements(a) + _elements(b)


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
        power, total = _arguments(quotient)
        difference = _arguments(power)[0] if getattr(power, "target", None) is _aten.exp.default else None
        if not isinstance(difference, fx.Node) or difference.target is not _aten.sub.Tensor:
            continue
        value, top = _arguments(difference)
        if value not in points or any(not isinstance(x, fx.Node) or x in points for x in (top, total)):
            continue
        with graph.inserting_before(quotient.next):
            lse = _call(graph, _aten.add.Tensor, (top, _call(graph, _aten.log.default, (total,))))
            away = _call(graph, _aten.sub.Tensor, (value, lse))
            share = _call(graph, _aten.exp.default, (away,))
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
    if node.target not in (*_SAME, _aten.permute.default):
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
        alike = _elements(node) == _elements(product) and not _is_product(node) and not _is_random(node)
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


def _shape(node: fx.Node) -> torch.Size:
    made = node.meta["val"]
    assert isinstance(made, Tensor)
    return made.shape


def _dtype(node: fx.Node) -> torch.dtype:
    made = node.meta["val"]
    assert isinstance(made, Tensor)
    return made.dtype


def _elements(node: fx.Node) -> int:
    made = node.meta.get("val")
    return made.numel() if isinstance(made, Tensor) else 0
