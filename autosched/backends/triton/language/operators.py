"""The pointwise operators of tile programs as Triton expressions of float32 tensors."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Mapping

from autosched.backends.formulas import FORMULAS
from autosched.backends.triton.language import formulas
from autosched.backends.triton.language.bit_fields import field_function, is_field
from search_spaces.workloads.expressions.operators import OPERATORS

_TANH = """\
@triton.jit
def _tanh(x):
    # Near 0 a polynomial, because there the difference cancels. Elsewhere 1 - 2 / (exp(2 x) + 1), by the square of a
    # reciprocal root, which takes fewer instructions; exp may overflow: the root is then 0, as it should.
    y = x * x
    p = 0.13332546 + y * (-0.053847853 + y * (0.021052506 - 0.0062460648 * y))
    near = x * (1.0 + y * (-0.33333316 + y * p))
    root = tl.rsqrt(tl.exp2(2.885390043258667 * x) + 1.0)
    return tl.where(tl.abs(x) < 0.55, near, 1.0 - 2.0 * (root * root))
"""

_ERF = """\
@triton.jit
def _erf(x):
    # 1 - erf(a) = 2^(-a p(a)): one polynomial for every a up to where erf rounds to 1. NaN stays NaN.
    a = tl.minimum(tl.abs(x), 3.95, propagate_nan=tl.PropagateNan.ALL)
    p = 0.0023022927 + a * (0.00046155107 - 0.00010021780 * a)
    p = 1.6279137 + a * (0.91832864 + a * (0.14896370 + a * (-0.029452579 + a * p)))
    y = 1.0 - tl.exp2(-a * p)
    # The sign of x: y has none, as its magnitude is rounded to 0 at least.
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (y.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
"""

_ERF_RELATIVE = """\
@triton.jit
def _erf_relative(x):
    # As erf from 1 on, and a polynomial near 0, where what is 1 less something has few places left.
    x = tl.cast(x, tl.float32)
    y = x * x
    q = -0.026711352 + y * (0.0049176510 - 0.00056319393 * y)
    near = x + x * (0.12837912 + y * (-0.37612325 + y * (0.11280178 + y * q)))
    a = tl.minimum(tl.abs(x), 3.95, propagate_nan=tl.PropagateNan.ALL)
    p = 0.0023022927 + a * (0.00046155107 - 0.00010021780 * a)
    p = 1.6279137 + a * (0.91832864 + a * (0.14896370 + a * (-0.029452579 + a * p)))
    far = 1.0 - tl.exp2(-a * p)
    return tl.where(a < 1.0, near, tl.where(x < 0.0, -far, far))
"""

# Triton's own folds leave NaN out; PyTorch's do not.
_MAX = """\
@triton.jit
def _max(a, b):
    return tl.maximum(a, b, tl.PropagateNan.ALL)
"""

_MIN = """\
@triton.jit
def _min(a, b):
    return tl.minimum(a, b, tl.PropagateNan.ALL)
"""

_PROD = """\
@triton.jit
def _prod(a, b):
    return a * b
"""

_QUOTIENT = """\
@triton.jit
def _quotient(a, b):
    # By 0 the dividend; by -1 without a division, which -2^63 overflows.
    return tl.where(b == -1, -a, a // tl.where((b == 0) | (b == -1), 1, b))
"""

_SHIFT_LEFT = """\
@triton.jit
def _shift_left(a, b):
    return tl.where((b < 0) | (b > 63), 0, a << (b & 63))
"""

_SHIFT_RIGHT = """\
@triton.jit
def _shift_right(a, b):
    return a >> tl.where((b < 0) | (b > 63), 63, b)
"""

_EXP2 = """\
@triton.jit
def _exp2(x):
    # The hardware's, which takes denormal numbers to be 0: from -126 on a power of two more, and taken off again.
    x = tl.cast(x, tl.float32)
    low = x < -126.0
    return tl.exp2(tl.where(low, x + 64.0, x)) * tl.where(low, 5.421010862427522e-20, 1.0)
"""

_LOG = """\
@triton.jit
def _log(x):
    # The vendor's, which takes denormal numbers to be 0: they are scaled by 2^23, and its logarithm taken off again.
    low = x < 1.1754943508222875e-38
    return tl.log(tl.where(low, x * 8388608.0, x)) - tl.where(low, 15.942385152878742, 0.0)
"""

_RSQRT = """\
@triton.jit
def _rsqrt(x):
    # The hardware's, which takes denormal numbers to be 0: they are scaled by 2^24.
    low = tl.abs(x) < 1.1754943508222875e-38
    return tl.rsqrt(tl.where(low, x * 16777216.0, x)) * tl.where(low, 4096.0, 1.0)
"""

_DIV_BY_SUM = """\
@triton.jit
def _div_by_sum(a, b):
    # The hardware's root of a number that is positive and not denormal; its square may be denormal.
    root = tl.rsqrt(tl.cast(b, tl.float32))
    return a * (root * root)
"""

_ROUND_BFLOAT16 = """\
@triton.jit
def _round_bfloat16(x):
    # Two numbers by one instruction, and back.
    return tl.inline_asm_elementwise(
        "{.reg .b32 t; cvt.rn.bf16x2.f32 t, $3, $2; shl.b32 $0, t, 16; and.b32 $1, t, 0xffff0000;}",
        "=f,=f,f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )
"""

# Operators that Triton itself lacks (tanh is only in the vendor's library), as functions of the module. Polynomials are
# minimax fits made for this file. Triton's erf is the vendor's, right to the last place at twice the instructions; this
# one is within 1.3 * 2^-23: the fit minimises the largest absolute error, which is the one that gelu needs, and which
# `checking.rounding` allows.
_FUNCTIONS: Mapping[str, str] = {
    "tanh": _TANH,
    "erf": _ERF,
    "erf_relative": _ERF_RELATIVE,
    "exp2": _EXP2,
    "log": _LOG,
    "rsqrt": _RSQRT,
    "div_by_sum": _DIV_BY_SUM,
    "round_bfloat16": _ROUND_BFLOAT16,
    "quotient": _QUOTIENT,
    "shift_left": _SHIFT_LEFT,
    "shift_right": _SHIFT_RIGHT,
}

_PRINTERS: Mapping[str, Callable[..., str]] = {
    "add": lambda a, b: f"{a} + {b}",
    "sub": lambda a, b: f"{a} - {b}",
    "mul": lambda a, b: f"{a} * {b}",
    "div": lambda a, b: f"{a} / {b}",
    "maximum": lambda a, b: f"tl.maximum({a}, {b}, tl.PropagateNan.ALL)",
    "minimum": lambda a, b: f"tl.minimum({a}, {b}, tl.PropagateNan.ALL)",
    # Triton 3.6 makes 0 - x of -x, which for 0 is 0 and not -0.
    "neg": lambda a: f"{a} * -1",
    "abs": lambda a: f"tl.abs({a})",
    "exp": lambda a: f"tl.exp({a})",
    "exp_or_0": lambda a: f"tl.exp2({a} * 1.4426950408889634)",
    "exp2_normal": lambda a: f"tl.exp2({a})",
    "sqrt": lambda a: f"tl.sqrt_rn({a})",
    "sin": lambda a: f"tl.sin({a})",
    "cos": lambda a: f"tl.cos({a})",
    "floor": lambda a: f"tl.floor({a})",
    "lt": lambda a, b: f"({a} < {b}).to(tl.float32)",
    "le": lambda a, b: f"({a} <= {b}).to(tl.float32)",
    "eq": lambda a, b: f"({a} == {b}).to(tl.float32)",
    "where": lambda c, a, b: f"tl.where({c} != 0.0, {a}, {b})",
    "bitwise_and": lambda a, b: f"{a} & {b}",
    "bitwise_or": lambda a, b: f"{a} | {b}",
    "bitwise_xor": lambda a, b: f"{a} ^ {b}",
    "cast": lambda a: a,
}

# Functions of the module that join two values of a fold; Triton has one of its own for sums.
COMBINING: Mapping[str, str] = {"max": _MAX, "min": _MIN, "prod": _PROD}


# The normal numbers of float32.
_SMALLEST_NORMAL, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127


def apply(operator: str, arguments: list[str]) -> str:
    """The operator applied to printed arguments, each a name, a constant or an expression that binds tightly."""
    if operator not in _PRINTERS:
        return f"_{operator}({', '.join(arguments)})"
    return _PRINTERS[operator](*arguments)


def functions(used: Collection[str]) -> list[str]:
    """The functions of a module that applies these operators."""
    texts = [text for name, text in _FUNCTIONS.items() if name in used]
    texts += [field_function(name) for name in sorted(used) if is_field(name)]
    made = (name for name in FORMULAS if name in used and name not in {*_FUNCTIONS, *_PRINTERS})
    return texts + [formulas.function(f"_{n}", FORMULAS[n], OPERATORS[n][0]) for n in made]


def fold(operator: str, values: str, axis: int) -> str:
    """The fold of a printed tensor along an axis, given by number."""
    if operator in COMBINING:
        return f"tl.reduce({values}, {axis}, _{operator})"
    return f"tl.{operator}({values}, axis={axis})"


def constant(value: float) -> str:
    """A float32 in Triton's notation."""
    held = ctypes.c_float(value).value
    if 0 < abs(held) < _SMALLEST_NORMAL:
        # Triton takes a number that is no normal float32 for a float64.
        return f"tl.full([], {held!r}, tl.float32)"
    if math.isinf(held):
        return 'float("inf")' if value > 0 else '-float("inf")'
    if math.isnan(value):
        return 'float("nan")'
    return repr(held if abs(value) > _LARGEST else float(value))
