"""Pointwise operators and folds by PyTorch, for references."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from autosched.checking.named_tensors import Named
from autosched.machine.element_types import torch_dtype
from search_spaces import Axis
from search_spaces.workloads.expressions.operators import ROUNDINGS, WRAPPINGS


def _compared(compare: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The comparison as 1 or 0, in the type that arithmetic on its operands has; in float64 of integers."""
    return lambda a, b: compare(a, b).to(torch.result_type(a, b) if a.is_floating_point() else torch.float64)


def _quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # PyTorch raises where a divisor is 0, and a processor traps on -2^63 / -1.
    safe = torch.where((b == 0) | (b == -1), 1, b)
    return torch.where(b == -1, -a, torch.div(a, safe, rounding_mode="trunc"))


def _exp2_biased(x: torch.Tensor) -> torch.Tensor:
    # A byte to PyTorch, which has such an element type: 0 and 254 are its least and its largest number.
    power = x.round().clamp(0, 254).to(torch.uint8).view(torch.float8_e8m0fnu).to(x.dtype)
    return torch.where((x >= -0.5) & (x <= 254.5), power, math.nan)


def cut(x: torch.Tensor) -> torch.Tensor:
    """Floating-point numbers truncated to integers; 0 where these exceed 64 bits."""
    return torch.where(x.abs() < 2.0**63, x, 0.0).to(torch.int64)


OPERATIONS: Mapping[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    **dict.fromkeys(("erf", "erf_relative"), torch.erf),
    "sin": torch.sin,
    "cos": torch.cos,
    **{
        name: getattr(torch, name)
        for name in ("exp2", "log2", "log10", "expm1", "log1p", "pow", "sinh", "cosh", "asinh", "acosh", "atanh", "tan")
    },
    **{name: getattr(torch, name) for name in ("asin", "acos", "atan", "atan2", "hypot", "erfc", "lgamma", "digamma")},
    "exp2_normal": torch.exp2,
    "exp2_biased": _exp2_biased,
    "erfcx": torch.special.erfcx,
    "fmod": torch.fmod,
    "floor": torch.floor,
    "lt": _compared(torch.lt),
    "le": _compared(torch.le),
    "eq": _compared(torch.eq),
    "where": lambda c, a, b: torch.where(c != 0, a, b),
    "quotient": _quotient,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    # Shifts out of range are defined: they shift everything out.
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "to_integer": lambda x: cut(x) if x.is_floating_point() else x.to(torch.int64),
    **{name: lambda x, to=to: x.to(getattr(torch, to)).to(x.dtype) for name, to in {**ROUNDINGS, **WRAPPINGS}.items()},
}


def product_along(values: Named, axes: Sequence[Axis]) -> Named:
    """The product along the axes; along one that the values do not have, their power."""
    repeats = math.prod(a.extent for a in axes if a.name not in values.axes)
    result, left = values.values, list(values.axes)
    for name in [a.name for a in axes if a.name in values.axes]:
        result = result.prod(left.index(name))
        left.remove(name)
    return Named(tuple(left), result if repeats == 1 else result**repeats)


def overflowed(values: torch.Tensor, narrow: str) -> torch.Tensor:
    """Infinities where the values overflow in a narrower type, else the values, unrounded."""
    return torch.where(values.abs() >= overflow(narrow), values * math.inf, values)


def overflow(narrow: str) -> float:
    """The least number that rounds to infinity in a narrower type: half a unit beyond the largest finite one."""
    largest = torch.finfo(torch_dtype(narrow))
    return largest.max * (2 - largest.eps / 2) / (2 - largest.eps)


def extreme(values: Named, axes: Sequence[Axis], fold: Callable[..., torch.Tensor]) -> Named:
    """`fold` (torch.amax or torch.amin) along those of the axes that the values have."""
    reduced = {a.name for a in axes}
    dims = [d for d, a in enumerate(values.axes) if a in reduced]
    left = tuple(a for a in values.axes if a not in reduced)
    return Named(left, fold(values.values, dims)) if dims else values
