"""Functions of float32 numbers in tile programs that no backend computes accurately enough: one definition each.

A formula defines the computation of a function, in terms that every backend prints (its module `formulas`). The
accuracy of each is in `autosched.checking.accuracy`. Nothing here knows a backend, a tile or a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.backends.formulas import angles, exponentials, gamma, remainders
from autosched.backends.formulas.terms import Term

# By the name of the operator in `search_spaces.workloads.expressions.operators.OPERATORS`.
FORMULAS: Mapping[str, Callable[..., Term]] = {
    "exp2": exponentials.exp2,
    "exp2_normal": exponentials.exp2,
    "exp2_biased": exponentials.exp2_biased,
    "log2": exponentials.log2,
    "log10": exponentials.log10,
    "expm1": exponentials.expm1,
    "log1p": exponentials.log1p,
    "pow": exponentials.power,
    "sinh": exponentials.sinh,
    "cosh": exponentials.cosh,
    "asinh": exponentials.asinh,
    "acosh": exponentials.acosh,
    "atanh": exponentials.atanh,
    "tan": angles.tan,
    "asin": angles.asin,
    "acos": angles.acos,
    "atan": angles.atan,
    "atan2": angles.atan2,
    "hypot": angles.hypot,
    "erfc": gamma.erfc,
    "erfcx": gamma.erfcx,
    "lgamma": gamma.lgamma,
    "digamma": gamma.digamma,
    "fmod": remainders.fmod,
}
