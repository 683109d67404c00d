"""The logarithm of the gamma function, its derivative, and the complementary error function, computed in float64."""

from __future__ import annotations

import math

from autosched.backends.formulas.exponentials import exp_wide, ln_wide
from autosched.backends.formulas.terms import Term, at_most, choose, constant, is_negative, polynomial

# lgamma(2 + d) / (d (1 + d)) on |d| <= 1/2; relative error 2^-41.
_NEAR_TWO = (
    0.4227843350984836,
    -0.10031730167072185,
    0.03296500061468594,
    -0.012384192597821083,
    0.004998641577279263,
    -0.0021081179916611907,
    0.0009153670855185487,
    -0.00040588151854876163,
    0.00018266383553975792,
    -8.1956004348644e-05,
    3.752889578958649e-05,
    -2.1172335855459044e-05,
    1.0012206951733059e-05,
)
# Stirling's series: (lgamma(w) - (w - 1/2) log w + w - log(2 pi) / 2) w, in 1/w^2 (Abramowitz and Stegun, 6.1.41). From
# w = 8 on the next term is below 2^-49.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
# w^2 (log w - 1/(2 w) - digamma(w)), in 1/w^2 (Abramowitz and Stegun, 6.3.18).
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# sin(pi f) / f as a polynomial in f^2, |f| <= 1/2; relative error 2^-61.
_SIN_PI = (
    3.141592653589793,
    -5.167712780049969,
    2.550164039877294,
    -0.5992645293187382,
    0.0821458865698926,
    -0.007370430478762461,
    0.0004662996887731736,
    -2.1903185420805378e-05,
    7.69472732830679e-07,
)
# (1 + 2 x) exp(x^2) erfc(x) as a polynomial in (x - 3) / (x + 3), from 0 to infinity; relative error 2^-33.
_ERFC = (
    1.2530080582625038,
    -0.13562110446414116,
    -0.04756229369396058,
    0.12964509596157567,
    -0.11927367395795767,
    0.06830871584756909,
    -0.023770445592894304,
    0.002526035045262951,
    0.0018884456108391036,
    -0.0007713137007246302,
    -0.00010463814109557443,
    0.00011319590106285007,
    4.242827393406884e-06,
    -1.1041136512911443e-05,
    -1.1177272165116388e-07,
)
# erfc rounds to 0 in float32 from 10.06 on.
_ERFC_END = 10.1
_ROUND = 1.5 * 2.0**52
# Stirling's series is used from here on; then the steps by which a smaller argument is raised: that of lgamma is 2.5 at
# least.
_STIRLING_FROM = 8.0
_RAISED, _RAISED_OF_DIGAMMA = 6, 8


def erfc(x: Term) -> Term:
    a = at_most(x.abs(), _ERFC_END).to("float64")
    upper = _scaled_erfc(a) * exp_wide(-(a * a))
    return choose(is_negative(x), 2.0 - upper, upper).to("float32")


def erfcx(x: Term) -> Term:
    """exp(x^2) erfc(x)."""
    a = x.abs().to("float64")
    upper = _scaled_erfc(a)
    return choose(x < 0.0, exp_wide(a * a) * 2.0 - upper, upper).to("float32")


def _scaled_erfc(a: Term) -> Term:
    """exp(a^2) erfc(a), for a from 0 to infinity."""
    return polynomial(1.0 - 6.0 / (a + 3.0), _ERFC) / (a * 2.0 + 1.0)


def _from_integer(x: Term) -> Term:
    """The difference to the nearest integer of a number in float64 below 2^51; 0 for larger ones, all integers."""
    return choose(x.abs() < 2.0**51, x - ((x + _ROUND) - _ROUND), x * 0.0)


def _is_pole(x: Term) -> Term:
    return (x <= 0.0) & x.floor().equals(x)


def lgamma(x: Term) -> Term:
    """log |gamma(x)|, for arguments below 1/2 by reflection (Abramowitz and Stegun, 6.1.17).

    With z = x or 1 - x, and w = z + 1, z or z + 6, as a polynomial about 2 or Stirling's series needs it, it is
    lgamma(w) - log(w's product) or log(product pi / sin(pi z)) - lgamma(w). Float64 leaves enough digits after
    cancellation near its zeros.
    """
    wide = x.to("float64")
    reflected = wide < 0.5
    z = choose(reflected, 1.0 - wide, wide)
    low, high = z < 1.5, constant(2.5, "float64") < z
    d = choose(low, z - 1.0, z - 2.0)
    near = d * (d + 1.0) * polynomial(d, _NEAR_TWO)
    raised = high & (z < _STIRLING_FROM)
    w = choose(raised, z + float(_RAISED), z)
    inverse = 1.0 / w
    stirling = (w - 0.5) * (ln_wide(w) - 1.0) + (math.log(2 * math.pi) - 1) / 2
    stirling = stirling + inverse * polynomial(inverse * inverse, _STIRLING)
    product = z
    for i in range(1, _RAISED):
        product = product * (z + float(i))
    product = choose(low, z, choose(raised, product, 1.0))
    core = choose(high, stirling, near)
    f = _from_integer(wide).abs()
    log = ln_wide(choose(reflected, product * math.pi / (f * polynomial(f * f, _SIN_PI)), product))
    value = choose(reflected, log - core, core - log).to("float32")
    endless = _is_pole(x) | x.equals(math.inf)
    return choose(endless, math.inf, value)


def digamma(x: Term) -> Term:
    """The derivative of lgamma, for arguments below 1/2 by reflection (Abramowitz and Stegun, 6.3.7)."""
    wide = x.to("float64")
    reflected = wide < 0.5
    z = choose(reflected, 1.0 - wide, wide)
    # The sum of 1 / (z + i), as a quotient.
    product, slope = z, constant(1.0, "float64")
    for i in range(1, _RAISED_OF_DIGAMMA):
        factor = z + float(i)
        product, slope = product * factor, slope * factor + product
    raised = z < _STIRLING_FROM
    w = choose(raised, z + float(_RAISED_OF_DIGAMMA), z)
    inverse = 1.0 / w
    square = inverse * inverse
    value = ln_wide(w) - inverse * 0.5 - square * polynomial(square, _DIGAMMA)
    value = choose(raised, value - slope / product, value)
    f = _from_integer(wide)
    cosine = 0.5 - f.abs()
    tangent = (f * polynomial(f * f, _SIN_PI)) / (cosine * polynomial(cosine * cosine, _SIN_PI))
    value = choose(reflected, value - math.pi / tangent, value).to("float32")
    # As in PyTorch: at 0 an infinity of the other sign, at other poles NaN.
    pole = choose(x.equals(0.0), -1.0 / x, math.nan)
    return choose(_is_pole(x), pole, choose(x.equals(math.inf), x, value))
