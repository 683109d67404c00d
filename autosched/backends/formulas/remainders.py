"""The exact remainder of a division."""

from __future__ import annotations

import math

from autosched.backends.formulas.terms import Term, choose, with_sign_of

# Bits of the quotient that one step removes: their product with a divisor of 24 bits is exact in float64, even if the
# quotient is too large by one.
_STEP = 28
# From the largest float32 to the smallest there are 277 powers of two.
_STEPS = 10


def fmod(x: Term, y: Term) -> Term:
    """The remainder of x after whole multiples of y, with the sign of x: long division, exact as C's (ISO C, F.10.7.1).

    In every step the divisor is y times a power of two, and the rest below 2^28 times that. A quotient of float64 may
    be the next integer: then the rest is off by one divisor, which is corrected. Rests are multiples of the unit in the
    last place of x or of the divisor, and below 2^24 of the larger one: nothing is rounded.
    """
    rest, size = x.abs().to("float64"), y.abs().to("float64")
    inverse = 1.0 / size
    for step in reversed(range(_STEPS)):
        scale = 2.0 ** (_STEP * step)
        divisor = size * scale if step else size
        quotient = (rest * (inverse * (1.0 / scale) if step else inverse)).floor()
        rest = rest - quotient * divisor
        rest = choose(rest < 0.0, rest + divisor, rest)
        rest = choose(divisor <= rest, rest - divisor, rest)
    value = with_sign_of(rest.to("float32"), x)
    # An infinite divisor leaves all of it.
    value = choose(y.abs().equals(math.inf) & (x.abs() < math.inf), x, value)
    return choose(y.equals(0.0) | x.differs(x) | y.differs(y), math.nan, value)
