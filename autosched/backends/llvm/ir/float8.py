"""8-bit floats, which are float32 in registers and bytes in memory.

A byte of 8-bit float has the sign in its uppermost bit, then exponent and mantissa: like the upper bits of a float32,
but with fewer bits for the exponent. In the place of a float32's, they are the value divided by a power of two:

    e4m3 s eeee mmm        → s 0000eeee mmm0…0        = value * 2^(7 - 127)
    e5m2 s eeeee mm        → s 000eeeee mm00…0        = value * 2^(15 - 127)

float8_e4m3fn has no infinity: values too large become its largest, 448; 0x7F is NaN. float8_e5m2 is the upper byte of
a float16, infinities and NaN included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.llvm.ir.text import F32, I8, I32, Builder, IRValue
from autosched.backends.llvm.ir.values import float_constant, int_constant, unary, vector


@dataclass(frozen=True)
class _Format:
    """`mantissa` bits; the exponent's `bias`; the `largest` number; the pattern of its NaN."""

    mantissa: int
    bias: int
    largest: float
    nan: int

    @property
    def shift(self) -> int:
        """From the place of the mantissa in a byte to that in a float32."""
        return 23 - self.mantissa

    @property
    def least_normal(self) -> float:
        return float(2.0 ** (1 - self.bias))


_FORMATS: Mapping[str, _Format] = {
    "float8_e4m3fn": _Format(3, 7, 448.0, 0x7F),
    "float8_e5m2": _Format(2, 15, 57344.0, 0x7E),
}
_SIGN = -0x80000000


def widened(b: Builder, value: IRValue, dtype: str, lanes: int) -> IRValue:
    """Bytes as float32."""
    form = _FORMATS[dtype]
    bits = b.zext(value, vector(I32, lanes))
    magnitude = b.and_(bits, int_constant(0x7F, lanes))
    sign = b.shl(b.and_(bits, int_constant(0x80, lanes)), int_constant(24, lanes))
    placed = b.bitcast(b.shl(magnitude, int_constant(form.shift, lanes)), vector(F32, lanes))
    number = b.fmul(placed, float_constant(2.0 ** (127 - form.bias), lanes))
    if dtype == "float8_e5m2":
        # Values with all bits of the exponent set are infinities or NaN, as in float32.
        special = b.or_(b.shl(magnitude, int_constant(form.shift, lanes)), int_constant(0x7F800000, lanes))
        is_special = b.icmp_signed(">=", magnitude, int_constant(0x7C, lanes))
    else:
        special = int_constant(0x7FC00000, lanes)
        is_special = b.icmp_signed("==", magnitude, int_constant(form.nan, lanes))
    chosen = b.select(is_special, b.bitcast(special, vector(F32, lanes)), number)
    return b.bitcast(b.or_(b.bitcast(chosen, vector(I32, lanes)), sign), vector(F32, lanes))


def narrowed(b: Builder, value: IRValue, dtype: str, lanes: int) -> IRValue:
    """float32 as bytes, rounded to nearest even."""
    form, ints = _FORMATS[dtype], vector(I32, lanes)
    bits = b.bitcast(value, ints)
    absolute = unary(b, "fabs", value, lanes)
    rounded = b.select(
        b.fcmp_ordered("<", absolute, float_constant(form.least_normal, lanes)),
        _rounded_subnormal(b, absolute, form, lanes),
        _rounded_normal(b, absolute, form, lanes),
    )
    scaled = b.fmul(rounded, float_constant(2.0 ** (form.bias - 127), lanes))
    magnitude = b.lshr(b.bitcast(scaled, ints), int_constant(form.shift, lanes))
    beyond = 0x7C if dtype == "float8_e5m2" else 0x7E
    too_large = b.fcmp_ordered(">", rounded, float_constant(form.largest, lanes))
    magnitude = b.select(too_large, int_constant(beyond, lanes), magnitude)
    magnitude = b.select(b.fcmp_unordered("uno", value, value), int_constant(form.nan, lanes), magnitude)
    sign = b.lshr(b.and_(bits, int_constant(_SIGN, lanes)), int_constant(24, lanes))
    return b.trunc(b.or_(magnitude, sign), vector(I8, lanes))


def _rounded_normal(b: Builder, absolute: IRValue, form: _Format, lanes: int) -> IRValue:
    """The mantissa rounded to its uppermost bits, ties to even: adds half a unit less one bit, plus the parity."""
    bits = b.bitcast(absolute, vector(I32, lanes))
    parity = b.and_(b.lshr(bits, int_constant(form.shift, lanes)), int_constant(1, lanes))
    nearest = b.add(bits, b.add(parity, int_constant((1 << (form.shift - 1)) - 1, lanes)))
    return b.bitcast(b.and_(nearest, int_constant(-(1 << form.shift), lanes)), vector(F32, lanes))


def _rounded_subnormal(b: Builder, absolute: IRValue, form: _Format, lanes: int) -> IRValue:
    """Multiples of the least number: a large number with that as its last place is added, and subtracted again."""
    unit = form.least_normal / 2**form.mantissa
    large = float_constant(1.5 * 2.0**23 * unit, lanes)
    return b.fsub(b.fadd(absolute, large), large)
