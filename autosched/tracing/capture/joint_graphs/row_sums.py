"""Normal form of sums over gradients of products: sums of existing products, which are kept anyway.

    out = p @ v;  dp = dout @ vᵀ;  sum over c of p * dp        =        sum over e of out * dout

(Dao et al., "FlashAttention", 2022, appendix B.2.) It is one number of a row, subtracted from all of the row's points:

    p * dp - p * delta        =        p * (dp - delta)

A rule cannot say so: in the gradient's own graph the product is one of the values that the forward graph may keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from autosched.tracing.capture.graph_nodes import (
    arguments_of,
    call,
    dtype_of,
    elements_of,
    is_difference,
    is_product,
    itself,
    shape_of,
)

_aten = torch.ops.aten


def fold_products(graph: fx.Graph) -> None:
    """Rewrite sums along rows of p * (g @ vᵀ) as those of (p @ v) * g, where p @ v is computed anyhow."""
    nodes = list(graph.nodes)
    for number, node in enumerate(nodes):
        if not _sums_rows(node):
            continue
        before = nodes[:number]
        products = [n for n in before if is_product(n)]
        factors = arguments_of(arguments_of(node)[0])
        for made, other in (factors, factors[::-1]):
            known = _of_the_same(itself(made), itself(other), products)
            if known:
                product, g = known
                _replace(graph, node, _returned(product, before), g)
                break
    graph.eliminate_dead_code()


def _of_the_same(made: fx.Node, p: fx.Node, products: Iterable[fx.Node]) -> tuple[fx.Node, fx.Node] | None:
    """p @ v and g, for p and `made`, g @ vᵀ; None where that is no such product."""
    if not is_product(made) or shape_of(made)[-1] != shape_of(p)[-1] or elements_of(made) != elements_of(p):
        return None
    g, transposed = arguments_of(made)
    for product in products:
        first, second = arguments_of(product)
        if itself(first) is p and shape_of(first)[-1] == shape_of(p)[-1] and _are_transposed(second, transposed):
            return product, g
    return None


def _replace(graph: fx.Graph, node: fx.Node, product: fx.Node, g: fx.Node) -> None:
    dtype, shape = dtype_of(node), shape_of(node)
    with graph.inserting_before(node):
        alike = call(graph, _aten.view.default, (product, [*shape_of(g)]))
        wide = [call(graph, _aten._to_copy.default, (x,), {"dtype": dtype}) for x in (alike, g)]
        multiplied = call(graph, _aten.mul.Tensor, (*wide,))
        total = call(graph, _aten.sum.dim_IntList, (multiplied, [-1], True))
        made = call(graph, _aten.view.default, (total, list(shape)))
    for new in (alike, *wide, multiplied, total, made):
        new.meta = {**node.meta, "val": new.meta["val"]}
    node.replace_all_uses_with(made)
    for multiplied in [*made.users]:
        _take_out_factor(graph, multiplied, made)


def _take_out_factor(graph: fx.Graph, multiplied: fx.Node, delta: fx.Node) -> None:
    """Rewrite differences p * dp - p * delta, given the second product, as p * (dp - delta)."""
    if multiplied.target is not _aten.mul.Tensor:
        return
    p = next((a for a in arguments_of(multiplied) if a is not delta), None)
    if not isinstance(p, fx.Node):
        return
    for difference in [u for u in multiplied.users if is_difference(u) and u.args[1] is multiplied]:
        slope = arguments_of(difference)[0]
        others = [a for a in slope.args if a is not p] if getattr(slope, "target", None) is _aten.mul.Tensor else []
        if len(others) == 1 and isinstance(others[0], fx.Node):
            with graph.inserting_before(difference):
                about = call(graph, _aten.sub.Tensor, (others[0], delta))
                made = call(graph, _aten.mul.Tensor, (p, about))
            for new in (about, made):
                new.meta = {**difference.meta, "val": new.meta["val"]}
            difference.replace_all_uses_with(made)


def _returned(product: fx.Node, before: Iterable[fx.Node]) -> fx.Node:
    """The result of the graph that is this product, computed `before`, or else the product."""
    results = (n for n in before if any(user.op == "output" for user in n.users) and elements_of(n))
    alike = (n for n in results if itself(n) is product and dtype_of(n) == dtype_of(product))
    return next((n for n in alike if n.meta["val"].is_contiguous()), product)


def _sums_rows(node: fx.Node) -> bool:
    """True for a sum of products of points along the last dimension, in an element type wide enough for it."""
    if node.target is not _aten.sum.dim_IntList:
        return False
    summed, dims, *_ = arguments_of(node)
    wide = dtype_of(node) in (torch.float32, torch.float64)
    last = dims in ([-1], [len(shape_of(summed)) - 1])
    return wide and last and summed.target is _aten.mul.Tensor and all(isinstance(a, fx.Node) for a in summed.args)


def _are_transposed(a: Any, b: Any) -> bool:
    return any(x.target is _aten.permute.default and x.args[0] is y and _swaps(x.args[1]) for x, y in ((a, b), (b, a)))


def _swaps(order: Sequence[int]) -> bool:
    return [*order] == [*range(len(order) - 2), len(order) - 1, len(order) - 2]
