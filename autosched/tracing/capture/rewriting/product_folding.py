"""Sums over gradients of products, rewritten as sums of existing products.

    out = p @ v;  dp = dout @ vᵀ;  sum over c of p * dp        =        sum over e of out * dout

(Dao et al., "FlashAttention", 2022, appendix B.2.) It is one number of a row, subtracted from all of the row's points:

    p * dp - p * delta        =        p * (dp - delta)

Where one v multiplies several rows of p (query heads sharing a key head), a sum of products is one product:

    sum over r of (sum over m of p[r, m, c] * dout[r, m, e])        =        sum over (r, m) of p * dout
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from autosched.tracing.capture.graph_nodes import (
    SAME,
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
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default, _aten.clone.default)


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


def fold_repeats(graph: fx.Graph) -> None:
    """Merge sums over a part of a product's batch, of computed points, into the product's k."""
    for product in [n for n in graph.nodes if n.target is _aten.bmm.default and _is_of_points(n)]:
        seen, swapped = _seen_as(product)
        total = _only_user(seen)
        if total is not None and total.target is _aten.sum.dim_IntList and dtype_of(total) == dtype_of(product):
            _fold_repeat(graph, product, total, swapped)
    graph.eliminate_dead_code()


def _is_of_points(product: fx.Node) -> bool:
    """True if the largest operand is computed, and neither a product's result nor an input."""
    first, second = arguments_of(product)
    return any(
        _is_computed(points) and elements_of(points) > elements_of(other) + elements_of(product)
        for points, other in ((first, second), (second, first))
    )


def _is_computed(operand: fx.Node) -> bool:
    while operand.target in (*SAME, _aten.permute.default):
        (operand,) = operand.all_input_nodes
    return operand.op == "call_function" and not is_product(operand)


def _seen_as(product: fx.Node) -> tuple[fx.Node, bool]:
    """The last view of it that splits its batch, and True if rows are columns there."""
    seen, swapped = product, False
    while (user := _only_user(seen)) is not None:
        if user.target in _VIEWS and shape_of(user)[-2:] == shape_of(seen)[-2:]:
            seen = user
        elif user.target is _aten.permute.default and _swaps(arguments_of(user)[1]):
            seen, swapped = user, not swapped
        else:
            break
    return seen, swapped


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _fold_repeat(graph: fx.Graph, product: fx.Node, total: fx.Node, swapped: bool) -> None:
    """Sum within the product, where the sum is over dimensions that its batch is split into."""
    summed = shape_of(arguments_of(total)[0])
    *batch, first, second = range(len(summed))
    # An empty list means all dimensions.
    over = {d % len(summed) for d in arguments_of(total)[1] or range(len(summed))}
    if not over < {*batch}:
        return
    kept, repeated = [d for d in batch if d not in over], sorted(over)
    outer = math.prod(summed[d] for d in kept)

    def made(target: Callable[..., Tensor], *arguments: object) -> fx.Node:
        node = call(graph, target, arguments)
        node.meta = {**product.meta, "val": node.meta["val"]}
        return node

    def regrouped(operand: fx.Node, order: list[int], shape: list[int]) -> fx.Node:
        apart = made(_aten.reshape.default, operand, [*summed[:-2], *shape_of(operand)[-2:]])
        return made(_aten.reshape.default, made(_aten.permute.default, apart, order), shape)

    with graph.inserting_before(product):
        a, b = arguments_of(product)
        rows = regrouped(a, [*kept, first, *repeated, second], [outer, shape_of(a)[1], -1])
        columns = regrouped(b, [*kept, *repeated, first, second], [outer, -1, shape_of(b)[2]])
        whole = made(_aten.bmm.default, rows, columns)
        whole = made(_aten.permute.default, whole, [0, 2, 1]) if swapped else whole
        whole = made(_aten.reshape.default, whole, [*shape_of(total)])
    total.replace_all_uses_with(whole)
