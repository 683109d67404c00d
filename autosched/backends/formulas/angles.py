"""Trigonometric functions and their inverses, computed in float64 and rounded once to float32."""

from __future__ import annotations

import math

from autosched.backends.formulas.exponentials import odd
from autosched.backends.formulas.terms import (
    Term,
    choose,
    constant,
    fused,
    is_negative,
    polynomial,
    with_sign_of,
)

# sin(r) / r and cos(r) as polynomials in r^2, |r| <= pi/4; relative errors 2^-37 and 2^-34.
_SIN = (0.9999999999954505, -0.16666666630446395, 0.00833332869016045, -0.00019839178356922257, 2.717152812482594e-06)
_COS = (0.9999999999439411, -0.49999999571549975, 0.04166661323293191, -0.0013886529135709452, 2.4372678409477188e-05)
# atan(u) / u as a polynomial in u^2, 0 <= u <= 1; relative error 2^-42.
_ATAN = (
    0.99999999999976,
    -0.333333333221672,
    0.19999999135164304,
    -0.1428568772423647,
    0.11110681099464331,
    -0.0908667898390805,
    0.07664808160940786,
    -0.0654190576273232,
    0.05472022631295074,
    -0.04256051350455243,
    0.028694071761147445,
    -0.015466518152918579,
    0.006062786730706157,
    -0.0015068927667091275,
    0.0001761769919988112,
)
# 2/pi in pieces of 24 bits, for numbers below 2^51, from there on below 2^77, below 2^103, and all others. Numbers of
# the last two ranges are scaled by 2^-26 and 2^-52, and the pieces up by as much; the leading bits of 2/pi that are
# left out contribute multiples of 4 for all numbers of the range (Payne and Hanek, "Radian reduction for trigonometric
# functions", 1983).
_WINDOWS = (
    ("0x1.45f306p-1", "0x1.b9391p-26", "0x1.529fcp-52", "0x1.3abe88p-75", "0x1.ea69bap-97"),
    ("0x1.72722p-27", "0x1.529fcp-52", "0x1.3abe8ep-75", "0x1.a9a6eep-99", "0x1.b6c5p-129"),
    ("0x1.4a7f08p-28", "0x1.d5f47cp-52", "0x1.4d377p-76", "0x1.b6c52p-103", "0x1.664f1p-124"),
    ("0x1.abe8fap-27", "0x1.34ddcp-52", "0x1.b6c528p-77", "0x1.993c4p-100", "0x1.c820fep-123"),
)
_ENDS = (2.0**51, 2.0**77, 2.0**103)
# Adding 1.5 * 2^52 rounds to the nearest integer, which is then in the low bits.
_ROUND = 1.5 * 2.0**52
_HALF_PI = math.pi / 2


def _reduced(x: Term) -> tuple[Term, Term]:
    """r within pi/4 of 0 and an integer n with x = r + n pi/2, up to multiples of 2 pi, for any finite float32.

    Products with the pieces are exact. No float32 but 0 is nearer than 2^-30 to a multiple of pi/2, and the last piece
    ends 2^-69 below 1 in the sum.
    """
    a, wide = x.abs(), x.to("float64")
    scaled = choose(a < _ENDS[1], wide, choose(a < _ENDS[2], wide * 2.0**-26, wide * 2.0**-52))
    parts = []
    for pieces in zip(*_WINDOWS, strict=True):
        first, second, third, last = (constant(float.fromhex(p), "float64") for p in pieces)
        piece = choose(a < _ENDS[0], first, choose(a < _ENDS[1], second, choose(a < _ENDS[2], third, last)))
        parts.append(scaled * piece)
    biased = [p + _ROUND for p in parts[:3]]
    first, second, third = (p - (n - _ROUND) for p, n in zip(parts, biased, strict=False))
    upper = first + second
    turned = (upper + third) + _ROUND
    r = ((upper - (turned - _ROUND)) + third) + (parts[3] + parts[4])
    quadrant = biased[0].bits() + biased[1].bits() + biased[2].bits() + turned.bits()
    return r * _HALF_PI, quadrant


def sin(x: Term) -> Term:
    return _sine(x, 0)


def cos(x: Term) -> Term:
    return _sine(x, 1)


def _sine(x: Term, quarters: int) -> Term:
    """sin(x + quarters * pi/2). -0 stays -0, which a sum of products does not."""
    r, quadrant = _reduced(x)
    turned = quadrant + quarters if quarters else quadrant
    value = choose((turned << 63) < 0, polynomial(r * r, _COS), r * polynomial(r * r, _SIN))
    value = choose((turned << 62) < 0, -value, value).to("float32")
    return value if quarters else choose(x.equals(0.0), x, value)


def tan(x: Term) -> Term:
    r, quadrant = _reduced(x)
    y = r * r
    sine, cosine = r * polynomial(y, _SIN), polynomial(y, _COS)
    is_odd = (quadrant << 63) < 0
    value = choose(is_odd, -cosine, sine) / choose(is_odd, sine, cosine)
    return choose(x.equals(0.0), x, value.to("float32"))


def _angle(opposite: Term, adjacent: Term) -> Term:
    """The angle of a right triangle by its legs, which are not negative nor both 0 or infinite: 0 to pi/2."""
    steep = adjacent < opposite
    u = choose(steep, adjacent, opposite) / choose(steep, opposite, adjacent)
    angle = u * polynomial(u * u, _ATAN)
    return choose(steep, _HALF_PI - angle, angle)


def atan(x: Term) -> Term:
    a = x.abs().to("float64")
    return odd(x, _angle(a, constant(1.0, "float64")))


def asin(x: Term) -> Term:
    """Arc sine: the square of a float32 is exact in float64, so nothing cancels near 1."""
    a = x.abs().to("float64")
    return odd(x, _angle(a, (1.0 - a * a).sqrt()))


def acos(x: Term) -> Term:
    a = x.abs().to("float64")
    angle = _angle((1.0 - a * a).sqrt(), a)
    return choose(x < 0.0, math.pi - angle, angle).to("float32")


def atan2(y: Term, x: Term) -> Term:
    """The angle of the point (x, y), with the special values of C (ISO C, F.10.1.4)."""
    opposite, adjacent = y.abs(), x.abs()
    # Both 0: as (1, 0). Both infinite: as (1, 1).
    none = opposite.equals(0.0) & adjacent.equals(0.0)
    endless = opposite.equals(math.inf) & adjacent.equals(math.inf)
    opposite, adjacent = choose(endless, 1.0, opposite), choose(endless | none, 1.0, adjacent)
    angle = _angle(opposite.to("float64"), adjacent.to("float64"))
    angle = choose(is_negative(x), math.pi - angle, angle)
    nan = x.differs(x) | y.differs(y)
    return choose(nan, math.nan, with_sign_of(angle.to("float32"), y))


def hypot(x: Term, y: Term) -> Term:
    """Length of the hypotenuse: infinite if either leg is, even if the other is NaN."""
    a, b = x.to("float64"), y.to("float64")
    size = fused(a, a, b * b).sqrt().to("float32")
    endless = x.abs().equals(math.inf) | y.abs().equals(math.inf)
    return choose(endless, math.inf, size)
