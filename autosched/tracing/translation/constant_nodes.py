"""Constant folding: nodes that depend on no argument are computed by PyTorch once, when the function is traced."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from autosched.tracing.operators.rules import reshape, torch_name
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation
from autosched.tracing.values.values import Arange, Leaf, ScanOperand, Value
from search_spaces.workloads.dtypes import DTYPES, is_integer

# Operators that use only the shape and element type of their tensor argument.
_LIKE = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
_OF_A_SHAPE = frozenset(getattr(torch.ops.aten, name).default for name in _LIKE)
# Operators of other libraries may have another result in every call.
_KNOWN = ("aten", "prims")
_WHY = "it reads nothing from memory"


class ConstantNodes:
    """The nodes of a graph that depend on none of its arguments, nor on tensors that the function closes over.

    Tensors without elements count as no dependence. So do those of which nothing is read, as the image of a convolution
    whose windows are all in its padding: PyTorch computes the node for operands that are 0.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._nodes: set[fx.Node] = set()
        self._computed: dict[fx.Node, Any] = {}
        self._leaves: dict[fx.Node, Leaf] = {}
        self._reads: dict[Value, bool] = {}
        for node in graph.nodes:
            if node.op == "call_function" and self._repeats(node):
                self._nodes.add(node)

    def __contains__(self, node: Any) -> bool:
        return node in self._nodes

    def note(self, node: fx.Node, made: Any) -> None:
        """Count the node among them if its value reads nothing from memory."""
        if isinstance(made, Value) and not self._is_read(made):
            self._nodes.add(node)

    def _is_read(self, value: Value) -> bool:
        """True if anything in memory is read to compute the value."""
        waiting = [value]
        while waiting:
            here = waiting[-1]
            unknown = [o for o in here.operands if o not in self._reads]
            if here in self._reads or not unknown:
                read = any(self._reads[o] for o in here.operands)
                self._reads[here] = read or isinstance(here, Leaf | Fallback | ScanOperand)
                waiting.pop()
            else:
                waiting += unknown
        return self._reads[value]

    def leaf(self, node: fx.Node) -> Leaf | None:
        """The result of such a node as a constant tensor; None if kernels cannot read it."""
        if node in self._leaves:
            return self._leaves[node]
        made = self._value(node)
        if not isinstance(made, Tensor) or torch_name(made.dtype) not in DTYPES or made.numel() == 0:
            return None
        made = made.contiguous()
        self._leaves[node] = Leaf(
            name=node.name,
            shape=tuple(made.shape),
            dtype=torch_name(made.dtype),
            strides=tuple(made.stride()),
            tensor=made,
            folded=True,
        )
        return self._leaves[node]

    def result(self, node: fx.Node) -> tuple[Fallback, Leaf | None] | None:
        """The result of such a node as new memory in every call, and the constant it copies, if any.

        None where it is no tensor that kernels read.
        """
        made = self._value(node)
        if isinstance(made, Tensor) and torch_name(made.dtype) in DTYPES:
            first = made.flatten()[0].item() if made.numel() else 0
            if bool((made == first).all()):
                return filled(node.name, tuple(made.shape), made.dtype, first), None
        leaf = self.leaf(node)
        if leaf is None:
            return None
        copied = FallbackOperation(torch.ops.aten.clone.default, (leaf,), (), _WHY)
        return Fallback(name=f"{node.name}_copy", shape=leaf.shape, dtype=leaf.dtype, operation=copied), leaf

    def _repeats(self, node: fx.Node) -> bool:
        """True if the node has the same result in every call."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return node.target is operator.getitem and node.args[0] in self._nodes
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return False
        read = [n for n in node.all_input_nodes if not _is_empty(n)]
        if node.target in _OF_A_SHAPE:
            read = [n for n in read if n is not node.args[0]]
        return node.target.namespace in _KNOWN and all(n in self._nodes for n in read)

    def _value(self, node: fx.Node) -> Any:
        if node not in self._computed:
            read = node not in self._nodes and isinstance(node.meta.get("val"), Tensor)
            self._computed[node] = _like(node).zero_() if read or _is_empty(node) else self._called(node)
        return self._computed[node]

    def _called(self, node: fx.Node) -> Any:
        assert callable(node.target)
        first = _like if node.target in _OF_A_SHAPE else self._value
        arguments = (*fx.map_arg(node.args[:1], first), *fx.map_arg(node.args[1:], self._value))
        keywords = {k: torch.device("cpu") if k == "device" else v for k, v in node.kwargs.items()}
        with torch.no_grad():
            return node.target(*arguments, **fx.map_arg(keywords, self._value))


def filled(name: str, shape: tuple[int, ...], dtype: torch.dtype, number: float) -> Fallback:
    """A tensor of one number, filled by PyTorch."""
    keywords = (("dtype", dtype), ("device", torch.device("cpu")))
    operation = FallbackOperation(torch.ops.aten.full.default, (list(shape), number), keywords, _WHY)
    return Fallback(name=name, shape=shape, dtype=torch_name(dtype), operation=operation)


def _is_empty(node: fx.Node) -> bool:
    made = node.meta.get("val")
    return (
        isinstance(made, Tensor)
        and made.layout is torch.strided
        and any(isinstance(n, int) and n == 0 for n in made.shape)
    )


def _like(node: fx.Node) -> Tensor:
    """Memory like that of a tensor of the graph."""
    tensor = node.meta["val"]
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def as_positions(constant: Leaf) -> Value | None:
    """A constant of integers in arithmetic progression along a dimension, as an arange; None for another."""
    tensor = constant.tensor
    if tensor is None or not is_integer(constant.dtype) or max(constant.shape, default=1) != constant.elements:
        return None
    line = tensor.reshape(-1).to("cpu", torch.int64)
    start, step = int(line[0]), int(line[1] - line[0]) if constant.elements > 1 else 0
    if not torch.equal(line, start + step * torch.arange(constant.elements)):
        return None
    arange = Arange(name=constant.name, shape=(constant.elements,), dtype=constant.dtype, start=start, step=step)
    return reshape(arange, constant.shape)
