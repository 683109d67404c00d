"""Evaluation of a PyTorch function in float64: the reference that whole functions are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

Function = Callable[..., Any]
_OWN_TYPES = {getattr(torch, f"conv{kind}{n}d") for kind in ("", "_transpose") for n in (1, 2, 3)}


def in_float64(function: Function, inputs: Sequence[Tensor], rounding: Rounding | None = None) -> Any:
    """Results of the function evaluated in float64: inputs, constants and conversions to other floating-point types.

    `rounding`: perturbs every intermediate result, as rounding would.

    Raises:
        Exception: PyTorch cannot compute it like that, and raises whatever it does then.
    """
    with _Convolutions(), _InFloat64(rounding):
        return function(*tree_map(widened, tuple(inputs)))


@dataclass
class Rounding:
    """Random errors of so much, relative to each element: Monte Carlo arithmetic (Parker, 1997).

    Results that cancel show how much of them is rounding. Whole numbers are exact, and stay.
    """

    amount: float
    generator: torch.Generator

    def of(self, result: Tensor) -> Tensor:
        errors = torch.rand(result.shape, generator=self.generator, dtype=torch.float64).mul_(2).sub_(1)
        changed = result * errors.mul_(self.amount).add_(1).to(result.device)
        return torch.where(result == result.round(), result, changed)


class _Convolutions(TorchFunctionMode):
    """Convolutions of float64 images alone: they compare the types of their arguments before anything is dispatched."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _OWN_TYPES:
            args, kwargs = tree_map(widened, (args, kwargs or {}))
        return func(*args, **kwargs or {})


class _InFloat64(TorchDispatchMode):
    def __init__(self, rounding: Rounding | None) -> None:
        # PyTorch's own constructor has no types.
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounding = rounding

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.view.dtype:
            raise NotImplementedError("the bits of float64 are not those of another type")
        args, kwargs = tree_map(widened, (args, kwargs or {}))
        made = tree_map(widened, func(*args, **kwargs))
        if self._rounding is None or not _is_new(func):
            return made
        return tree_map_only(Tensor, self._rounded, made)

    def _rounded(self, result: Tensor) -> Tensor:
        assert self._rounding is not None
        return self._rounding.of(result) if result.dtype is torch.float64 else result


def _is_new(func: Any) -> bool:
    """True if an operator's results are in memory of their own: neither views nor arguments changed in place."""
    schema = getattr(func, "_schema", None)
    return schema is not None and all(r.alias_info is None for r in schema.returns)


def widened(value: Any) -> Any:
    """A tensor, or the name of an element type, as float64 where it is floating-point."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value
