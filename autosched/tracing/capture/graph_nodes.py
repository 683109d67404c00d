"""Queries and edits of nodes of captured graphs: shapes, operands, devices, precision, and inserted calls."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from autosched.machine.library_precision import LibraryPrecision

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.bmm.default)
# The namespaces of operators whose results follow from the elements of their operands, whatever the strides.
OWN_OPERATORS = ("aten", "prims", "autosched_functions")
# The metadata, by PyTorch's name, of the operator that a node is a part of.
WHOLE = "original_aten"
# Operators that keep their argument's elements in order.
SAME = (
    *(_aten.alias.default, _aten.detach.default, _aten._to_copy.default, _aten.clone.default, _aten.expand.default),
    *(_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default),
    *(_aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims),
)
# Operators with sorted elements and their order as results.
SORTS = (_aten.sort.default, _aten.sort.stable)


def call(graph: fx.Graph, target: Any, arguments: tuple[Any, ...], named: dict[str, Any] | None = None) -> fx.Node:
    """A call in the graph, with its fake tensor."""
    made = graph.call_function(target, arguments, named or {})
    given = [a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments]
    made.meta["val"] = target(*given, **(named or {}))
    return made


def arguments_of(node: fx.Node) -> tuple[Any, ...]:
    """Nodes and numbers, in the operator's order."""
    return node.args


def itself(node: fx.Node) -> fx.Node:
    """The node whose elements this one has, in their order."""
    while _keeps_order(node) and elements_of(node.all_input_nodes[0]) == elements_of(node):
        node = node.all_input_nodes[0]
    return node


def _keeps_order(node: fx.Node) -> bool:
    if node.target is _aten._to_copy.default:
        # Conversion to an integer changes the number.
        return dtype_of(node).is_floating_point == dtype_of(node.all_input_nodes[0]).is_floating_point
    if node.target is not _aten.permute.default:
        return node.target in SAME
    given, order = arguments_of(node)
    long = [d for d in order if shape_of(given)[d] != 1]
    return long == sorted(long)


def is_difference(node: fx.Node) -> bool:
    """True for its first argument less its second; others have a factor by name."""
    return node.target is _aten.sub.Tensor and not node.kwargs


def is_product(node: fx.Node) -> bool:
    return node.target in _PRODUCTS


def shape_of(node: fx.Node) -> torch.Size:
    made = node.meta["val"]
    assert isinstance(made, Tensor)
    return made.shape


def dtype_of(node: fx.Node) -> torch.dtype:
    made = node.meta["val"]
    assert isinstance(made, Tensor)
    return made.dtype


def is_convolution(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.name().startswith("aten::conv")


def is_view(node: fx.Node) -> bool:
    """True for an operator whose result shares the memory of its operand, or is one of its operand's results."""
    target = node.target
    return (
        target is operator.getitem
        or target is _aten._unsafe_view.default
        or (isinstance(target, torch._ops.OpOverload) and target.is_view)
    )


def device_of(graph: fx.Graph) -> torch.device:
    """The device on which PyTorch computes the graph: the first that is no CPU, if there is one."""
    tensors = (t for node in graph.nodes for t in _tensors(node))
    return next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))


def precision_of(graph: fx.Graph) -> LibraryPrecision:
    """PyTorch's precision of the float32 products and convolutions of a graph, as it is set now."""
    made = (t.dtype for node in graph.nodes if is_convolution(node) for t in _tensors(node))
    settings = LibraryPrecision.now()
    return settings if torch.float32 in made else replace(settings, convolutions="")


def _tensors(node: fx.Node) -> list[Tensor]:
    return [t for t in pytree.tree_leaves(node.meta.get("val")) if isinstance(t, Tensor)]


def elements_of(node: fx.Node) -> int:
    made = node.meta.get("val")
    return made.numel() if isinstance(made, Tensor) else 0
