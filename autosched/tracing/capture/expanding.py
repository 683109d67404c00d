"""Operators of a graph written by others, each kind once: layers that are alike are decomposed like the first of them.

Before:  y = linear(x, w); z = linear(y, v)
After:   t = permute(w, [1, 0]); y = mm(x, t); t_1 = permute(v, [1, 0]); z = mm(y, t_1)

PyTorch's own decomposition of a whole graph runs it twice, every operator through several layers of dispatch. That is
still what is done to graphs which need it: those that change tensors in place which others share, draw random numbers,
or call other graphs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
# What says of a tensor what its shape and type say as well.
_SAID_TWICE = (_aten._assert_tensor_metadata.default,)


class NeedsWholeGraphError(Exception):
    """The graph holds what cannot be decomposed operator by operator."""


def expand(graph: fx.Graph, rules: Mapping[Any, Callable[..., Any]]) -> None:
    """Write every operator of the graph that has a rule by what the rule makes of it.

    Raises:
        NeedsWholeGraphError: PyTorch has to decompose it. The graph is as it was.
    """
    for node in graph.nodes:
        _check(node)
    changes = dict(_functional(graph))
    expansion = _Expansion(rules, _mode_of(graph))
    parts = {
        node: expansion.of(node, changes.get(node, node.target)) for node in graph.nodes if node.op == "call_function"
    }
    for node in list(graph.nodes):
        if node.target in _SAID_TWICE:
            graph.erase_node(node)
            continue
        if node in changes:
            given = node.args[0]
            node.target = changes[node]
            given.replace_all_uses_with(node, lambda user, node=node: user is not node and _comes_after(user, node))
        part = parts.get(node)
        if part is not None:
            _splice(graph, node, part)
    graph.eliminate_dead_code()


def _check(node: fx.Node) -> None:
    if node.op in ("placeholder", "output"):
        return
    called = node.op == "call_function" and (
        isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    )
    if not called or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise NeedsWholeGraphError(f"{node.target}")
    if isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns:
        if node.target not in _SAID_TWICE:
            raise NeedsWholeGraphError(f"{node.target}")
    elif not all(isinstance(v, FakeTensor) for v in pytree.tree_leaves(node.meta.get("val"))):
        raise NeedsWholeGraphError(f"{node.target} gives what is no tensor")


def _mode_of(graph: fx.Graph) -> FakeTensorMode:
    for node in graph.nodes:
        for made in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(made, FakeTensor):
                return made.fake_mode
    raise NeedsWholeGraphError("no tensors")


# Changes in place


def _functional(graph: fx.Graph) -> Iterator[tuple[fx.Node, torch._ops.OpOverload]]:
    """Operators that change in place what nobody else sees, each with the one that makes it anew.

    Before:  y = relu_(x); z = cat([x, y])
    After:   y = relu(x); z = cat([y, y])
    """
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        for given in node.all_input_nodes:
            last[given] = node
    order = {node: n for n, node in enumerate(graph.nodes)}
    sharing: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        for made in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(made, Tensor):
                sharing.setdefault(made.untyped_storage()._cdata, []).append(node)
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or not node.target._schema.is_mutable:
            continue
        given, anew = node.args[0], _out_of_place(node.target)
        made = node.meta["val"]
        fresh = isinstance(given, fx.Node) and given.op == "call_function" and isinstance(made, Tensor)
        if anew is None or not fresh or not _is_alike(given.meta["val"], made):
            raise NeedsWholeGraphError(f"{node.target} in place")
        others = [n for n in sharing[made.untyped_storage()._cdata] if order[n] < order[node] and n is not given]
        if any(order[last[n]] > order[node] or n.op != "call_function" for n in others if n in last):
            raise NeedsWholeGraphError(f"{node.target} of memory that others share")
        yield node, anew


def _out_of_place(changing: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The operator that gives what this one changes its first argument to; None where there is none of that name."""
    name = changing._schema.name.removeprefix("aten::")
    packet = getattr(_aten, name.removesuffix("_"), None) if name.endswith("_") else None
    return getattr(packet, changing._overloadname, None)


