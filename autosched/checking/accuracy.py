"""Accuracy of the pointwise operators over all float32 arguments: the largest errors in units in the last place.

A unit is the distance of the float32 numbers next to the exact value; rounded once, a value is within half of one.
Special values (zeros, infinities, NaN, what C's standard says of powers and angles) are right on every device, and so
are denormal arguments and results, except for sin and cos on a GPU, whose vendor takes denormal arguments for 0. Whole
powers of a constant up to 8 are products: of n factors, within n / 2 units, where no product of them overflows.

On a CPU the polynomials of `backends.llvm.ir.vector_math` and the formulas of `backends.formulas` are measured. On a
GPU formulas are the same; errors of the hardware's and its vendor's functions are those of the CUDA C++ Programming
Guide, section "Mathematical Functions", and of the PTX ISA for `ex2.approx` (2 units) and `div.full` (2 units).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest error in units in the last place on a CPU and on a GPU, with a remark."""

    cpu: float
    gpu: float
    remark: str = ""


_ONCE = 0.502
_EXACT = Accuracy(0.0, 0.0)
_ROUNDED = Accuracy(0.5, 0.5)
_FORMULA = Accuracy(_ONCE, _ONCE)

ACCURACY: Mapping[str, Accuracy] = {
    "add": _ROUNDED,
    "sub": _ROUNDED,
    "mul": _ROUNDED,
    "div": Accuracy(0.5, 2.0, "on a GPU 7 by a constant and an exponential: by the square of a reciprocal root"),
    "maximum": _EXACT,
    "minimum": _EXACT,
    "neg": _EXACT,
    "abs": _EXACT,
    "floor": _EXACT,
    "sqrt": _ROUNDED,
    "rsqrt": Accuracy(1.5, 2.0),
    "exp": Accuracy(1.0, 60.0, "on a GPU 2 + 5/8 |x| units: x log2(e) is rounded, and so is log2(e)"),
    "log": Accuracy(1.6, 2.0),
    "tanh": Accuracy(1.5, 8.0),
    "erf": Accuracy(1.5, float("inf"), "on a GPU within 1.3 * 2^-23, which is for sums with 1"),
    "erf_relative": Accuracy(1.5, 4.0),
    "sin": Accuracy(1.6, 2.0, "on a GPU denormal numbers count as 0"),
    "cos": Accuracy(1.6, 2.0),
    "exp2": Accuracy(_ONCE, 2.0),
    "exp2_normal": Accuracy(1.5, 2.0, "on a GPU denormal numbers count as 0"),
    "exp2_biased": _EXACT,
    "log2": _FORMULA,
    "log10": _FORMULA,
    "expm1": Accuracy(1.0, 1.1),
    "log1p": Accuracy(0.9, 1.2),
    "pow": _FORMULA,
    "sinh": _FORMULA,
    "cosh": _FORMULA,
    "asinh": _FORMULA,
    "acosh": _FORMULA,
    "atanh": _FORMULA,
    "tan": _FORMULA,
    "asin": _FORMULA,
    "acos": _FORMULA,
    "atan": _FORMULA,
    "atan2": _FORMULA,
    "hypot": _FORMULA,
    "erfc": _FORMULA,
    "erfcx": _FORMULA,
    "lgamma": _FORMULA,
    "digamma": _FORMULA,
    "fmod": _EXACT,
}
