"""Exponentials, logarithms, powers, and the hyperbolic functions composed of them.

Most are computed in float64 and rounded once to float32. `expm1` and `log1p`, which activations and losses are composed
of, keep to float32: many GPUs do 32 or 64 times as many operations in it. Polynomials are minimax fits made for this
file.
"""

from __future__ import annotations

import math

from autosched.backends.formulas.terms import (
    Term,
    at_least,
    at_most,
    choose,
    constant,
    fused,
    is_negative,
    limit_below,
    polynomial,
    with_sign_of,
)

# 2^r on |r| <= 1/2; relative error 2^-46.
_EXP2 = (
    1.0000000000000127,
    0.693147180559871,
    0.24022650695649678,
    0.05550410866868632,
    0.009618129192063372,
    0.0013333557617481863,
    0.00015403434950001028,
    1.525298490575415e-05,
    1.3259405317145147e-06,
    1.0150325100175835e-07,
)
# log((1 + s) / (1 - s)) / s as a polynomial in s^2, for 1/sqrt(2) <= (1 + s) / (1 - s) <= sqrt(2); error 2^-52.
_LOG = (
    2.0000000000000004,
    0.6666666666655223,
    0.400000000620163,
    0.2857141598112638,
    0.2222343717444317,
    0.18121854943489604,
    0.1683856145556722,
)
# (exp(r) - 1 - r) / r^2 for 3/4 <= exp(r) <= 3/2; the error of exp(r) - 1 is 2^-31 of it.
_EXPM1 = (
    0.500000001918849,
    0.16666670008805337,
    0.041666509669673425,
    0.008332107202091326,
    0.0013924336937719054,
    0.00020852881076634648,
)
# log2(1.5) - 1/2: the rounding threshold is lower by this, so that e^r - 1 is no more than a half.
_LOWERED = 0.0849625
# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
LOG1P = (
    0.3333333134651184,
    -0.2500081956386566,
    0.2000124156475067,
    -0.166234090924263,
    0.14201579988002777,
    -0.13159610331058502,
    0.12762217223644257,
    -0.07636439055204391,
)
_LOG2E = 1.4426950408889634
# ln 2 in two parts; the first has 9 significant bits, so that its products with exponents are exact.
_LN2_HI, _LN2_LO = 0.693359375, -2.12194440054690583e-4
# Adding 1.5 * 2^52, or 1.5 * 2^23 in float32, rounds to the nearest integer, which is then in the low bits.
_ROUND, _ROUND_SINGLE = 1.5 * 2.0**52, 1.5 * 2.0**23
_ROUND_BITS = 0x4338000000000000
# Adding 2^23 does so for numbers that are not negative, and leaves the integer alone in the low bits.
_WHOLE = 2.0**23
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_SQRT_HALF_BITS_SINGLE = 0x3F3504F3
# 2^t overflows float32, and rounds to 0 in it, well within these.
_HIGHEST, _LOWEST = 160.0, -160.0
# Below this a float32 differs from its hyperbolic sine or tangent by less than a 30th of a unit in the last place.
SMALL = 2.0**-14
# Below this it differs from its exponential less 1 by less than a quarter of such a unit.
_TINY = 2.0**-25
# Bits of a float's fraction.
_FRACTION, _FRACTION_SINGLE = 52, 23


def exp2_wide(t: Term) -> Term:
    """2^t in float64, in the range of float32."""
    t = at_least(at_most(t, _HIGHEST), _LOWEST)
    biased = t + _ROUND
    p = polynomial(t - (biased - _ROUND), _EXP2)
    # The bits of the biased number that the shift keeps are the integer, as an exponent.
    return (p.bits() + (biased.bits() << _FRACTION)).bits()


def exp_wide(x: Term) -> Term:
    """e^x in float64."""
    return exp2_wide(x * _LOG2E)


def log_wide(x: Term, scale: float = 1.0) -> Term:
    """The natural logarithm in float64, times `scale` / ln 2, for all values of float32, 0 and infinity included."""
    bits = x.bits()
    exponent = (bits - _SQRT_HALF_BITS) >> _FRACTION
    m = (bits - (exponent << _FRACTION)).bits()
    e = (exponent + _ROUND_BITS).bits() - _ROUND
    s = (m - 1.0) / (m + 1.0)
    log = fused(s * polynomial(s * s, _LOG), constant(scale * _LOG2E, "float64"), e * scale)
    log = choose(x < math.inf, log, x)
    return choose(x.equals(0.0), -math.inf, choose(x < 0.0, math.nan, log))


def ln_wide(x: Term) -> Term:
    """The natural logarithm in float64."""
    return log_wide(x, math.log(2.0))


def exp2(x: Term) -> Term:
    return exp2_wide(x.to("float64")).to("float32")


