"""Strides of convolutions by PyTorch's libraries (oneDNN, cuDNN), which torch.export captures without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator
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
        if (called := _called(node)) is not None:
            with _context(node):
                as_by_libraries(called.graph)
            results = fx.map_arg(called.graph.output_node().args[0], lambda n: n.meta["val"])
            if layouts_of(results) != layouts_of(node.meta["val"]):
                node.meta["val"] = results
                changed.add(node)
            continue
        if not is_convolution(node) and changed.isdisjoint(node.all_input_nodes):
            continue
        made = made_again(node)
        if made is not None and (layouts_of(made) != layouts_of(node.meta["val"]) or not is_convolution(node)):
            node.meta["val"] = made
            changed.add(node)


def _context(node: fx.Node) -> contextlib.AbstractContextManager[object]:
    """In which the graph that it calls is run."""
    if node.target is not torch.ops.higher_order.wrap_with_autocast:
        return contextlib.nullcontext()
    device, dtype, enabled = node.args[:3]
    return torch.autocast(str(device), cast(torch.dtype, dtype), enabled=bool(enabled))


def _called(node: fx.Node) -> fx.GraphModule | None:
    """The graph that an operator of higher order calls, as under autocast; None of others."""
    of_other_graph = node.op == "call_function" and isinstance(node.target, HigherOrderOperator)
    named = [n for n in node.all_input_nodes if n.op == "get_attr"] if of_other_graph else []
    owner = node.graph.owning_module
    found = getattr(owner, str(named[0].target), None) if len(named) == 1 else None
    return found if isinstance(found, fx.GraphModule) else None


def made_again(node: fx.Node) -> Any:
    """The node's results as PyTorch's shape functions have them now; None where it has none."""
    before = pytree.tree_leaves(node.meta.get("val"))
    mode = next((t.fake_mode for t in before if isinstance(t, FakeTensor)), None)
    if node.op != "call_function" or mode is None:
        return None
    assert callable(node.target)
    arguments, named = pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    try:
        with mode, _uncached(mode) if is_convolution(node) else contextlib.nullcontext(), torch.no_grad():
            return node.target(*arguments, **named)
    except (RuntimeError, ValueError):
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


def layouts_of(made: Any) -> list[tuple[int, ...]]:
    return [t.stride() for t in pytree.tree_leaves(made) if isinstance(t, Tensor)]
