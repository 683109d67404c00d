"""The pointwise operators of tile programs as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.backends.formulas import FORMULAS, angles
from autosched.backends.formulas.terms import Term, argument
from autosched.backends.llvm.ir import float8, formulas, integers, vector_math
from autosched.backends.llvm.ir.text import F16, F32, Builder, IRValue
from autosched.backends.llvm.ir.values import (
    bfloat16_bits,
    condition,
    float_constant,
    int_constant,
    is_constant,
    truth,
    unary,
    vector,
)
from search_spaces.programs.statements import Map
from search_spaces.workloads.dtypes import is_integer

# A product and a sum may become one fused multiply-add; nothing else may be reordered or assumed. A difference from a
# product may not: x·s - max(x·s) would be above 0, and its exp without bound, where x is large.
_FUSED = {"add": "fadd contract", "sub": "fsub", "mul": "fmul contract"}


def apply(b: Builder, operator: str, x: Sequence[IRValue], lanes: int) -> IRValue:
    """The operator on values of type <lanes x float>."""
    match operator:
        case "add" | "sub" | "mul":
            return b.binary(_FUSED[operator], x[0], x[1])
        case "div":
            return b.fdiv(x[0], x[1])
        case "maximum":
            return _extreme(b, ">", x[0], x[1])
        case "minimum":
            return _extreme(b, "<", x[0], x[1])
        case "lt":
            return truth(b, b.fcmp_ordered("<", x[0], x[1]), lanes)
        case "le":
            return truth(b, b.fcmp_ordered("<=", x[0], x[1]), lanes)
        case "eq":
            return truth(b, b.fcmp_ordered("==", x[0], x[1]), lanes)
        case "where":
            return b.select(condition(b, x[0], lanes), x[1], x[2])
        case "neg":
            return b.fneg(x[0])
        case "abs" | "sqrt" | "floor":
            return unary(b, "fabs" if operator == "abs" else operator, x[0], lanes)
        case "rsqrt":
            return b.fdiv(float_constant(1.0, lanes), unary(b, "sqrt", x[0], lanes))
        case "exp":
            return vector_math.exp(b, x[0], lanes)
        case "exp2_normal":
            return vector_math.exp2_normal(b, x[0], lanes)
        case "log":
            return vector_math.log(b, x[0], lanes)
        case "tanh":
            return vector_math.tanh(b, x[0], lanes)
        case "erf" | "erf_relative":
            return vector_math.erf(b, x[0], lanes)
        case "sin":
            return _of_any_size(b, vector_math.sin(b, x[0], lanes), angles.sin, x[0], lanes)
        case "cos":
            return _of_any_size(b, vector_math.cos(b, x[0], lanes), angles.cos, x[0], lanes)
        case _:
            arguments = [argument(i) for i in range(len(x))]
            return formulas.emit(b, FORMULAS[operator](*arguments), x, lanes)


def _of_any_size(b: Builder, near: IRValue, formula: Callable[[Term], Term], x: IRValue, lanes: int) -> IRValue:
    """The value `near` 0, and that of a formula for x too large for the reduction of the polynomials.

    As such numbers are rare, a branch tests for them first.
    """
    limit = float_constant(vector_math.SIN_LIMIT, lanes)
    is_large = b.fcmp_ordered("<=", limit, unary(b, "fabs", x, lanes))
    before, large, after = b.block, b.append_basic_block("large"), b.append_basic_block("large.end")
    b.cbranch(_any(b, is_large, lanes), large, after)
    b.position_at_end(large)
    value = b.select(is_large, formulas.emit(b, formula(argument(0)), [x], lanes), near)
    end = b.block
    b.branch(after)
    b.position_at_end(after)
    result = b.phi(x.type)
    result.add_incoming(near, before)
    result.add_incoming(value, end)
    return result


def _extreme(b: Builder, comparison: str, x: IRValue, y: IRValue) -> IRValue:
    """The larger or smaller one; NaN if either is, as in relu(NaN)."""
    # "Unordered or greater" lets a NaN on the left through; a constant on the right is none.
    chosen = _chosen(b, comparison, x, y)
    return chosen if is_constant(y) else b.select(b.fcmp_unordered("uno", y, y), y, chosen)


def _chosen(b: Builder, comparison: str, x: IRValue, y: IRValue) -> IRValue:
    """x where the comparison with y holds or either is NaN, else y: one instruction on x86."""
    return b.select(b.fcmp_unordered(comparison, x, y), x, y)


def folded(b: Builder, reduction: str, value: IRValue, before: IRValue, lanes: int) -> IRValue:
    """One step of a reduction. A maximum or minimum forgets NaN: see `found_nan`."""
    if integers.is_integral(value):
        return integers.folded(b, reduction, value, before, lanes)
    match reduction:
        case "sum" | "prod":
            return b.binary(_FUSED["add" if reduction == "sum" else "mul"], value, before)
        case "max" | "min":
            return _chosen(b, ">" if reduction == "max" else "<", value, before)
        case _:
            raise KeyError(reduction)


def found_nan(b: Builder, value: IRValue, before: IRValue) -> IRValue:
    """The value where it is NaN, else the former one: kept besides a maximum, whose steps do not wait for it."""
    return b.select(b.fcmp_unordered("uno", value, value), value, before)


def any_nan(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """True if any lane is NaN."""
    return _any(b, b.fcmp_unordered("uno", x, x), lanes)


def _any(b: Builder, condition: IRValue, lanes: int) -> IRValue:
    """True if a condition holds in any lane."""
    bits = f"i{lanes}"
    return b.icmp_signed("!=", b.bitcast(condition, bits), IRValue(bits, "0"))


def mapped(b: Builder, s: Map, value_of: Callable[[str], IRValue], lanes: int) -> IRValue:
    """The result of a statement on values, which are <lanes x float> or <lanes x i64>."""
    if s.operator == "cast":
        (argument,) = s.arguments
        value = value_of(argument) if isinstance(argument, str) else float_constant(argument, lanes)
        return converted(b, value, s.dst.dtype, lanes)
    operands = integers.operands(b, s, value_of, lanes)
    of_integers = is_integer(s.computed)
    return (integers.apply if of_integers else apply)(b, s.operator, operands, lanes)


def converted(b: Builder, value: IRValue, dtype: str, lanes: int) -> IRValue:
    """The value converted to `dtype` and widened again: rounded, cut towards 0, or to its lower bits."""
    if is_integer(dtype):
        whole = value if integers.is_integral(value) else integers.from_float(b, value, lanes)
        return integers.wrapped(b, whole, dtype, lanes)
    number = integers.to_float(b, value, lanes) if integers.is_integral(value) else value
    return round_value(b, number, dtype, lanes)


def round_value(b: Builder, value: IRValue, dtype: str, lanes: int) -> IRValue:
    """The float32 value rounded to `dtype` and widened again."""
    match dtype:
        case "float16":
            return b.fpext(b.fptrunc(value, vector(F16, lanes)), vector(F32, lanes))
        case "bfloat16":
            kept = b.and_(bfloat16_bits(b, value, lanes), int_constant(-65536, lanes))
            return b.bitcast(kept, vector(F32, lanes))
        case "float8_e4m3fn" | "float8_e5m2":
            return float8.widened(b, float8.narrowed(b, value, dtype, lanes), dtype, lanes)
        case _:
            return value