def exp2_biased(x: Term) -> Term:
    """x rounded to a whole number as the exponent's bits of a float32; 2^-127 is denormal, and has none of them."""
    exponent = (x + _WHOLE).bits() << _FRACTION_SINGLE
    power = choose(x <= 0.5, 1 << (_FRACTION_SINGLE - 1), exponent).bits()
    return choose(x < -0.5, math.nan, choose(x <= 254.5, power, math.nan))


def log2(x: Term) -> Term:
    return log_wide(x.to("float64")).to("float32")


def log10(x: Term) -> Term:
    return log_wide(x.to("float64"), math.log10(2.0)).to("float32")


def power(x: Term, y: Term) -> Term:
    """x to the power of y, with the special values of C (ISO C, F.10.4.4), as in PyTorch."""
    a, wide = x.abs(), y.to("float64")
    size = exp2_wide(wide * log_wide(a.to("float64"))).to("float32")
    # 1 to any power is 1, an infinite one, too.
    size = choose(a.equals(1.0), 1.0, size)
    half = wide * 0.5
    whole = y.floor().equals(y)
    odd = whole & half.floor().differs(half)
    negative = is_negative(x)
    size = choose(negative & odd, -size, size)
    # A negative number has whole powers only, and -infinity all.
    size = choose((x < 0.0) & limit_below(x, -math.inf) & y.floor().differs(y), math.nan, size)
    return choose(y.equals(0.0) | x.equals(1.0), 1.0, size)


def expm1(x: Term) -> Term:
    """2^n (e^r - 1) + (2^n - 1) with x = n ln 2 + r; all by half, so that 2^128 does not overflow.

    The rounding error of e^r - 1 counts most for n = 1 and n = -1, where the sum is smaller: r is chosen so that e^r -
    1 is within 1/4 and 1/2 there, and its error at most a quarter of a unit in the last place of the sum.
    """
    t = at_least(at_most(x, 89.0), -25.0)
    biased = fused(t, constant(_LOG2E, "float32"), -_LOWERED) + _ROUND_SINGLE
    n = biased - _ROUND_SINGLE
    r = fused(n, constant(-_LN2_LO, "float32"), fused(n, constant(-_LN2_HI, "float32"), t))
    p = fused(r * r, polynomial(r, _EXPM1), r)
    half = ((biased.bits() << _FRACTION_SINGLE) + (126 << _FRACTION_SINGLE)).bits()
    less = half - 0.5
    # The rounding error of that (Dekker, 1971), which counts besides the product.
    scaled = fused(half, p, (half - less) - 0.5) + less
    # Half of a denormal number may not be representable, and -0 stays -0.
    return choose(x.abs() < _TINY, x, scaled + scaled)


def log1p(x: Term) -> Term:
    """log(u) + c / u, with u = 1 + x rounded and c its rounding error."""
    u = x + 1.0
    c = choose(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    exponent = (u.bits() - _SQRT_HALF_BITS_SINGLE) >> _FRACTION_SINGLE
    f = (u.bits() - (exponent << _FRACTION_SINGLE)).bits() - 1.0
    e = (exponent + 0x4B400000).bits() - _ROUND_SINGLE
    f2 = f * f
    low = fused(f2 * f, polynomial(f, LOG1P), fused(e, constant(_LN2_LO, "float32"), c / u))
    low = fused(f2, constant(-0.5, "float32"), low)
    # The first product is exact, so that this is the rounding error of the sum (Dekker, 1971).
    upper = e * _LN2_HI
    total = upper + f
    log = total + (low + (f - (total - upper)))
    # If 1 + x rounds to 1, the result is x itself; so it is for infinity and NaN.
    log = choose(u.equals(1.0), x, choose(u < math.inf, log, u))
    return choose(u.equals(0.0), -math.inf, choose(u < 0.0, math.nan, log))


def sinh(x: Term) -> Term:
    e = exp_wide(at_most(x.abs(), 100.0).to("float64"))
    return odd(x, (e - 1.0 / e) * 0.5)


def cosh(x: Term) -> Term:
    e = exp_wide(at_most(x.abs(), 100.0).to("float64"))
    return ((e + 1.0 / e) * 0.5).to("float32")


def asinh(x: Term) -> Term:
    a = x.abs().to("float64")
    return odd(x, ln_wide(a + (a * a + 1.0).sqrt()))


def acosh(x: Term) -> Term:
    """Inverse hyperbolic cosine: the square of a float32 is exact in float64, so nothing cancels near 1."""
    wide = x.to("float64")
    return choose(x < 1.0, math.nan, ln_wide(wide + (wide * wide - 1.0).sqrt()).to("float32"))


def atanh(x: Term) -> Term:
    a = x.abs().to("float64")
    return odd(x, ln_wide((a + 1.0) / (1.0 - a)) * 0.5)


def odd(x: Term, far: Term) -> Term:
    """An odd function that is x near 0; `far`: its value at |x| elsewhere, in float64."""
    return choose(x.abs() < SMALL, x, with_sign_of(far.to("float32"), x))