def _is_alike(given: Any, made: Tensor) -> bool:
    same = isinstance(given, Tensor) and (given.shape, given.dtype) == (made.shape, made.dtype)
    return same and given.stride() == made.stride()


def _comes_after(user: fx.Node, node: fx.Node) -> bool:
    return node < user


# Expansion


@dataclass
class _Expansion:
    """What rules make of operators, by what these are given: shapes, strides, element types and numbers."""

    rules: Mapping[Any, Callable[..., Any]]
    mode: FakeTensorMode
    known: dict[Hashable, fx.GraphModule | None] = field(default_factory=dict)

    def of(self, node: fx.Node, target: Any) -> fx.GraphModule | None:
        """The graph that computes of the node's tensors what the operator `target` does; None where that stays."""
        if target not in self.rules and not _is_composed(target):
            return None
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        places = {n: k for k, n in enumerate(node.all_input_nodes)}
        key = (target, str(spec), tuple(self._key(leaf, places, target) for leaf in leaves))
        if key not in self.known:
            self.known[key] = self._traced(target, leaves, spec, places)
        return self.known[key]

    def _key(self, leaf: Any, places: Mapping[fx.Node, int], target: Any) -> Hashable:
        if not isinstance(leaf, fx.Node):
            # As text: 0 and -0 are equal, and two constants.
            return type(leaf), repr(leaf)
        made = leaf.meta.get("val")
        if not isinstance(made, Tensor):
            raise NeedsWholeGraphError(f"{target} of what is no tensor")
        # Only operators that are given strides ask where in its memory a tensor begins.
        begins = made.storage_offset() if "strided" in str(target) else 0
        kind = (made.dtype, made.device, made.is_conj(), made.is_neg())
        return places[leaf], tuple(made.shape), made.stride(), kind, begins

    def _traced(
        self, target: Any, leaves: list[Any], spec: pytree.TreeSpec, places: Mapping[fx.Node, int]
    ) -> fx.GraphModule | None:
        def called(*tensors: Tensor) -> Any:
            given = [tensors[places[leaf]] if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
            arguments, named = pytree.tree_unflatten(given, spec)
            return target(*arguments, **named)

        # By the rules that PyTorch has in Python, as when it decomposes whole graphs.
        with self.mode, enable_python_dispatcher():
            made = make_fx(called, decomposition_table=dict(self.rules))(*(n.meta["val"] for n in places))
        nodes = [n for n in made.graph.nodes if n.op == "call_function"]
        if [n.target for n in nodes] == [target]:
            return None
        for node in made.graph.nodes:
            mutable = node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)
            if mutable or node.op not in ("placeholder", "call_function", "output"):
                raise NeedsWholeGraphError(f"{target} is written by {node.target}")
        return made


def _is_composed(target: Any) -> bool:
    """Whether PyTorch itself computes an operator by others, whatever these are on."""
    composed: bool = isinstance(target, torch._ops.OpOverload) and torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(), "CompositeImplicitAutograd"
    )
    return composed


def _splice(graph: fx.Graph, node: fx.Node, part: fx.GraphModule) -> None:
    """Put the part in the place of a node, whose tensors its placeholders are."""
    placeholders = [n for n in part.graph.nodes if n.op == "placeholder"]
    stands: dict[fx.Node, fx.Node] = dict(zip(placeholders, node.all_input_nodes, strict=True))
    kept = {k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")}
    (output,) = (n for n in part.graph.nodes if n.op == "output")
    with graph.inserting_before(node):
        for inner in part.graph.nodes:
            if inner.op == "call_function":
                stands[inner] = graph.node_copy(inner, stands.__getitem__)
                stands[inner].meta = kept | {k: v for k, v in inner.meta.items() if k == "val"}
    made = fx.map_arg(output.args[0], stands.__getitem__)
    if isinstance(made, fx.Node):
        node.replace_all_uses_with(made)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)
