"""Arguments of a graph that PyTorch uses as indices, which have to be drawn within what they index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

_aten = torch.ops.aten
# Operators of a tensor and indices of its dimensions, and those of a tensor, a dimension and indices of that.
_OF_DIMENSIONS = (_aten.index, _aten.index_put)
_OF_ONE = (
    *(_aten.gather, _aten.scatter, _aten.scatter_add, _aten.scatter_reduce),
    *(_aten.index_select, _aten.index_add, _aten.index_copy, _aten.index_fill, _aten.index_reduce),
)


def indexed_dimensions(graph: fx.Graph) -> dict[fx.Node, int]:
    """The integer arguments that indices are computed from, and the least size of a dimension that one indexes."""
    found: dict[fx.Node, int] = {}
    for node in graph.nodes:
        for index, size in _indices(node):
            for argument in _arguments_of(index):
                found[argument] = min(size, found.get(argument, size))
    return found


def _indices(node: fx.Node) -> Iterator[tuple[fx.Node, int]]:
    """The indices of an operator, each with the size of the dimension that it indexes."""
    packet, given = getattr(node.target, "overloadpacket", None), list[Any](node.args)
    if packet is _aten.embedding:
        yield given[1], _shape(given[0])[0]
    elif packet in _OF_DIMENSIONS:
        yield from ((index, size) for index, size in zip(given[1], _shape(given[0]), strict=False) if index is not None)
    elif packet in _OF_ONE:
        tensor, dim, index = given[:3]
        yield index, _shape(tensor)[dim] if _shape(tensor) else 1


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _arguments_of(index: fx.Node) -> Iterator[fx.Node]:
    """The integer arguments that an index is computed from."""
    rest, seen = [index], set[fx.Node]()
    while rest:
        node = rest.pop()
        made = node.meta.get("val")
        if node in seen or not isinstance(made, Tensor) or made.is_floating_point() or made.dtype == torch.bool:
            continue
        seen.add(node)
        if node.op == "placeholder":
            yield node
        rest += node.all_input_nodes
