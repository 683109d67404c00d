"""Removal of constructs from captured graphs that only PyTorch's own executor understands."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensor

from search_spaces import InputError

_aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def without_tokens(graph: fx.Graph) -> None:
    """Operators with an effect as calls of their own: PyTorch threads a token through them, to keep their order.

    Before:  f(token, x): made = with_effects(token, op, x); token_1 = made[0]; y = made[1]; return (token_1, y)
    After:   f(x): y = op(x); return (y,)
    """
    wrapped = [n for n in graph.nodes if n.target is torch.ops.higher_order.with_effects]
    tokens = [n.args[0] for n in wrapped if isinstance(n.args[0], fx.Node) and n.args[0].op == "placeholder"]
    (output,) = (n for n in graph.nodes if n.op == "output")
    # As many are returned as are given, and they come first.
    output.args = (tuple(output.args[0])[len(tokens) :],)
    for node in wrapped:
        _unwrap(graph, node)
    for token in tokens:
        graph.erase_node(token)


def _unwrap(graph: fx.Graph, wrapped: fx.Node) -> None:
    _, target, *arguments = list(wrapped.args)
    made: tuple[Any, ...] = tuple(wrapped.meta.get("val") or (None,))
    parts = [n for n in wrapped.users if n.target is operator.getitem]
    assert callable(target)
    with graph.inserting_before(wrapped):
        call = graph.call_function(target, tuple(arguments), wrapped.kwargs)
    call.meta = {**wrapped.meta, "val": made[1] if len(made) == 2 else tuple(made[1:]) or None}
    for part in parts:
        place = part.args[1]
        assert isinstance(place, int)
        if place == 0:
            # The next token, which is unwrapped too, or an output that was dropped.
            part.replace_all_uses_with(call)
        elif len(made) == 2:
            part.replace_all_uses_with(call)
        else:
            part.args = (call, place - 1)
            continue
        graph.erase_node(part)
    graph.erase_node(wrapped)


def reshape_instead_of_view(graph: fx.Graph) -> None:
    """Views where they exist, and copies elsewhere: a decomposition before them may give other strides than its
    operator does, which have no such view.
    """
    for node in graph.nodes:
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default


def with_fresh_numbers(graph: fx.Graph, constants: Mapping[str, Any]) -> None:
    """Numbers that the function makes tensors of, as fills: PyTorch captures such a tensor as a constant and its copy.

    `constants`: the tensors of placeholders, by name. What a function closes over is not copied, and may change.

    Before:  f(constant, x): y = where(m, x, lift_fresh_copy(constant))
    After:   f(constant, x): y = where(m, x, full([], -inf))
    """
    for node in list(graph.nodes):
        if node.target is _aten.lift_fresh_copy.default and (made := _on_cpu(node, constants)) is not None:
            with graph.inserting_before(node):
                filled = graph.call_function(
                    _aten.full.default,
                    (list(made.shape), made.item()),
                    {"dtype": made.dtype, "device": made.device, "pin_memory": False},
                )
            node.replace_all_uses_with(_like(node, filled, node))
            graph.erase_node(node)


def _on_cpu(copied: fx.Node, constants: Mapping[str, Any]) -> Tensor | None:
    """The constant of one element that a node copies; None for others, and where it is not at hand."""
    (given,) = copied.all_input_nodes
    made = constants.get(given.name)
    if not isinstance(made, Tensor) or isinstance(made, FakeTensor) or made.layout is not torch.strided:
        return None
    return made if made.device.type == "cpu" and made.numel() == 1 else None


def without_copies_of_arguments(graph: fx.Graph) -> None:
    """Operators that return an argument itself, replaced by that argument: PyTorch's Python decomposition may copy it.

    Before:  f(x): y = dropout(x, 0.5, False); return (y,)
    After:   f(x): return (x,)
    """
    for node in list(graph.nodes):
        if _COMPOSITE in getattr(node.target, "py_kernels", ()) and isinstance(node.meta.get("val"), Tensor):
            given = _given_back(node)
            if given is not None:
                node.replace_all_uses_with(given)
                graph.erase_node(node)


def _given_back(node: fx.Node) -> fx.Node | None:
    """The argument that the operator itself returns for the graph's fake tensors; None for a new tensor."""
    inputs = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    alike = [n for n in inputs if _kind(n) == _kind(node)]
    if not alike or not isinstance(node.meta["val"], FakeTensor):
        return None
    arguments, keywords = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    assert callable(node.target)
    with node.meta["val"].fake_mode:
        made = node.target(*arguments, **keywords)
    return next((n for n in alike if made is n.meta["val"]), None)


