"""Pointwise operators and folds computed with NumPy, for the interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from search_spaces.workloads.dtypes import round_to

Array = np.ndarray


def _by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's own, which NumPy lacks, applied to each element."""

    def computed(x: Array) -> Array:
        return np.array([function(v) for v in x.reshape(-1).tolist()], dtype=np.float64).reshape(x.shape)

    return _rounded_once(computed)


def _rounded_once(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function computed in float64, then rounded to float32."""
    return lambda *x: np.asarray(function(*(np.asarray(v, np.float64) for v in x)), np.float32)


def _lgamma(x: float) -> float:
    is_pole = x <= 0 and x == math.floor(x) if math.isfinite(x) else x == -math.inf
    return math.inf if is_pole else math.lgamma(x)


def _erfcx(x: float) -> float:
    """exp(x^2) erfc(x), by its asymptotic series where erfc is nearly 0."""
    if x < -26:
        return math.inf
    if x < 25:
        return math.exp(x * x) * math.erfc(x)
    y = 0.5 / (x * x)
    return (1 - y * (1 - 3 * y * (1 - 5 * y))) / (x * math.sqrt(math.pi))


def _digamma(x: float) -> float:
    """Digamma as PyTorch defines it: at 0 the infinity of the other sign, at other poles NaN."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if x < 0:
        return math.nan if x == -math.inf or x == math.floor(x) else _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    lower = 0.0
    while x < 12:
        lower, x = lower + 1 / x, x + 1
    y = 1 / (x * x)
    return math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132)))) - lower


def _exp2_biased(x: Array) -> Array:
    return np.where((x >= -0.5) & (x <= 254.5), np.exp2(np.rint(x) - 127), np.nan)


def _where(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition != 0, a, b)


def _quotient(a: Array, b: Array) -> Array:
    """Quotient cut towards 0; by 0, the dividend."""
    a, b = np.broadcast_arrays(a, b)
    by_one = (b == 0) | (b == 1)
    # The one quotient that does not fit is -2^63 / -1, which wraps around.
    divisor = np.where(by_one | (b == -1), 1, b)
    down = a // divisor
    cut = down + ((down < 0) & (down * divisor != a))
    return np.where(b == -1, -a, cut)


def _shift_left(a: Array, b: Array) -> Array:
    return np.where((b < 0) | (b > 63), 0, np.left_shift(a, np.clip(b, 0, 63)))


def _shift_right(a: Array, b: Array) -> Array:
    return np.asarray(np.right_shift(a, np.where((b < 0) | (b > 63), 63, b)))


# By the name of the operator in `search_spaces.workloads.expressions.operators.OPERATORS`, except conversions.
OPERATIONS: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "tanh": np.tanh,
    **dict.fromkeys(("erf", "erf_relative"), _by_element(math.erf)),
    "sin": np.sin,
    "cos": np.cos,
    **{
        name: _rounded_once(getattr(np, name))
        for name in ("exp2", "log2", "log10", "expm1", "log1p", "sinh", "cosh", "hypot", "fmod")
    },
    **{
        name: _rounded_once(getattr(np, name.replace("a", "arc", 1)))
        for name in ("asinh", "acosh", "atanh", "asin", "acos", "atan", "atan2")
    },
    "exp2_normal": _rounded_once(np.exp2),
    "exp2_biased": _rounded_once(_exp2_biased),
    "pow": _rounded_once(np.power),
    "tan": _rounded_once(np.tan),
    "erfc": _by_element(math.erfc),
    "erfcx": _by_element(_erfcx),
    "lgamma": _by_element(_lgamma),
    "digamma": _by_element(_digamma),
    "floor": np.floor,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "where": _where,
    "quotient": _quotient,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "cast": lambda x: x,
    "round_bfloat16": lambda x: round_to(x, "bfloat16"),
}
FOLDS: Mapping[str, Callable[..., Array]] = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
