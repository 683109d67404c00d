"""Memory format through a graph: images channels last from the first convolution on, and results as they were.

Before:  y = conv(x, w); z = relu(conv(y, v)); return z
After:   c = clone(x, channels_last); y = conv(c, w); d = relu(conv(y, v)); z = clone(d, contiguous_format); return z

The other values have the strides that PyTorch gives them then, by its own rules. What reads memory rather than
elements, or draws random numbers in the order of memory, has its operands as they were.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from autosched.tracing.capture.graph_nodes import OWN_OPERATORS, is_convolution, is_view
from autosched.tracing.capture.library_strides import layouts_of, made_again

_aten = torch.ops.aten
# By the number of dimensions of an image.
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_OF_MEMORY = (_aten.as_strided, _aten.as_strided_scatter, _aten.as_strided_copy)


def channels_last(graph: fx.Graph) -> fx.Graph | None:
    """A copy of a functional graph of ATen operators with images channels last, whose nodes have the same names; None
    where no convolution reads what another one has made so, or where it cannot be. A mistake on the way is said in a
    warning, and costs this format alone.
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
    except Exception as error:
        why = f"channels last failed with {type(error).__name__}: {error}"
        warnings.warn(f"{why}; this is a defect of autosched", RuntimeWarning, stacklevel=2)
        return None
    return made.graph if made.chained else None


class _NotAsBeforeError(Exception):
    """No memory format gives a tensor the strides that it had."""


@dataclass
class _Copy:
    """The copy under construction.

    `_copies`: of nodes; `_read`: the copy of an image that its readers take instead. `_before`: the nodes as they were,
    where they have moved to other places of memory, which are `_moved`. `chained`: a convolution reads an image that is
    channels last because of another one.
    """

    graph: fx.Graph = field(default_factory=fx.Graph)
    chained: bool = False
    _copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    _read: dict[fx.Node, fx.Node] = field(default_factory=dict)
    _before: dict[fx.Node, fx.Node] = field(default_factory=dict)
    _moved: set[fx.Node] = field(default_factory=set)

    def add(self, node: fx.Node) -> None:
        """Copy a node; all that it reads was copied before. Raises _NotAsBeforeError."""
        if is_convolution(node):
            self._make_channels_last(node.args[0])
        if not _takes_any_strides(node) or not any(n in self._moved or n in self._read for n in node.all_input_nodes):
            self._copies[node] = self._copied(node, self._as_before)
            return
        copy = self._copied(node, lambda n: self._read.get(n, self._copies[n]))
        if (made := made_again(copy)) is None:
            # A view of strides that are others now.
            self.graph.erase_node(copy)
            copy = self._copied(node, self._as_before)
        else:
            copy.meta["val"] = made
        self._copies[node] = copy
        if _shares_memory(node) or layouts_of(copy.meta["val"]) != layouts_of(node.meta["val"]):
            self._moved.add(node)

    def _copied(self, node: fx.Node, operand: Callable[[fx.Node], fx.Node]) -> fx.Node:
        copy = self.graph.node_copy(node, operand)
        copy.meta = dict(node.meta)
        return copy

    def _make_channels_last(self, image: Any) -> None:
        """Let all that reads an image from here on read it channels last."""
        copy = self._read.get(image, self._copies[image])
        now = copy.meta["val"]
        memory_format = _FORMATS.get(now.dim())
        if memory_format is None or now.is_contiguous(memory_format=memory_format):
            self.chained |= image in self._moved
        else:
            self._read[image] = self._cloned(copy, memory_format)

    def _as_before(self, node: fx.Node) -> fx.Node:
        """The node with the strides that it has in the original graph, and views of one memory in one."""
        if node not in self._moved:
            return self._copies[node]
        if node not in self._before:
            value = node.meta["val"]
            if _shares_memory(node):
                self._before[node] = self._copied(node, self._as_before)
            elif isinstance(value, Tensor) and value.is_contiguous():
                self._before[node] = self._cloned(self._copies[node], torch.contiguous_format)
            else:
                raise _NotAsBeforeError
        return self._before[node]

    def _cloned(self, node: fx.Node, memory_format: torch.memory_format) -> fx.Node:
        made = self.graph.call_function(_aten.clone.default, (node,), {"memory_format": memory_format})
        made.meta = dict(node.meta)
        made.meta["val"] = made_again(made)
        return made


def _shares_memory(node: fx.Node) -> bool:
    """True for a view of its operand."""
    return is_view(node) and (node.target is not operator.getitem or _shares_memory(node.all_input_nodes[0]))


def _takes_any_strides(node: fx.Node) -> bool:
    """True for operators whose elements are the same whatever the strides of their operands are.

    Those of other libraries may read memory as if it were dense.
    """
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in OWN_OPERATORS:
        return False
    return node.target.overloadpacket not in _OF_MEMORY and torch.Tag.nondeterministic_seeded not in node.target.tags
