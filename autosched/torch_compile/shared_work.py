"""Equal work of several layers, done once: what takes kernels of its own, before a graph is divided.

Before:  layer 1: f = inverse @ positions; x1 = g(x0, cos(f));  layer 2: f2 = inverse @ positions; x2 = g(x1, cos(f2))
After:   f = inverse @ positions;  layer 1: x1 = g(x0, cos(f));  layer 2: x2 = g(x1, cos(f))

Products, reductions and what PyTorch computes are shared. Pointwise work, views and gathers stay in each layer: there
they cost no launch, and often read less than their result is. A segment shares these within itself.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from autosched.torch_compile.graphs import changes_something
from autosched.tracing.capture.equal_nodes import first_equal
from autosched.tracing.capture.graph_nodes import is_view
from autosched.tracing.operators import creation_rules, gather_rules, joining_rules, scatter_rules, view_translation
from autosched.tracing.translation.nodes import operator_name

_ELEMENT_BY_ELEMENT = {
    **creation_rules.RULES,
    **view_translation.RULES,
    **gather_rules.RULES,
    **joining_rules.RULES,
    **scatter_rules.RULES,
}


def with_shared_work(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with equal work done once; itself where there is none, or where it changes something.

    Work on inputs alone comes first, so that equal layers remain equal. Results that are returned stay apart.
    """
    if any(map(changes_something, module.graph.nodes)):
        return module
    returned = _memory(*module.graph.output_node().all_input_nodes)
    apart = {n for n in module.graph.nodes if _memory(n) & returned}
    instead = {
        node: first
        for node, first in first_equal(module.graph).items()
        if first is not node and not {node, first} & apart and _takes_kernels(node)
    }
    if not instead:
        return module
    made, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    rest = [n for n in module.graph.nodes if n not in instead]
    for node in sorted(rest, key=_first(rest, instead).__contains__, reverse=True):
        copies[node] = made.node_copy(node, lambda n: copies[instead.get(n, n)])
    made.eliminate_dead_code()
    return fx.GraphModule(module, made)


def _first(nodes: list[fx.Node], instead: dict[fx.Node, fx.Node]) -> set[fx.Node]:
    """The nodes that come first: the inputs, shared work on these alone, and what that needs."""
    found = {n for n in nodes if n.op in ("placeholder", "get_attr")}
    shared = {*instead.values()}
    on_inputs: set[fx.Node] = set()
    for node in nodes:
        given = {instead.get(n, n) for n in node.all_input_nodes}
        if given <= on_inputs | found and (node in shared or not _takes_kernels(node)):
            on_inputs.add(node)
    rest = [n for n in shared if n in on_inputs]
    while rest:
        node = rest.pop()
        if node not in found:
            found.add(node)
            rest += [instead.get(n, n) for n in node.all_input_nodes]
    return found


def _takes_kernels(node: fx.Node) -> bool:
    """True for an operator that is not computed element by element, and for each of its results."""
    if node.target is operator.getitem:
        return all(map(_takes_kernels, node.all_input_nodes))
    if node.op != "call_function" or is_view(node):
        return False
    tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
    return torch.Tag.pointwise not in tags and operator_name(node)[0] not in _ELEMENT_BY_ELEMENT


def _memory(*nodes: fx.Node) -> set[int]:
    """The memory of what these nodes make."""
    made = tree_leaves([n.meta.get("val") for n in nodes])
    strided = (x for x in made if isinstance(x, Tensor) and x.layout is torch.strided)
    return {x.untyped_storage()._cdata for x in strided}
