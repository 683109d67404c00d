"""The pointwise operators of tile programs as LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends import llvm_math
from autosched.backends.llvm_ir import F16, F32, Builder, Value
from autosched.backends.llvm_values import (
    bfloat16_bits,
    condition,
    float_constant,
    int_constant,
    is_constant,
    truth,
    unary,
    vector,
)

# A product and a sum may become one fused multiply-add; nothing else may be reordered or assumed.
_FUSED = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract"}


def apply(b: Builder, operator: str, x: Sequence[Value], lanes: int) -> Value:
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
            return llvm_math.exp(b, x[0], lanes)
        case "log":
            return llvm_math.log(b, x[0], lanes)
        case "tanh":
            return llvm_math.tanh(b, x[0], lanes)
        case "erf":
            return llvm_math.erf(b, x[0], lanes)
        case "sin":
            return llvm_math.sin(b, x[0], lanes)
        case "cos":
            return llvm_math.cos(b, x[0], lanes)
        case _:
            raise KeyError(operator)


def _extreme(b: Builder, comparison: str, x: Value, y: Value) -> Value:
    """The larger or smaller one; NaN where either is, as in relu(NaN)."""
    # "Unordered or greater" lets a NaN on the left through; a constant on the right is none.
    chosen = b.select(b.fcmp_unordered(comparison, x, y), x, y)
    return chosen if is_constant(y) else b.select(b.fcmp_unordered("uno", y, y), y, chosen)


def round_value(b: Builder, value: Value, dtype: str, lanes: int) -> Value:
    """The float32 value rounded to `dtype` and widened again."""
    match dtype:
        case "float16":
            return b.fpext(b.fptrunc(value, vector(F16, lanes)), vector(F32, lanes))
        case "bfloat16":
            kept = b.and_(bfloat16_bits(b, value, lanes), int_constant(-65536, lanes))
            return b.bitcast(kept, vector(F32, lanes))
        case _:
            return value
