"""The pointwise operators of tile programs as C++ expressions of elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from autosched.backends.cuda.language import formulas
from autosched.backends.cuda.language.types import constant, held_dtype, memory_type
from autosched.backends.formulas import FORMULAS
from search_spaces.devices.features import NAN_MAXIMUM, Features
from search_spaces.programs.statements import Map
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.operators import OPERATORS

_POWER_OF_2 = """\
__device__ __forceinline__ float power_of_2(float x) {
    // The hardware's, which takes denormal numbers to be 0.
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
"""
_POWER_OF_2_DENORMAL = """\
__device__ __forceinline__ float power_of_2_or_denormal(float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
"""
_ROOT = """\
__device__ __forceinline__ float reciprocal_root(float x) {
    // The hardware's, which takes denormal numbers to be 0.
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
"""
_QUOTIENT_OF_FLOATS = """\
__device__ __forceinline__ float divided(float x, float y) {
    // Within two units in the last place, for divisors of any size.
    float z;
    asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
"""
_LARGER = """\
__device__ __forceinline__ float larger(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
"""
_SMALLER = """\
__device__ __forceinline__ float smaller(float x, float y) {
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
"""
_LARGER_BY_TESTS = """\
__device__ __forceinline__ float larger(float x, float y) { return x > y || x != x ? x : y; }
"""
_SMALLER_BY_TESTS = """\
__device__ __forceinline__ float smaller(float x, float y) { return x < y || x != x ? x : y; }
"""
_TANH = """\
__device__ __forceinline__ float hyperbolic_tangent(float x) {
    // Near 0 a polynomial, because there the difference cancels. Elsewhere 1 - 2 / (exp(2 x) + 1), by the square of a
    // reciprocal root, which takes fewer instructions; exp may overflow: the root is then 0, as it should.
    const float y = x * x;
    const float p = 0.13332546f + y * (-0.053847853f + y * (0.021052506f - 0.0062460648f * y));
    const float near = x * (1.0f + y * (-0.33333316f + y * p));
    const float root = reciprocal_root(power_of_2(2.885390043258667f * x) + 1.0f);
    return fabsf(x) < 0.55f ? near : 1.0f - 2.0f * (root * root);
}
"""
_ERF = """\
__device__ __forceinline__ float error_function(float x) {
    // 1 - erf(a) = 2^(-a p(a)): one polynomial for every a up to where erf rounds to 1. NaN stays NaN.
    const float a = fabsf(x) > 3.95f ? 3.95f : fabsf(x);
    float p = 0.0023022927f + a * (0.00046155107f - 0.00010021780f * a);
    p = 1.6279137f + a * (0.91832864f + a * (0.14896370f + a * (-0.029452579f + a * p)));
    return copysignf(1.0f - power_of_2(-a * p), x);
}
"""
_ERF_RELATIVE = """\
__device__ __forceinline__ float error_function_near_0(float x) {
    // As erf from 1 on, and a polynomial near 0, where what is 1 less something has few places left.
    const float y = x * x;
    const float q = -0.026711352f + y * (0.0049176510f - 0.00056319393f * y);
    const float near = x + x * (0.12837912f + y * (-0.37612325f + y * (0.11280178f + y * q)));
    const float a = fabsf(x) > 3.95f ? 3.95f : fabsf(x);
    float p = 0.0023022927f + a * (0.00046155107f - 0.00010021780f * a);
    p = 1.6279137f + a * (0.91832864f + a * (0.14896370f + a * (-0.029452579f + a * p)));
    return a < 1.0f ? near : copysignf(1.0f - power_of_2(-a * p), x);
}
"""
_DIV_BY_SUM = """\
__device__ __forceinline__ float divided_by_sum(float x, float y) {
    // By the hardware's root of a number that is positive and not denormal; its square may be denormal.
    const float root = reciprocal_root(y);
    return x * (root * root);
}
"""
_QUOTIENT = """\
__device__ __forceinline__ int64 quotient(int64 x, int64 y) {
    // By 0 the dividend; by -1 without a division, which -2^63 overflows.
    return y == -1 ? int64(-uint64(x)) : x / (y == 0 ? 1 : y);
}
"""
_SHIFT_LEFT = """\
__device__ __forceinline__ int64 shift_left(int64 x, int64 y) {
    return y < 0 || y > 63 ? 0 : int64(uint64(x) << (y & 63));
}
"""
_SHIFT_RIGHT = """\
__device__ __forceinline__ int64 shift_right(int64 x, int64 y) { return x >> (y < 0 || y > 63 ? 63 : y); }
"""
_ROUNDED = """\
template <typename T>
__device__ __forceinline__ float rounded(float x) {
    T y;
    narrowed(x, y);
    return widened(y);
}
"""

# Functions of the module that operators use, each after those that it uses itself.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "exp": ("power_of_2_or_denormal",),
    "exp2": ("power_of_2_or_denormal",),
    "exp_or_0": ("power_of_2",),
    "exp2_normal": ("power_of_2",),
    "tanh": ("power_of_2", "reciprocal_root", "tanh"),
    "erf": ("power_of_2", "erf"),
    "erf_relative": ("power_of_2", "erf_relative"),
    "div": ("div",),
    "div_by_sum": ("reciprocal_root", "div_by_sum"),
    "maximum": ("larger",),
    "minimum": ("smaller",),
    "max": ("larger",),
    "min": ("smaller",),
    "quotient": ("quotient",),
    "shift_left": ("shift_left",),
    "shift_right": ("shift_right",),
    "cast": ("rounded",),
    "round_bfloat16": ("rounded",),
}
_FUNCTIONS: Mapping[str, str] = {
    "power_of_2": _POWER_OF_2,
    "power_of_2_or_denormal": _POWER_OF_2_DENORMAL,
    "reciprocal_root": _ROOT,
    "div": _QUOTIENT_OF_FLOATS,
    "larger": _LARGER,
    "smaller": _SMALLER,
    "tanh": _TANH,
    "erf": _ERF,
    "erf_relative": _ERF_RELATIVE,
    "div_by_sum": _DIV_BY_SUM,
    "quotient": _QUOTIENT,
    "shift_left": _SHIFT_LEFT,
    "shift_right": _SHIFT_RIGHT,
    "rounded": _ROUNDED,
}
_OLDER = {"larger": _LARGER_BY_TESTS, "smaller": _SMALLER_BY_TESTS}

_OF_FLOATS: Mapping[str, Callable[..., str]] = {
    "add": lambda a, b: f"{a} + {b}",
    "sub": lambda a, b: f"{a} - {b}",
    "mul": lambda a, b: f"{a} * {b}",
    "div": lambda a, b: f"divided({a}, {b})",
    "maximum": lambda a, b: f"larger({a}, {b})",
    "minimum": lambda a, b: f"smaller({a}, {b})",
    "neg": lambda a: f"-({a})",
    "abs": lambda a: f"fabsf({a})",
    "exp": lambda a: f"power_of_2_or_denormal({a} * 1.4426950408889634f)",
    "exp_or_0": lambda a: f"power_of_2({a} * 1.4426950408889634f)",
    "exp2_normal": lambda a: f"power_of_2({a})",
    "exp2": lambda a: f"power_of_2_or_denormal({a})",
    "log": lambda a: f"logf({a})",
    "sqrt": lambda a: f"sqrtf({a})",
    "rsqrt": lambda a: f"rsqrtf({a})",
    "tanh": lambda a: f"hyperbolic_tangent({a})",
    "erf": lambda a: f"error_function({a})",
    "erf_relative": lambda a: f"error_function_near_0({a})",
    "div_by_sum": lambda a, b: f"divided_by_sum({a}, {b})",
    "sin": lambda a: f"sinf({a})",
    "cos": lambda a: f"cosf({a})",
    "floor": lambda a: f"floorf({a})",
    "round_bfloat16": lambda a: f"rounded<bfloat16>({a})",
    "lt": lambda a, b: f"{a} < {b} ? 1.0f : 0.0f",
    "le": lambda a, b: f"{a} <= {b} ? 1.0f : 0.0f",
    "eq": lambda a, b: f"{a} == {b} ? 1.0f : 0.0f",
    "where": lambda c, a, b: f"{c} != 0 ? {a} : {b}",
}
_OF_DOUBLES: Mapping[str, Callable[..., str]] = {
    "div": lambda a, b: f"{a} / {b}",
    "maximum": lambda a, b: f"{a} > {b} || {a} != {a} ? {a} : {b}",
    "minimum": lambda a, b: f"{a} < {b} || {a} != {a} ? {a} : {b}",
    "abs": lambda a: f"fabs({a})",
    "sqrt": lambda a: f"sqrt({a})",
    "rsqrt": lambda a: f"1.0 / sqrt({a})",
    "floor": lambda a: f"floor({a})",
    "exp": lambda a: f"exp({a})",
    "log": lambda a: f"log({a})",
}


def _of_integers(signed: str, unsigned: str) -> Mapping[str, Callable[..., str]]:
    """Operators on integers: sums, differences and products wrap around, unlike those of C++'s signed numbers."""
    return {
        "add": lambda a, b: f"{signed}({unsigned}({a}) + {unsigned}({b}))",
        "sub": lambda a, b: f"{signed}({unsigned}({a}) - {unsigned}({b}))",
        "mul": lambda a, b: f"{signed}({unsigned}({a}) * {unsigned}({b}))",
        "neg": lambda a: f"{signed}(-{unsigned}({a}))",
        "abs": lambda a: f"{signed}({a} < 0 ? -{unsigned}({a}) : {unsigned}({a}))",
        "maximum": lambda a, b: f"{a} > {b} ? {a} : {b}",
        "minimum": lambda a, b: f"{a} < {b} ? {a} : {b}",
        "quotient": lambda a, b: f"quotient({a}, {b})",
        "shift_left": lambda a, b: f"shift_left({a}, {b})",
        "shift_right": lambda a, b: f"shift_right({a}, {b})",
        "bitwise_and": lambda a, b: f"{a} & {b}",
        "bitwise_or": lambda a, b: f"{a} | {b}",
        "bitwise_xor": lambda a, b: f"{a} ^ {b}",
    }


_BY_TYPE: Mapping[str, Mapping[str, Callable[..., str]]] = {
    "float32": _OF_FLOATS,
    "float64": {**_OF_FLOATS, **_OF_DOUBLES},
    "int32": {**_OF_FLOATS, **_of_integers("int", "uint32")},
    "int64": {**_OF_FLOATS, **_of_integers("int64", "uint64")},
}
# Folds, by the operators that they fold with.
_FOLDED = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}


def apply(operator: str, arguments: Sequence[str], computed: str) -> str:
    """The operator applied to printed elements of its type of computation, each a name or a constant."""
    table = _BY_TYPE[computed]
    if operator in table:
        return table[operator](*arguments)
    return f"formula_{operator}({', '.join(arguments)})"


def fold(operator: str, a: str, b: str, held: str) -> str:
    """Two elements of a fold joined."""
    return apply(_FOLDED[operator], [a, b], held)


def converted(text: str, source: str, wanted: str) -> str:
    """An element of a tile of type `source` as one of type `wanted`: rounded, cut towards 0, or to its lower bits."""
    if source == wanted:
        return text
    if wanted == "bool":
        return f"({text} != 0 ? 1.0f : 0.0f)"
    held, goal = held_dtype(source), held_dtype(wanted)
    if is_integer(wanted) and wanted not in ("int32", "int64"):
        whole = text if is_integer(source) else f"int64({text})"
        return f"int({memory_type(wanted)}({whole}))"
    if held != goal:
        types = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64"}
        text = f"{types[goal]}({text})"
    if goal == "float32" and wanted != "float32":
        text = f"rounded<{memory_type(wanted)}>({text})"
    return text


def mapped(s: Map, arguments: Sequence[tuple[str, str] | float | int]) -> str:
    """The value of a pointwise statement of one element, given as text and type, or as a number."""
    computed = s.dst.dtype if s.operator == "cast" else s.computed
    values = []
    for place, argument in enumerate(arguments):
        if not isinstance(argument, tuple):
            values.append(number(argument, computed))
            continue
        text, dtype = argument
        is_condition = s.operator == "where" and place == 0
        values.append(_operand(converted(text, dtype, held_dtype(dtype) if is_condition else computed)))
    if s.operator == "cast":
        return values[0]
    return converted(_operand(apply(s.operator, values, computed)), computed, s.dst.dtype)


def _operand(text: str) -> str:
    """The text as an operand of any operator."""
    return f"({text})" if "?" in text and not text.startswith("(") else text


def number(value: float | int, dtype: str) -> str:
    """A constant as an argument: in parentheses if it begins with a sign."""
    text = constant(value, dtype)
    return f"({text})" if text.startswith("-") else text


def functions(used: Collection[str], features: Features) -> list[str]:
    """The functions of a module that applies these operators, or folds by them."""
    needed = {name for operator in used for name in _NEEDED.get(operator, ())}
    own = _FUNCTIONS if features.has(NAN_MAXIMUM) else {**_FUNCTIONS, **_OLDER}
    texts = [text for name, text in own.items() if name in needed]
    made = (name for name in FORMULAS if name in used and name not in _OF_FLOATS)
    return texts + [formulas.function(f"formula_{n}", FORMULAS[n], OPERATORS[n][0]) for n in made]
