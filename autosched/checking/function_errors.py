"""Rounding errors of functions with a formula: their own, and the amplification of their arguments' errors.

See `rounding.analysis` for the definition of an error. Formulas are rounded once, or to within two units in the last
place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

# A partial derivative; as a numerator and a denominator where the quotient may underflow.
Slope = torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None
Slopes = tuple[Slope, ...]

_LN2, _LN10 = math.log(2.0), math.log(10.0)


def _one(like: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(like)


def _beside_one(a: torch.Tensor) -> torch.Tensor:
    """1 - a^2, which does not cancel near 1."""
    return (1 - a) * (1 + a)


def _of_angle(f: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> Slopes:
    length = torch.hypot(x, y)
    return (x / length, length), (y / length, length)


# The partial derivative by every argument, given the result and the arguments; None is 1 or -1.
SLOPES: Mapping[str, Callable[..., Slopes]] = {
    **dict.fromkeys(("exp2", "exp2_normal"), lambda f, a: (_LN2 * f,)),
    "log2": lambda f, a: (1 / (_LN2 * a),),
    "log10": lambda f, a: (1 / (_LN10 * a),),
    "expm1": lambda f, a: (f + 1,),
    "log1p": lambda f, a: (1 / (1 + a),),
    "pow": lambda f, a, b: ((b * f, a), f * a.log()),
    "sinh": lambda f, a: (torch.cosh(a),),
    "cosh": lambda f, a: (torch.sinh(a),),
    "asinh": lambda f, a: (1 / torch.hypot(a, _one(a)),),
    "acosh": lambda f, a: (((a - 1) * (a + 1)).rsqrt(),),
    "atanh": lambda f, a: (1 / _beside_one(a),),
    "tan": lambda f, a: (1 + f.square(),),
    "asin": lambda f, a: (_beside_one(a).rsqrt(),),
    "acos": lambda f, a: (_beside_one(a).rsqrt(),),
    "atan": lambda f, a: (1 / (1 + a.square()),),
    "atan2": _of_angle,
    "hypot": lambda f, a, b: ((a, f), (b, f)),
    "erf_relative": lambda f, a: (2 / math.sqrt(math.pi) * torch.exp(-a.square()),),
    "erfc": lambda f, a: (2 / math.sqrt(math.pi) * torch.exp(-a.square()),),
    "erfcx": lambda f, a: (2 * a * f - 2 / math.sqrt(math.pi),),
    "lgamma": lambda f, a: (torch.digamma(a),),
    "digamma": lambda f, a: (torch.polygamma(1, a),),
}
# The function's own error, given its result. Functions that use a GPU's own 2^x have twice the error of formulas.
OWN: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: lambda f: 2 * f.abs() for name in SLOPES},
    **dict.fromkeys(("exp2", "exp2_normal", "erf_relative"), lambda f: 4 * f.abs()),
}
