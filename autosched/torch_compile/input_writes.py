"""Writes to inputs, which AOTAutograd leaves at the end of a graph: what remains without them changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from autosched.torch_compile.graphs import changes_something

_WRITE = torch.ops.aten.copy_.default


def without_writes(graph: fx.GraphModule) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """The graph with the values that it writes as its last results, and the numbers of the inputs that these are for.

    A graph that does anything else than such writes stays as it is.
    """
    writes = [n for n in graph.graph.nodes if changes_something(n)]
    if not writes or not all(map(_is_apart, writes)):
        return graph, ()
    functional, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    results: Any = ()
    for node in graph.graph.nodes:
        if node in writes:
            copies[node] = copies[node.args[0]]
        elif node.op == "output":
            results = fx.node.map_arg(node.args[0], copies.__getitem__)
        else:
            copies[node] = functional.node_copy(node, copies.__getitem__)
    # The last write to an input is the one that stays.
    values = {write.args[0]: copies[write.args[1]] for write in writes}
    functional.output((*results, *values.values()))
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return fx.GraphModule(graph, functional), tuple(map(inputs.index, values))


def _is_apart(node: fx.Node) -> bool:
    """True for a write of a tensor like the input, after which nothing but results reads either."""
    if node.target is not _WRITE or len(node.args) != 2 or node.kwargs:
        return False
    target, value = node.args
    if not isinstance(target, fx.Node) or not isinstance(value, fx.Node) or target.op != "placeholder":
        return False
    after = node.next
    while after.op != "output":
        # Views of results come last.
        changes = after.target is not _WRITE and changes_something(after)
        read = after.args[1:] if after.target is _WRITE else after.all_input_nodes
        if changes or node in after.all_input_nodes or target in read:
            return False
        after = after.next
    a, b = target.meta.get("val"), value.meta.get("val")
    return (
        isinstance(a, Tensor) and isinstance(b, Tensor) and (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
    )


def write_back(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Write a value to each target; values may lie in the memory of targets."""
    written = {target.untyped_storage()._cdata for target in targets}
    apart = [v.clone() if v.untyped_storage()._cdata in written else v for v in values]
    with torch.no_grad():
        torch._foreach_copy_([*targets], apart)


def writing_back(call: Callable[..., Sequence[Any]], writes: Sequence[int]) -> Callable[..., Sequence[Any]]:
    """The call whose last results are written to the inputs of these numbers."""

    def run(*inputs: Any) -> Sequence[Any]:
        made = call(*inputs)
        count = len(made) - len(writes)
        write_back([inputs[n] for n in writes], made[count:])
        return made[:count]

    return run
