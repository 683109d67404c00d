"""Calls of ATen operators as Python text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from search_spaces import InputError

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
