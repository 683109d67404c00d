"""Evaluation of a PyTorch function in float64: the reference that whole functions are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


def in_float64(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """Results of the function evaluated in float64: inputs, constants and conversions to other floating-point types.

    Raises:
        Exception: PyTorch cannot compute it like that, and raises whatever it does then.
    """
    # PyTorch's TorchDispatchMode has an untyped constructor, and a typed one here would have to call it.
    with _InFloat64():  # type: ignore[no-untyped-call]
        return function(*tree_map(widened, tuple(inputs)))


class _InFloat64(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(widened, (args, kwargs or {}))
        return tree_map(widened, func(*args, **kwargs))


def widened(value: Any) -> Any:
    """A tensor, or the name of an element type, as float64 where it is floating-point."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value
