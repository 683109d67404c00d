"""Normal form of softmax in gradients: exponentials relative to a row's log-sum-exp, and not to its maximum.

    p = exp(s - top) / total        =        exp(s - lse);  lse = top + log(total)

A gradient, which recomputes p, then reads one number of a row, and the forward graph keeps one. This is left out where
the result would differ:

- the logarithm of a number that may be negative is NaN;
- added to a large number, the logarithm is lost. A fully masked row has a maximum of -1e9, say, where the mask is that
  number: every one of its n points is 1/n, and would be 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import torch
from torch import Tensor, fx

from autosched.tracing.capture.graph_nodes import SAME, arguments_of, call, is_difference, is_product

_aten = torch.ops.aten
# Larger constants are masks. Added to a number up to here, a logarithm keeps 11 fractional bits in float32.
_MODERATE = 1e4
_SAME = (*SAME, _aten.permute.default)
_FILLED = (_aten.scalar_tensor.default, _aten.full.default)
# Operators whose number arguments are positions and sizes.
_OF_PLACES = (*_SAME, _aten.arange.start_step, _aten.full.default, _aten.slice.Tensor)
_POSITIVE_OF_POSITIVE = (
    *(_aten.sum.dim_IntList, _aten.amax.default, _aten.add.Tensor, _aten.mul.Tensor, _aten.div.Tensor),
    *(_aten.add.Scalar, _aten.mul.Scalar, _aten.div.Scalar, _aten.maximum.default),
)


def about_one_number(
    graph: fx.Graph, points: Collection[fx.Node], tangents: Collection[fx.Node]
) -> tuple[list[fx.Node], set[fx.Node]]:
    """Compute the gradient, the `tangents`, from exponentials relative to the log-sum-exp of a row.

    Returns these numbers, and the `points` of products recomputed with them.
    """
    kept: list[fx.Node] = []
    made: set[fx.Node] = set()
    for quotient in [n for n in points if n.target is _aten.div.Tensor]:
        power, total = arguments_of(quotient)
        difference = arguments_of(power)[0] if getattr(power, "target", None) is _aten.exp.default else None
        if not isinstance(difference, fx.Node) or not is_difference(difference):
            continue
        value, top = arguments_of(difference)
        if value not in points or any(not isinstance(x, fx.Node) or x in points for x in (top, total)):
            continue
        if not _is_positive(total) or not all(map(_is_moderate, _other_terms(value, points))):
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
    """Compute the gradient from these instead, and return the points it needs, recomputed from them."""
    for node in list(graph.nodes):
        if node in points and node not in other and other.keys() & {*node.all_input_nodes}:
            with graph.inserting_before(node.next):
                other[node] = graph.node_copy(node, lambda n: other.get(n, n))
        elif node in tangents:
            for given in node.all_input_nodes:
                node.replace_input_with(given, other.get(given, given))
    return {*other.values()}


def _is_positive(node: object) -> bool:
    """True for a positive number, or exponentials under operators that keep them positive."""
    if not isinstance(node, fx.Node):
        return isinstance(node, int | float) and node > 0
    if node.target is _aten.exp.default:
        return True
    if node.target in _SAME or node.target in _FILLED:
        return _is_positive(arguments_of(node)[1 if node.target is _aten.full.default else 0])
    if node.target is _aten.where.self:
        return all(map(_is_positive, arguments_of(node)[1:]))
    if node.target in _POSITIVE_OF_POSITIVE and "alpha" not in node.kwargs:
        return all(map(_is_positive, (*node.all_input_nodes, *_numbers(node))))
    return False


def _other_terms(value: fx.Node, points: Collection[fx.Node]) -> Iterator[object]:
    """The operands of a value of the points that are no products: nodes and numbers."""
    rest, seen = [value], {value}
    while rest:
        node = rest.pop()
        if is_product(node):
            continue
        yield from _numbers(node)
        yield from (n for n in node.all_input_nodes if n not in points)
        rest += [n for n in node.all_input_nodes if n in points and n not in seen]
        seen |= {*rest}


def _is_moderate(part: object) -> bool:
    """True unless it may be a mask: a condition, a small number, or made of such alone. Inputs may be anything."""
    if not isinstance(part, fx.Node):
        return not isinstance(part, int | float) or part == -math.inf or abs(part) < _MODERATE
    made = part.meta.get("val")
    is_condition = isinstance(made, Tensor) and made.dtype is torch.bool
    if is_condition or part.op != "call_function":
        return is_condition
    filled = arguments_of(part)[1:2] if part.target is _aten.full.default else ()
    return all(map(_is_moderate, (*part.all_input_nodes, *_numbers(part), *filled)))


def _numbers(node: fx.Node) -> tuple[object, ...]:
    """The numbers among the operands of a pointwise operator."""
    given = () if node.target in _OF_PLACES else node.args
    return tuple(a for a in given if isinstance(a, int | float) and not isinstance(a, bool))
