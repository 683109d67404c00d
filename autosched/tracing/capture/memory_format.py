"""Memory format through a graph: images channels last from the first convolution on, and results as they were.

Before:  y = conv(x, w); z = relu(conv(y, v)); return z
After:   c = clone(x, channels_last); y = conv(c, w); d = relu(conv(y, v)); z = clone(d, contiguous_format); return z

The other values have the strides that PyTorch gives them then, by its own rules. What reads memory rather than
elements, or draws random numbers in the order of memory, has its operands as they were.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from autosched.tracing.capture.graph_nodes import is_convolution
from autosched.tracing.capture.library_strides import layouts_of, made_again
from autosched.tracing.capture.result_memory import storage_of

_aten = torch.ops.aten
# By the number of dimensions of an image.
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_OF_MEMORY = (_aten.as_strided, _aten.as_strided_scatter, _aten.as_strided_copy)


def channels_last(graph: fx.Graph) -> fx.Graph | None:
    """A copy of a functional graph of ATen operators with images channels last, whose nodes have the same names; None
    where no convolution reads what another one has made so, or where it cannot be.
    """
    convolutions = [n for n in graph.nodes if is_convolution(n)]
    if len(convolutions) < 2 or any(n.target is not _aten.convolution.default for n in convolutions):
        # Gradients are of what was written.
        return None
    made = _Copy()
    try:
        for node in graph.nodes:
            made.add(node)
    except _NotAsBeforeError:
        return None
    return made.graph if made.chained else None


class _NotAsBeforeError(Exception):
    """No memory format gives a tensor the strides that it had."""


@dataclass
class _Copy:
    """The copy under construction.

    `_copies`: of nodes; `_read`: the copy that readers take instead, where that is another. `chained`: a convolution
    reads an image that is channels last because of another one.
    """

    graph: fx.Graph = field(default_factory=fx.Graph)
    chained: bool = False
    _copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    _read: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def add(self, node: fx.Node) -> None:
        """Copy a node; all that it reads was copied before. Raises _NotAsBeforeError."""
        if node.op == "output":
            self._check_apart(node)
        elif is_convolution(node):
            self._make_channels_last(node.args[0])
        moved = any(self._is_moved(n) for n in node.all_input_nodes)
        free = moved and _takes_any_strides(node)
        self._copies[node] = copy = self.graph.node_copy(node, self._reader if free else self._as_before)
        copy.meta = dict(node.meta)
        if free:
            if (made := made_again(copy)) is None:
                copy.args, copy.kwargs = fx.map_arg((node.args, node.kwargs), self._as_before)
            else:
                copy.meta["val"] = made

    def _reader(self, node: fx.Node) -> fx.Node:
        return self._read.get(node, self._copies[node])

    def _is_moved(self, node: fx.Node) -> bool:
        return _differ(node, self._reader(node))

    def _make_channels_last(self, image: Any) -> None:
        """Let all that reads an image from here on read it channels last."""
        now = self._reader(image).meta["val"]
        memory_format = _FORMATS.get(now.dim())
        if memory_format is None:
            return
        if now.is_contiguous(memory_format=memory_format):
            self.chained |= self._is_moved(image)
            return
        self._read[image] = self._cloned(self._reader(image), memory_format)

    def _as_before(self, node: fx.Node) -> fx.Node:
        """The copy of a node with the strides that it has in the original graph."""
        copy, before = self._copies[node], node.meta.get("val")
        if not _differ(node, copy):
            return copy
        if not isinstance(before, Tensor) or not before.is_contiguous():
            raise _NotAsBeforeError
        return self._cloned(copy, torch.contiguous_format)

    def _cloned(self, node: fx.Node, memory_format: torch.memory_format) -> fx.Node:
        made = self.graph.call_function(_aten.clone.default, (node,), {"memory_format": memory_format})
        made.meta = dict(node.meta)
        made.meta["val"] = made_again(made)
        return made

    def _check_apart(self, output: fx.Node) -> None:
        """Raise _NotAsBeforeError where results that are moved share their memory with inputs or other results."""
        given = [n for n in self._copies if n.op == "placeholder"]
        ends = dict.fromkeys(n for n in (*given, *output.all_input_nodes) if isinstance(n.meta.get("val"), Tensor))
        shared = Counter(storage_of(n.meta["val"]) for n in ends)
        if any(shared[storage_of(n.meta["val"])] > 1 and _differ(n, self._copies[n]) for n in ends):
            raise _NotAsBeforeError


def _differ(node: fx.Node, copy: fx.Node) -> bool:
    """True if the strides of two nodes do."""
    return layouts_of(node.meta.get("val")) != layouts_of(copy.meta.get("val"))


def _takes_any_strides(node: fx.Node) -> bool:
    """True for operators whose elements are the same whatever the strides of their operands are."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.overloadpacket in _OF_MEMORY:
        return False
    return torch.Tag.nondeterministic_seeded not in node.target.tags
