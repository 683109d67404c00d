"""As Python text: calls of ATen operators, and what a function returns its results in."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import TreeSpec

from autosched.backends.printing.scope import Identifiers
from autosched.tracing.capture.fused_functions.attention import OPERATOR as ATTENTION
from autosched.tracing.capture.result_tree import ResultTree
from search_spaces import InputError

_EXPECTED = "expected tuples, lists and dicts"
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
# The name of a tensor of the graph; None for anything else.
NameOf = Callable[[Any], str | None]


def call_text(target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], name_of: NameOf, exact: bool) -> str:
    """`torch.ops.aten.add.Tensor(x, y)`. With `exact`, floating-point types are `_type(…, exact)`.

    A `device` is the variable of that name.

    Raises:
        InputError: an argument cannot be written as text.
    """
    if target is ATTENTION:
        return f"_attention({', '.join(_text(a, name_of, exact) for a in arguments)})"
    if not isinstance(target, torch._ops.OpOverload):
        raise InputError(f"{target} cannot be written to a stand-alone file; expected an operator of ATen")
    given = [_text(a, name_of, exact) for a in arguments]
    given += [f"{k}={'device' if k == 'device' else _text(v, name_of, exact)}" for k, v in keywords.items()]
    return f"torch.ops.{target}({', '.join(given)})"


def _text(argument: Any, name_of: NameOf, exact: bool) -> str:
    name = name_of(argument)
    if name is not None:
        return name
    match argument:
        case list() | tuple():
            return f"[{', '.join(_text(a, name_of, exact) for a in argument)}]"
        case float():
            return value_text(argument)
        case torch.dtype() if exact and argument.is_floating_point:
            return f"_type({argument}, exact)"
        case torch.device():
            return "device"
        case None | bool() | int() | str() | torch.dtype() | torch.layout() | torch.memory_format():
            return repr(argument)
    raise InputError(f"an argument {argument!r} cannot be written to a stand-alone file")


def value_text(value: float) -> str:
    """A number as a Python literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    return repr(value)


def literal(constant: Any) -> str:
    """A number, a text or None as a Python literal. Raises InputError for anything else."""
    if not isinstance(constant, bool | int | float | str | None):
        raise InputError(f"{constant!r} cannot be written to a stand-alone file")
    return value_text(constant) if isinstance(constant, float) else repr(constant)


def node_text(node: fx.Node, names: Identifiers, exact: bool) -> str:
    """The call of a node of a graph; the names of others are those that they have in `names`."""
    if node.target is operator.getitem:
        several, place = node.args
        assert isinstance(several, fx.Node)
        return f"{names.of(several, several.name)}[{place}]"

    def name_of(argument: Any) -> str | None:
        return names.of(argument, argument.name) if isinstance(argument, fx.Node) else None

    # A view of a result may need a copy where another library laid that out.
    target = torch.ops.aten.reshape.default if node.target in _VIEWS else node.target
    text, made = call_text(target, node.args, dict(node.kwargs), name_of, exact), node.meta.get("val")
    # Without a tensor or a type among its arguments, it is of the default type.
    usual = exact and not node.all_input_nodes and not node.kwargs.get("dtype")
    if usual and isinstance(made, Tensor) and made.is_floating_point():
        return f"{text}.to(_type({made.dtype}, exact))"
    return text


def structure_text(structure: ResultTree, results: Sequence[str], what: str = "results") -> str:
    """`{"a": x, "b": (y, None)}`, from the texts of all results that are tensors.

    Raises:
        InputError: they, as the message calls `what`, are in a type that a file that needs only PyTorch cannot write.
    """
    if structure.records:
        kinds = ", ".join(record.kind.__name__ for _, record in structure.records)
        raise InputError(f"{what} in {kinds} cannot be written to a stand-alone file; {_EXPECTED}")
    leaves = list(results)
    for place, constant in structure.constants:
        leaves.insert(place, literal(constant))
    return _tree_text(structure.spec, iter(leaves), what)


def tuple_text(parts: Sequence[str]) -> str:
    """`(x, y)`, `(x,)`, `()`."""
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _are_keys(context: Any, parts: Sequence[str]) -> bool:
    return isinstance(context, list) and len(context) == len(parts)


def _tree_text(spec: TreeSpec, leaves: Iterator[str], what: str) -> str:
    if spec.is_leaf():
        return next(leaves)
    parts = [_tree_text(child, leaves, what) for child in spec.children()]
    if spec.type is tuple:
        return tuple_text(parts)
    if spec.type is list:
        return f"[{', '.join(parts)}]"
    # Subclasses that are registered as dicts are, such as the outputs of models of transformers, become these.
    if isinstance(spec.type, type) and issubclass(spec.type, dict) and _are_keys(spec.context, parts):
        return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(spec.context, parts, strict=True))}}}"
    raise InputError(f"{what} in a {spec.type.__name__} cannot be written to a stand-alone file; {_EXPECTED}")
