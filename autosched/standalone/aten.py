"""As Python text: calls of ATen operators, and what a function returns its results in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import TreeSpec

from autosched.tracing.capture.result_tree import ResultTree
from search_spaces import InputError

_EXPECTED = "expected tuples, lists and dicts"
# The name of a tensor of the graph; None for anything else.
NameOf = Callable[[Any], str | None]


def call_text(target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], name_of: NameOf, exact: bool) -> str:
    """`torch.ops.aten.add.Tensor(x, y)`. With `exact`, floating-point types are `_type(…, exact)`.

    A `device` is the variable of that name.

    Raises:
        InputError: an argument cannot be written as text.
    """
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


def structure_text(structure: ResultTree, results: Sequence[str]) -> str:
    """`{"a": x, "b": (y, None)}`, from the texts of all results that are tensors.

    Raises:
        InputError: they are returned in a type that a file that needs only PyTorch cannot write.
    """
    if structure.records:
        kinds = ", ".join(record.kind.__name__ for _, record in structure.records)
        raise InputError(f"results in {kinds} cannot be written to a stand-alone file; {_EXPECTED}")
    leaves = list(results)
    for place, constant in structure.constants:
        if not isinstance(constant, bool | int | float | str | None):
            raise InputError(f"a result {constant!r} cannot be written to a stand-alone file")
        leaves.insert(place, value_text(constant) if isinstance(constant, float) else repr(constant))
    return _tree_text(structure.spec, iter(leaves))


def _tree_text(spec: TreeSpec, leaves: Iterator[str]) -> str:
    if spec.is_leaf():
        return next(leaves)
    parts = [_tree_text(child, leaves) for child in spec.children()]
    if spec.type is tuple:
        return f"({', '.join(parts)},)" if parts else "()"
    if spec.type is list:
        return f"[{', '.join(parts)}]"
    if spec.type is dict:
        return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(spec.context, parts, strict=True))}}}"
    raise InputError(f"results in a {spec.type.__name__} cannot be written to a stand-alone file; {_EXPECTED}")