def _kind(node: fx.Node) -> tuple[torch.Size, torch.dtype]:
    made = node.meta["val"]
    assert isinstance(made, Tensor)
    return made.shape, made.dtype


def padded_with_signs(graph: fx.Graph) -> None:
    """Padding with -0.0 as the negation of padding with 0: PyTorch omits an argument that equals its default.

    Before:  f(x): y = pad(x, [1, 1], "constant", -0.0)
    After:   f(x): y = neg(pad(neg(x), [1, 1]))
    """
    for node in list(graph.nodes):
        if node.target not in (_aten.pad.default, _aten.constant_pad_nd.default):
            continue
        x, sides, *rest = node.args
        value = node.kwargs.get("value", rest[-1] if rest else None)
        signed = isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
        if signed and isinstance(x, fx.Node) and x.meta["val"].dtype.is_floating_point:
            with graph.inserting_before(node):
                negated = _like(node, graph.call_function(_aten.neg.default, (x,)), x)
                padded = _like(node, graph.call_function(_aten.constant_pad_nd.default, (negated, sides)), node)
                found = _like(node, graph.call_function(_aten.neg.default, (padded,)), node)
            node.replace_all_uses_with(found)
            graph.erase_node(node)


def _like(node: fx.Node, made: fx.Node, shaped: fx.Node) -> fx.Node:
    """A replacement of a node, with its source line, and the shape of another."""
    made.meta = {**node.meta, "val": shaped.meta["val"]}
    return made


def read_from_their_memory(graph: fx.Graph) -> frozenset[str]:
    """as_strided of a view as as_strided of the view's base: memory beyond a view is that of another tensor.

    Returns the operations that PyTorch must run to keep its memory layout: `as_strided` of a tensor that is not dense
    in the order of its dimensions, and that tensor's producer.

    Raises:
        InputError: the memory is not that of a tensor of the graph in its layout.
    """
    given: dict[int, fx.Node] = {}
    laid_out: set[str] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            for memory in _memory(node):
                given.setdefault(memory, node)
        if node.target is _aten.as_strided.default and isinstance(node.args[0], fx.Node):
            base = _base(node.args[0], given)
            _read_from(node, base)
            if not base.meta["val"].is_contiguous():
                laid_out |= {node.name, base.name, *(n.name for n in _producer(base))}
    return frozenset(laid_out)


def _memory(node: fx.Node) -> set[int]:
    """The memory of the tensors that a node makes."""
    made = node.meta.get("val")
    tensors = made if isinstance(made, list | tuple) else [made]
    return {t.untyped_storage()._cdata for t in tensors if isinstance(t, Tensor) and t.layout is torch.strided}


def _base(viewed: fx.Node, given: Mapping[int, fx.Node]) -> fx.Node:
    """The node whose own memory a view reads: found from operand to operand, since equal parts of a graph share their
    examples. `given`: the first argument of each memory.
    """
    memory, base, here = _memory(viewed), viewed, viewed
    while found := next((n for n in here.all_input_nodes if memory & _memory(n)), None):
        here = found
        base = here if isinstance(here.meta["val"], Tensor) else base
    return next((given[m] for m in memory if m in given), base) if base.op == "placeholder" else base


def _producer(node: fx.Node) -> list[fx.Node]:
    return node.all_input_nodes if node.target is operator.getitem else []


def _read_from(node: fx.Node, base: fx.Node) -> None:
    viewed, shape, strides, *rest = node.args
    offset = rest[0] if rest else node.kwargs.get("storage_offset")
    assert isinstance(viewed, fx.Node)
    if offset is None:
        offset = viewed.meta["val"].storage_offset()
    whole = base.meta["val"]
    if whole.storage_offset() or whole.untyped_storage().nbytes() > whole.numel() * whole.itemsize:
        raise InputError(f"{node.target} reads memory of {base.name} beyond its elements; expected a tensor's own")
    node.args, node.kwargs = (base, shape, strides, offset), {}
