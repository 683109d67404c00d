"""Strides of convolutions by PyTorch's libraries (oneDNN, cuDNN), which torch.export captures without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from autosched.tracing.capture.graph_nodes import is_convolution


def as_by_libraries(graph: fx.Graph) -> None:
    """Give convolutions, and values computed from them, the strides that they have outside of torch.export.

    Before:  y = conv3d(x, w) by (60, 20, 10, 5, 1); z = relu(y) by (60, 20, 10, 5, 1)
    After:   y = conv3d(x, w) by (60, 1, 30, 15, 3); z = relu(y) by (60, 1, 30, 15, 3)
    """
    changed: set[fx.Node] = set()
    for node in graph.nodes:
        if not is_convolution(node) and changed.isdisjoint(node.all_input_nodes):
            continue
        made = _made_again(node)
        if made is not None and (_layouts(made) != _layouts(node.meta["val"]) or not is_convolution(node)):
            node.meta["val"] = made
            changed.add(node)


def _made_again(node: fx.Node) -> Any:
    """The node's results as PyTorch's shape functions have them now; None where it has none."""
    before = pytree.tree_leaves(node.meta.get("val"))
    mode = next((t.fake_mode for t in before if isinstance(t, FakeTensor)), None)
    if node.op != "call_function" or mode is None:
        return None
    assert callable(node.target)
    arguments, named = pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    try:
        with mode, _uncached(mode), torch.no_grad():
            return node.target(*arguments, **named)
    except RuntimeError:
        # A view that no strides make of the other layout.
        return None


@contextlib.contextmanager
def _uncached(mode: FakeTensorMode) -> Iterator[None]:
    """A context without the cache of shape functions, whose keys say nothing of libraries."""
    before = mode.cache_enabled
    mode.cache_enabled = False
    try:
        yield
    finally:
        mode.cache_enabled = before


def _layouts(made: Any) -> list[tuple[int, ...]]:
    return [t.stride() for t in pytree.tree_leaves(made) if isinstance(t, Tensor)]
