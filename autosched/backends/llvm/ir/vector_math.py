"""Vector mathematics as LLVM IR: exp, log, tanh, erf, sin and cos on vectors of float32.

Each takes a builder, a value of type <lanes x float> (a plain float for one lane) and the number of lanes, and returns
the same type. The code is straight: no library calls, branches, tables or fast-math flags; the only contraction is
llvm.fma, so a result does not depend on the optimisation level. Errors against float64 over the whole range:

    exp   within 1 ulp     denormal results, 0, infinity and NaN are right
    log   within 1.6 ulp   denormal arguments, 0, negative, infinity and NaN are right
    tanh  within 1.5 ulp   exactly 1 from 9.02 on
    erf   within 1.5 ulp   exactly 1 from 3.95 on
    sin   within 1.6 ulp   to 2^46 on both sides of 0; NaN beyond: see `formulas.angles` for those
    cos   within 1.6 ulp   likewise

NaN passes every clamp, because a clamp is `limit < x ? limit : x`: an ordered comparison whose false arm is x, which is
one instruction on x86 (vminps). The polynomials are minimax fits made for this file.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.formulas.exponentials import LOG1P
from autosched.backends.llvm.ir.text import F32, F64, I16, I32, I64, Builder, IRValue
from autosched.backends.llvm.ir.values import (
    double_constant,
    float_constant,
    fma,
    int_constant,
    overload,
    unary,
    vector,
)


def at_most(b: Builder, x: IRValue, limit: float, lanes: int) -> IRValue:
    """The smaller of x and the limit; NaN stays NaN."""
    c = float_constant(limit, lanes)
    return b.select(b.fcmp_ordered("<", c, x), c, x)


def at_least(b: Builder, x: IRValue, limit: float, lanes: int) -> IRValue:
    """The larger of x and the limit; NaN stays NaN."""
    c = float_constant(limit, lanes)
    return b.select(b.fcmp_ordered(">", c, x), c, x)


def horner(b: Builder, x: IRValue, coefficients: Sequence[float], lanes: int) -> IRValue:
    """The sum of coefficients[i] * x**i, lowest power first."""
    result = float_constant(coefficients[-1], lanes)
    for c in reversed(coefficients[:-1]):
        result = fma(b, result, x, float_constant(c, lanes), lanes)
    return result


LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HI = 0.693359375  # 9 significant bits: n * LN2_HI is exact for every n used here
LN2_LO = -2.12194440054690583e-4
# Adding 1.5 * 2**23 rounds |v| < 2**22 to the nearest integer, which is then in the low bits.
ROUND_MAGIC = 12582912.0
ROUND_MAGIC_BITS = 0x4B400000
# exp(r) = 1 + r + r^2 * P(r) on |r| <= ln2/2; relative error 3.2e-9.
EXP_P = (
    0.4999999403953552,
    0.1666652113199234,
    0.04166826605796814,
    0.008368677459657192,
    0.001382073387503624,
)
_AVX512_LANES = 16
EXP_HI = 89.0  # exp is +inf from 88.7229 on
EXP_LO = -104.0  # exp rounds to 0 below -103.9721
EXP2_HI = 129.0  # 2**x is +inf from 128 on
EXP2_LO = -150.0  # 2**x rounds to 0 below it


def _reduced(b: Builder, x: IRValue, lanes: int) -> tuple[IRValue, IRValue, IRValue]:
    """The integer n nearest to x / ln 2, once plus ROUND_MAGIC and once plain, and e**(x - n ln 2)."""
    biased = fma(b, x, float_constant(LOG2E, lanes), float_constant(ROUND_MAGIC, lanes), lanes)
    n = b.fsub(biased, float_constant(ROUND_MAGIC, lanes))
    r = fma(b, n, float_constant(-LN2_HI, lanes), x, lanes)
    r = fma(b, n, float_constant(-LN2_LO, lanes), r, lanes)
    return biased, n, _exp_near_0(b, r, lanes)


def _exp_near_0(b: Builder, r: IRValue, lanes: int) -> IRValue:
    """e**r for |r| <= ln2 / 2."""
    p = horner(b, r, EXP_P, lanes)
    p = fma(b, b.fmul(r, r), p, r, lanes)
    return b.fadd(p, float_constant(1.0, lanes))


def exp(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """e**x, scaled by two powers of two, the halves of n, so that neither leaves the normal range.

    With AVX-512, the only one with vectors of 16 lanes, one instruction scales by 2**n, right in the whole range. Lanes
    below it are masked off: a result that underflows takes a hundred cycles, and masks make rows of exp(-inf).
    """
    t = vector(F32, lanes)
    x = at_most(b, x, EXP_HI, lanes)
    if lanes == _AVX512_LANES:
        _, n, p = _reduced(b, x, lanes)
        inside = b.fcmp_unordered(">=", x, float_constant(EXP_LO, lanes))
        zero, rounding = float_constant(0.0, lanes), int_constant(4, 1)
        return b.call("llvm.x86.avx512.mask.scalef.ps.512", t, [p, n, zero, b.bitcast(inside, I16), rounding])
    biased, n, p = _reduced(b, at_least(b, x, EXP_LO, lanes), lanes)
    return _scaled(b, p, biased, lanes)


def _scaled(b: Builder, p: IRValue, biased: IRValue, lanes: int) -> IRValue:
    """p * 2**n, `biased` being n + ROUND_MAGIC."""
    n = b.sub(b.bitcast(biased, vector(I32, lanes)), int_constant(ROUND_MAGIC_BITS, lanes))
    half = b.ashr(n, int_constant(1, lanes))
    rest = b.sub(n, half)

    def power_of_two(e: IRValue) -> IRValue:
        return b.bitcast(b.shl(b.add(e, int_constant(127, lanes)), int_constant(23, lanes)), vector(F32, lanes))

    return b.fmul(b.fmul(p, power_of_two(half)), power_of_two(rest))


def exp2_normal(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """2**x, in float32 alone."""
    x = at_most(b, x, EXP2_HI, lanes)
    biased = b.fadd(x, float_constant(ROUND_MAGIC, lanes))
    n = b.fsub(biased, float_constant(ROUND_MAGIC, lanes))
    p = _exp_near_0(b, b.fmul(b.fsub(x, n), float_constant(LN2, lanes)), lanes)
    inside, zero = b.fcmp_unordered(">=", x, float_constant(EXP2_LO, lanes)), float_constant(0.0, lanes)
    if lanes == _AVX512_LANES:
        given = [p, n, zero, b.bitcast(inside, I16), int_constant(4, 1)]
        return b.call("llvm.x86.avx512.mask.scalef.ps.512", vector(F32, lanes), given)
    return b.select(inside, _scaled(b, p, biased, lanes), zero)


SQRT_HALF_BITS = 0x3F3504F3


def log(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """Natural logarithm."""
    t, ti = vector(F32, lanes), vector(I32, lanes)
    # A denormal argument is scaled to the normal range first.
    small = b.fcmp_ordered("<", x, float_constant(1.17549435e-38, lanes))
    scaled = b.select(small, b.fmul(x, float_constant(2.0**23, lanes)), x)
    bits = b.bitcast(scaled, ti)
    # e such that scaled = m * 2**e with sqrt(1/2) <= m < sqrt(2)
    offset = b.sub(bits, int_constant(SQRT_HALF_BITS, lanes))
    e_bits = b.and_(offset, int_constant(-(1 << 23), lanes))
    m = b.bitcast(b.sub(bits, e_bits), t)
    e = b.sitofp(b.ashr(offset, int_constant(23, lanes)), t)
    e = b.fsub(e, b.select(small, float_constant(23.0, lanes), float_constant(0.0, lanes)))
    f = b.fsub(m, float_constant(1.0, lanes))
    f2 = b.fmul(f, f)
    p = horner(b, f, LOG1P, lanes)
    low = fma(b, b.fmul(f2, f), p, b.fmul(e, float_constant(LN2_LO, lanes)), lanes)
    low = fma(b, f2, float_constant(-0.5, lanes), low, lanes)
    y = b.fadd(fma(b, e, float_constant(LN2_HI, lanes), f, lanes), low)
    # +inf and NaN: x itself (the compare is false for both); 0: -inf; negative: NaN.
    y = b.select(b.fcmp_ordered("<", x, float_constant(float("inf"), lanes)), y, x)
    y = b.select(b.fcmp_ordered("==", x, float_constant(0.0, lanes)), float_constant(float("-inf"), lanes), y)
    return b.select(b.fcmp_ordered("<", x, float_constant(0.0, lanes)), float_constant(float("nan"), lanes), y)


# Both have two arms: a polynomial near 0, where the relative error counts, and 1 - small from
# there on, where small = exp(-something) has a small absolute error.  (One rational function
# x * P(x^2) / Q(x^2) is no shorter -- the division bounds it -- and is 5 ulp off near +-1.)


def _exp_of_negative(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """e**x for -80 <= x <= 0 (or NaN): no clamps and a single power of two."""
    biased, _, p = _reduced(b, x, lanes)
    # The low bits of ROUND_MAGIC_BITS are 0, so the shift leaves just n in the exponent field.
    bits = b.shl(b.bitcast(biased, vector(I32, lanes)), int_constant(23, lanes))
    return b.fmul(p, b.bitcast(b.add(bits, int_constant(127 << 23, lanes)), vector(F32, lanes)))


def copysign(b: Builder, magnitude: IRValue, sign: IRValue, lanes: int) -> IRValue:
    return b.call(f"llvm.copysign.{overload(lanes)}", vector(F32, lanes), [magnitude, sign])


# tanh(x) = x + x * y * P(y), y = x^2, for |x| < 0.55
TANH_SMALL = 0.55
TANH_P = (
    -0.33333316445350647,
    0.133325457572937,
    -0.05384785309433937,
    0.02105250582098961,
    -0.00624606478959322,
)
TANH_LIMIT = 9.02  # from here on tanh rounds to 1


def tanh(b: Builder, x: IRValue, lanes: int) -> IRValue:
    y = b.fmul(x, x)
    near = fma(b, b.fmul(x, y), horner(b, y, TANH_P, lanes), x, lanes)
    a = at_most(b, unary(b, "fabs", x, lanes), TANH_LIMIT, lanes)
    t = _exp_of_negative(b, b.fmul(a, float_constant(-2.0, lanes)), lanes)
    # 1 - 2t / (1 + t)
    quotient = b.fdiv(b.fmul(t, float_constant(-2.0, lanes)), b.fadd(t, float_constant(1.0, lanes)))
    far = b.fadd(quotient, float_constant(1.0, lanes))
    value = b.select(b.fcmp_ordered("<", a, float_constant(TANH_SMALL, lanes)), near, far)
    # Also for -0, of which the polynomial makes 0.
    return copysign(b, value, x, lanes)


# erf(x) = x + x * P(y), y = x^2, for |x| < 1
ERF_SMALL = 1.0
ERF_P = (
    0.12837912142276764,
    -0.37612324953079224,
    0.11280178278684616,
    -0.026711352169513702,
    0.0049176509492099285,
    -0.0005631939275190234,
)
# erf(a) = 1 - exp(-a * R(a)) for 1 <= a
ERF_R = (
    1.128475546836853,
    0.6358464956283569,
    0.10509654879570007,
    -0.022786011919379234,
    0.0031830943189561367,
    -0.00021017920516896993,
)
ERF_LIMIT = 3.95  # from 3.92 on erf rounds to 1


def erf(b: Builder, x: IRValue, lanes: int) -> IRValue:
    y = b.fmul(x, x)
    near = fma(b, x, horner(b, y, ERF_P, lanes), x, lanes)
    a = at_most(b, unary(b, "fabs", x, lanes), ERF_LIMIT, lanes)
    t = _exp_of_negative(b, b.fmul(a, horner(b, a, [-c for c in ERF_R], lanes)), lanes)
    far = copysign(b, b.fsub(float_constant(1.0, lanes), t), x, lanes)
    return b.select(b.fcmp_ordered("<", a, float_constant(ERF_SMALL, lanes)), near, far)


# sin(r) = r + r * y * P(y) and cos(r) = 1 - y/2 + y^2 * P(y), y = r^2, for |r| <= pi/4; relative errors 4e-9 and 1e-10.
SIN_P = (-0.16666655242443085, 0.008332177996635437, -0.00019517233886290342)
COS_P = (0.04166664555668831, -0.0013887366512790322, 2.4438379114144482e-05)
# pi/2 as the sum of two doubles.
HALF_PI_HI = 1.5707963267948966
HALF_PI_LO = 6.123233995736766e-17
TWO_OVER_PI = 0.6366197723675814
# Adding 1.5 * 2**52 rounds |v| < 2**51 to the nearest integer, which is then in the low bits.
ROUND_MAGIC_DOUBLE = 6755399441055744.0
# From here on the rounding of 2/pi lets the remainder exceed pi/4, the range of the polynomials, by 0.006 and more.
SIN_LIMIT = 2.0**46


def sin(b: Builder, x: IRValue, lanes: int) -> IRValue:
    # The polynomial makes 0 of -0.
    is_zero = b.fcmp_ordered("==", x, float_constant(0.0, lanes))
    return b.select(is_zero, x, _sine(b, x, 0, lanes))


def cos(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """Cosine, as the sine of an angle larger by pi/2."""
    return _sine(b, x, 1, lanes)


def _sine(b: Builder, x: IRValue, quarters: int, lanes: int) -> IRValue:
    """sin(x + quarters * pi/2).

    Cody and Waite's reduction, in float64: n * HALF_PI_HI is subtracted without an error, and the error of the two
    doubles as pi/2, times n, is below 2^-56. No float32 but 0 is nearer than 2^-30 to a multiple of pi/2.
    """
    n, r = _quadrant(b, x, lanes)
    y = b.fmul(r, r)
    odd = fma(b, b.fmul(r, y), horner(b, y, SIN_P, lanes), r, lanes)
    parabola = fma(b, y, float_constant(-0.5, lanes), float_constant(1.0, lanes), lanes)
    even = fma(b, b.fmul(y, y), horner(b, y, COS_P, lanes), parabola, lanes)
    n = b.add(n, int_constant(quarters, lanes)) if quarters else n
    is_even = b.icmp_signed("==", b.and_(n, int_constant(1, lanes)), int_constant(0, lanes))
    value = b.bitcast(b.select(is_even, odd, even), vector(I32, lanes))
    turned = b.shl(b.and_(n, int_constant(2, lanes)), int_constant(30, lanes))
    value = b.bitcast(b.xor(value, turned), vector(F32, lanes))
    small = b.fcmp_ordered("<", unary(b, "fabs", x, lanes), float_constant(SIN_LIMIT, lanes))
    return b.select(small, value, float_constant(float("nan"), lanes))


def _quadrant(b: Builder, x: IRValue, lanes: int) -> tuple[IRValue, IRValue]:
    """The low bits of the integer n nearest to x / (pi/2), and x - n * pi/2."""
    t = vector(F64, lanes)
    wide, magic = b.fpext(x, t), double_constant(ROUND_MAGIC_DOUBLE, lanes)

    def plus_product(a: IRValue, factor: float, addend: IRValue) -> IRValue:
        return b.call(f"llvm.fma.{overload(lanes, 'f64')}", t, [a, double_constant(factor, lanes), addend])

    biased = plus_product(wide, TWO_OVER_PI, magic)
    n = b.fsub(biased, magic)
    r = plus_product(n, -HALF_PI_LO, plus_product(n, -HALF_PI_HI, wide))
    return b.trunc(b.bitcast(biased, vector(I64, lanes)), vector(I32, lanes)), b.fptrunc(r, vector(F32, lanes))
