"""Nodes of captured graphs: operators, arguments and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from autosched.tracing.capture.graph_nodes import WHOLE
from autosched.tracing.capture.user_lines import user_line
from autosched.tracing.operators.rules import Result, torch_name
from autosched.tracing.translation.layouts import permuted_strides
from autosched.tracing.values.values import NUMBER

READ_NUMBER = torch.ops.aten._local_scalar_dense.default
# Checks that torch.export leaves in a graph, of properties fixed when a function is traced.
_CHECKED_BEFORE = ("_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size")


def given_to(node: fx.Node, known: Mapping[fx.Node, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keywords of a node, with known nodes replaced by their values."""
    return tuple(_mapped(a, known) for a in node.args), {k: _mapped(v, known) for k, v in node.kwargs.items()}


def _mapped(argument: Any, known: Mapping[fx.Node, Any]) -> Any:
    match argument:
        case fx.Node():
            return known[argument]
        case list():
            return [_mapped(a, known) for a in argument]
        case tuple():
            return tuple(_mapped(a, known) for a in argument)
        case dict():
            return {k: _mapped(v, known) for k, v in argument.items()}
        case slice(start=start, stop=stop, step=step):
            return slice(*(_mapped(a, known) for a in (start, stop, step)))
        case _:
            return argument


def needed_nodes(graph: fx.Graph, effects: bool) -> set[fx.Node]:
    """The nodes that results depend on, and, if `effects`, those that may raise."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found or (effects and is_effect(node)):
            found |= {node, *node.all_input_nodes}
    return found


def is_effect(node: fx.Node) -> bool:
    """True if the operator has no result, only an effect that depends on data."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.returns or not node.all_input_nodes:
        return False
    return operator_name(node)[0] not in _CHECKED_BEFORE


def is_sequence(argument: Any) -> bool:
    return isinstance(argument, fx.Node) and isinstance(argument.meta.get("val"), list | tuple)


def where(node: fx.Node) -> str:
    """The operator, as the user called it and as it is here, and the user's line."""
    line, whole = user_line(node), part_of(node)
    called = f"{whole} as {node.target}" if whole else str(node.target)
    return f"{called} ({line})" if line else called


def part_of(node: fx.Node) -> str:
    """The operator that PyTorch made the node of; "" where that is the same one, or unknown."""
    whole = node.meta.get(WHOLE)
    own = getattr(node.target, "overloadpacket", None)
    return str(whole) if isinstance(whole, torch._ops.OpOverload) and whole.overloadpacket is not own else ""


def operator_name(node: fx.Node) -> tuple[str, str]:
    """`aten.sum.dim_IntList` as ("sum", "dim_IntList")."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return f"python.{node.target}", ""
    name, _, overload = str(node.target).removeprefix(f"{node.target.namespace}.").rpartition(".")
    return name if node.target.namespace == "aten" else str(node.target), overload


def results_of(node: fx.Node) -> list[Result | None]:
    """The results of an operation; None for those that it leaves out."""
    meta = node.meta["val"]
    line = user_line(node)
    several = list(meta) if isinstance(meta, list | tuple) else [meta]
    names = [f"{node.name}_{i}" if len(several) > 1 else node.name for i in range(len(several))]
    dtypes = tuple(map(_dtype, several))
    return [_result(name, made, line, dtypes) for name, made in zip(names, several, strict=True)]


def _dtype(made: Any) -> str:
    if isinstance(made, Tensor):
        return torch_name(made.dtype)
    return "" if made is None else NUMBER


def _result(name: str, made: Any, line: str, dtypes: tuple[str, ...]) -> Result | None:
    if isinstance(made, Tensor):
        shape = tuple(n if isinstance(n, int) else -1 for n in made.shape)
        known = made.layout is torch.strided and -1 not in shape
        strides = permuted_strides(shape, tuple(made.stride())) if known else None
        return Result(name, shape, torch_name(made.dtype), line, made.device.type == "cpu", strides, dtypes)
    return None if made is None else Result(name, (), NUMBER, line, dtypes=dtypes)
