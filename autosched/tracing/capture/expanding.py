"""Decomposition of a graph's operators, each kind once: equal layers are decomposed like the first of them.

Before:  y = linear(x, w); z = linear(y, v)
After:   t = permute(w, [1, 0]); y = mm(x, t); t_1 = permute(v, [1, 0]); z = mm(y, t_1)

PyTorch's own decomposition of a whole graph runs it twice, every operator through several layers of dispatch. It still
serves graphs that need it: those that change tensors in place which others share, call other graphs, or have operators
that decompose into random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from autosched.tracing.capture.composed_results import composition_of
from autosched.tracing.capture.graph_nodes import WHOLE
from autosched.tracing.capture.stand_ins import (
    FewCalls,
    Kinds,
    ManyCallsError,
    NoStandInsError,
    StandIn,
    values_apart,
    with_values,
)

_aten = torch.ops.aten
# Assertions that a tensor's shape and type already imply.
_SAID_TWICE = (_aten._assert_tensor_metadata.default,)
# Views of parts, and the operators that scatter a part back.
_SCATTERING: Mapping[Any, torch._ops.OpOverload] = {
    _aten.select.int: _aten.select_scatter.default,
    _aten.slice.Tensor: _aten.slice_scatter.default,
    _aten.diagonal.default: _aten.diagonal_scatter.default,
}


class NeedsWholeGraphError(Exception):
    """The graph contains an operator that cannot be decomposed by itself."""


def expand(graph: fx.Graph, rules: Mapping[Any, Callable[..., Any]]) -> None:
    """Replace every operator of the graph that has a rule by its decomposition.

    Raises:
        NeedsWholeGraphError: PyTorch has to decompose it. The graph is unchanged.
    """
    for node in graph.nodes:
        _check(node, rules)
    before = {node: (node.target, node.args, node.kwargs) for node in graph.nodes}
    try:
        _make_functional(graph)
        parts = _parts(graph, rules)
    except NeedsWholeGraphError:
        for node, (target, arguments, named) in before.items():
            node.target, node.args, node.kwargs = target, arguments, named
        for node in reversed(graph.nodes):
            if node not in before:
                graph.erase_node(node)
        raise
    for node in list(graph.nodes):
        if node.target in _SAID_TWICE:
            graph.erase_node(node)
            continue
        part = parts.get(node)
        if part is not None:
            _splice(graph, node, part)
    # As PyTorch does, also of random numbers that nobody reads.
    graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))


def _parts(graph: fx.Graph, rules: Mapping[Any, Callable[..., Any]]) -> dict[fx.Node, fx.Graph | None]:
    """The replacement of every operator; None where it stays."""
    expansion = _Expansion(rules, _mode_of(graph))
    return {node: expansion.of(node) for node in graph.nodes if node.op == "call_function"}


def _check(node: fx.Node, rules: Mapping[Any, Callable[..., Any]]) -> None:
    if node.op in ("placeholder", "output"):
        return
    called = node.op == "call_function" and (
        isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    )
    if not called:
        raise NeedsWholeGraphError(f"{node.target}")
    if isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns:
        if node.target not in _SAID_TWICE:
            raise NeedsWholeGraphError(f"{node.target}")
    elif node.target not in rules and not _has_tensors_only(node):
        raise NeedsWholeGraphError(f"{node.target} has a result that is no tensor")


def _has_tensors_only(node: fx.Node) -> bool:
    return all(isinstance(v, FakeTensor) for v in pytree.tree_leaves(node.meta.get("val")))


def _mode_of(graph: fx.Graph) -> FakeTensorMode:
    for node in graph.nodes:
        for made in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(made, FakeTensor):
                return made.fake_mode
    raise NeedsWholeGraphError("no tensors")


# Changes in place


def _make_functional(graph: fx.Graph) -> None:
    """Replace in-place operators by out-of-place ones where no other tensor shares the memory.

    Before:  y = relu_(x); z = cat([x, y])        v = select(x, 0, 1); add_(v, 2); z = exp(x)
    After:   y = relu(x); z = cat([y, y])         v = select(x, 0, 1); w = add(v, 2)
                                                  y = select_scatter(x, w, 0, 1); z = exp(y)

    Raises:
        NeedsWholeGraphError: other tensors share it.
    """
    sharing: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        for made in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(made, Tensor):
                sharing.setdefault(made.untyped_storage()._cdata, []).append(node)
    for node in list(graph.nodes):
        if not getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            continue
        given, anew, made = node.args[0], _out_of_place(node), node.meta["val"]
        if anew is None or not isinstance(given, fx.Node):
            raise NeedsWholeGraphError(f"{node.target} in place")
        alike = sharing[made.untyped_storage()._cdata]
        changed = list(_changed_with(given))
        if any(n.op != "call_function" for n in alike) or any(
            n < node < user for n in alike if n not in changed for user in n.users
        ):
            raise NeedsWholeGraphError(f"{node.target} of memory that others share")
        node.target = anew
        # The new nodes stand for that memory from here on.
        alike += _put_back(graph, node, changed)


def _changed_with(given: fx.Node) -> Iterator[fx.Node]:
    """A changed tensor, and the tensors that it is a part of."""
    yield given
    while given.target in _SCATTERING and not given.kwargs:
        given = given.all_input_nodes[0]
        yield given


def _put_back(graph: fx.Graph, node: fx.Node, changed: Sequence[fx.Node]) -> list[fx.Node]:
    """Let later readers of the first tensor read the node, and readers of the tensors around it their updated values.

    Returns: new nodes.
    """
    put: list[fx.Node] = []

    def add(target: Any, like: fx.Node, *given: Any) -> fx.Node:
        value = target(*pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], given))
        if value.stride() != like.meta["val"].stride():
            raise NeedsWholeGraphError(f"{node.target} of a part of a tensor that overlaps itself")
        with graph.inserting_after(put[-1] if put else node):
            put.append(graph.call_function(target, given))
        put[-1].meta = node.meta | {"val": value}
        return put[-1]

    now = {changed[0]: node}
    made = node
    for part, whole in pairwise(changed):
        made = add(_SCATTERING[part.target], whole, whole, made, *part.args[1:])
    now.setdefault(changed[-1], made)
    for whole, part in pairwise(reversed(changed)):
        if part not in now:
            now[part] = add(part.target, part, now[whole], *part.args[1:])
    last = put[-1] if put else node
    for old, new in now.items():
        old.replace_all_uses_with(new, functools.partial(operator.lt, last))
    return put


def _out_of_place(node: fx.Node) -> torch._ops.OpOverload | None:
    """The out-of-place version of this operator; None where there is none of that name."""
    changing: Any = node.target
    name = changing._schema.name.removeprefix("aten::")
    packet = getattr(_aten, name.removesuffix("_"), None) if name.endswith("_") else None
    found: torch._ops.OpOverload | None = getattr(packet, changing._overloadname, None)
    if found is None or len(changing._schema.returns) > 1:
        return None
    arguments, named = pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    # In place the element type is kept, though other arguments have a wider one.
    return found if _is_alike(node.meta["val"], found(*arguments, **named)) else None


def _is_alike(given: Tensor, made: Tensor) -> bool:
    return (given.shape, given.dtype) == (made.shape, made.dtype)


# Expansion


@dataclass
class _Expansion:
    """Decompositions of operators, by shapes, strides, element types and numbers of their arguments.

    `calls`: the same of calls that compositions in Python make of PyTorch's functions.
    """

    rules: Mapping[Any, Callable[..., Any]]
    mode: FakeTensorMode
    known: dict[Hashable, fx.Graph | None] = field(default_factory=dict)
    calls: dict[Hashable, Any] = field(default_factory=dict)
    kinds: Kinds = field(default_factory=Kinds)

    def of(self, node: fx.Node) -> fx.Graph | None:
        """The graph that computes the node's operator from its tensors; None where the operator stays."""
        target = node.target
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
            raise NeedsWholeGraphError(f"{target} of an argument that is no tensor")
        # Only operators with stride arguments depend on a tensor's storage offset.
        begins = made.storage_offset() if "strided" in str(target) else 0
        kind = (made.dtype, made.device, made.is_conj(), made.is_neg())
        return places[leaf], tuple(made.shape), made.stride(), kind, begins

    def _traced(
        self, target: Any, leaves: list[Any], spec: pytree.TreeSpec, places: Mapping[fx.Node, int]
    ) -> fx.Graph | None:
        composition = composition_of(target)

        def called(*tensors: Tensor, function: Any = target) -> Any:
            given = [tensors[places[leaf]] if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
            arguments, named = pytree.tree_unflatten(given, spec)
            return function(*arguments, **named)

        def with_few_calls(*tensors: Tensor) -> Any:
            with FewCalls():
                made = called(*tensors, function=composition)
            # Of other arguments PyTorch has a rule in C++.
            return called(*tensors) if made is NotImplemented else made

        values = [n.meta["val"] for n in places]
        try:
            made = self.captured(called if composition is None else with_few_calls, values, f"{target}")
        except ManyCallsError:
            with contextlib.suppress(NoStandInsError):
                return _Recorded(self).graph_of(functools.partial(called, function=composition), values)
            made = self.captured(called, values, f"{target}")
        if [n.target for n in made.nodes if n.op == "call_function"] == [target]:
            return None
        return made

    def captured(self, function: Callable[..., Any], values: Sequence[Tensor], name: str) -> fx.Graph:
        """The graph of a function of these tensors, by PyTorch's Python rules, as in its decomposition of whole graphs.

        Raises:
            NeedsWholeGraphError: it changes an argument, or draws random numbers.
        """
        with self.mode, enable_python_dispatcher(), _without_library():
            made: fx.Graph = make_fx(function, decomposition_table=dict(self.rules))(*values).graph
        for node in made.nodes:
            _check_kept(node.target)
            if node.op not in ("placeholder", "call_function", "output"):
                raise NeedsWholeGraphError(f"{name} decomposes into {node.target}")
        _make_functional(made)
        return made


class _Recorded:
    """Calls on stand-ins, recorded in a graph. The origin of a stand-in is its node."""

    def __init__(self, expansion: _Expansion) -> None:
        self._expansion, self._graph = expansion, fx.Graph()

    def graph_of(self, function: Callable[..., Any], values: Sequence[Tensor]) -> fx.Graph:
        """The graph of a function of these tensors.

        Raises:
            NoStandInsError: it cannot be run on stand-ins.
            NeedsWholeGraphError: it changes an argument, or draws random numbers.
        """
        given = []
        for number, value in enumerate(values):
            given.append(StandIn.of(value, self._graph.placeholder(f"given_{number}"), self))
            given[-1].origin.meta["val"] = value
        with self._expansion.mode, enable_python_dispatcher(), _without_library():
            try:
                made = function(*given)
            except (NeedsWholeGraphError, NoStandInsError):
                raise
            except Exception as error:
                # Whatever it needs of real tensors: it is run on these then.
                raise NoStandInsError(f"{error}") from error
        results = [x for x in pytree.tree_leaves(made) if not isinstance(x, StandIn)]
        if results:
            raise NoStandInsError(f"a result is {results[0]!r}")
        self._graph.output(pytree.tree_map(lambda s: s.origin, made))
        return self._graph

    def made(self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        key, given = self._expansion.kinds.key(function, arguments, named)
        known = self._expansion.calls
        if key not in known:
            known[key] = self._captured(function, arguments, named, given)
        found = known[key]
        if not isinstance(found, fx.Graph):
            return found
        made = _copied(self._graph, found, [s.origin for s in given], {})
        return fx.map_arg(made, lambda node: StandIn.of(node.meta["val"], node, self))

    def _captured(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        given: Sequence[StandIn],
    ) -> Any:
        """The graph of a call, or its result where that is no tensor."""

        def called(*tensors: Tensor) -> Any:
            read, by_name = with_values(given, (tuple(arguments), dict(named)), tensors)
            return function(*read, **by_name)

        values = values_apart(given)
        made = called(*values)
        if not any(isinstance(x, Tensor) for x in pytree.tree_leaves(made)):
            return made
        return self._expansion.captured(called, values, f"{function}")


@contextlib.contextmanager
def _without_library() -> Iterator[None]:
    """A context in which no operator decomposes into calls of oneDNN, as recurrent nets on CPUs otherwise do."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _check_kept(target: Any) -> None:
    """Raise NeedsWholeGraphError for an operator that stays and draws random numbers.

    Recurrent nets may draw some, by their tag; their decompositions do where there is dropout.
    """
    if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
        raise NeedsWholeGraphError(f"{target} draws random numbers")


def _is_composed(target: Any) -> bool:
    """True if PyTorch itself composes the operator of others, on every device."""
    composed: bool = isinstance(target, torch._ops.OpOverload) and torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(), "CompositeImplicitAutograd"
    )
    return composed


def _splice(graph: fx.Graph, node: fx.Node, part: fx.Graph) -> None:
    """Replace a node by a part whose placeholders are the node's tensors."""
    kept = {WHOLE: node.target} | {k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")}
    with graph.inserting_before(node):
        made = _copied(graph, part, node.all_input_nodes, kept)
    if isinstance(made, fx.Node):
        node.replace_all_uses_with(made)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def _copied(graph: fx.Graph, part: fx.Graph, given: Sequence[fx.Node], meta: Mapping[str, Any]) -> Any:
    """Copy a part into a graph, its placeholders replaced by these nodes; returns its results."""
    stands: dict[fx.Node, fx.Node] = dict(zip((n for n in part.nodes if n.op == "placeholder"), given, strict=True))
    for inner in part.nodes:
        if inner.op == "call_function":
            stands[inner] = graph.node_copy(inner, stands.__getitem__)
            stands[inner].meta = {**meta, "val": inner.meta["val"]} if "val" in inner.meta else {**meta}
    (output,) = (n for n in part.nodes if n.op == "output")
    return fx.map_arg(output.args[0], stands.__getitem__)
