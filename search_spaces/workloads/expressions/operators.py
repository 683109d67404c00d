"""The pointwise operators of expressions: their costs, and the kinds of their arguments."""

from __future__ import annotations

from collections.abc import Mapping

# name -> (number of arguments, floating-point operations charged for one element).
# Transcendental functions are charged the cost of evaluating them: a polynomial of 10 to 20 operations, or several.
OPERATORS: Mapping[str, tuple[int, int]] = {
    "add": (2, 1),
    "sub": (2, 1),
    "mul": (2, 1),
    "div": (2, 4),
    "maximum": (2, 1),
    "minimum": (2, 1),
    "neg": (1, 1),
    "abs": (1, 1),
    "exp": (1, 12),
    "log": (1, 14),
    "sqrt": (1, 6),
    "rsqrt": (1, 6),
    "tanh": (1, 14),
    "erf": (1, 18),
    "erf_relative": (1, 24),
    "sin": (1, 18),
    "cos": (1, 18),
    "exp2": (1, 12),
    "exp2_normal": (1, 12),
    "exp2_biased": (1, 6),
    "log2": (1, 18),
    "log10": (1, 18),
    "expm1": (1, 16),
    "log1p": (1, 20),
    "pow": (2, 40),
    "sinh": (1, 20),
    "cosh": (1, 20),
    "asinh": (1, 24),
    "acosh": (1, 24),
    "atanh": (1, 24),
    "tan": (1, 50),
    "asin": (1, 24),
    "acos": (1, 24),
    "atan": (1, 24),
    "atan2": (2, 30),
    "hypot": (2, 6),
    "erfc": (1, 36),
    "erfcx": (1, 36),
    "lgamma": (1, 80),
    "digamma": (1, 80),
    "fmod": (2, 60),
    "floor": (1, 1),
    "lt": (2, 1),
    "le": (2, 1),
    "eq": (2, 1),
    "where": (3, 1),
    "round_float16": (1, 1),
    "round_bfloat16": (1, 1),
    "round_float8_e4m3fn": (1, 1),
    "round_float8_e5m2": (1, 1),
    "to_integer": (1, 1),
    "to_float": (1, 1),
    "quotient": (2, 20),
    "bitwise_and": (2, 1),
    "bitwise_or": (2, 1),
    "bitwise_xor": (2, 1),
    "shift_left": (2, 1),
    "shift_right": (2, 1),
    "wrap_int32": (1, 1),
    "wrap_int16": (1, 1),
    "wrap_int8": (1, 1),
    "wrap_uint8": (1, 1),
}
# The operators that round, and the narrower element type that they round to.
ROUNDINGS: Mapping[str, str] = {
    f"round_{name}": name for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
}
# The same for integers: the operators that keep the lower bits, as an integer of that element type.
WRAPPINGS: Mapping[str, str] = {f"wrap_{name}": name for name in ("int32", "int16", "int8", "uint8")}
# Operators on integers alone (`quotient` is cut towards 0), on one kind or the other, and of either kind to a truth.
OF_INTEGERS = frozenset(
    {"quotient", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", *WRAPPINGS}
)
OF_EITHER = frozenset({"add", "sub", "mul", "neg", "abs", "maximum", "minimum", "where"})
COMPARISONS = frozenset({"lt", "le", "eq"})
# The integers that a value can be.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
