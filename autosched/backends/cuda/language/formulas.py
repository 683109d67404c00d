"""Formulas as functions of a CUDA C++ module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autosched.backends.cuda.language.types import constant
from autosched.backends.formulas.terms import Kind, Term, argument
from autosched.backends.formulas.text import COMPARISONS, NAMES, printed

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|"}
_TYPES: dict[Kind, str] = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64", "bool": "bool"}
_BITS: dict[Kind, str] = {
    "float32": "__int_as_float",
    "int32": "__float_as_int",
    "float64": "__longlong_as_double",
    "int64": "__double_as_longlong",
}
# Functions by their operation: of float32, and of float64.
_CALLED = {"abs": ("fabsf", "fabs"), "sqrt": ("sqrtf", "sqrt"), "floor": ("floorf", "floor")}


def function(name: str, formula: Callable[..., Term], arity: int) -> str:
    """A device function that computes the formula of float32 numbers."""
    lines, result = printed(formula(*(argument(i) for i in range(arity))), _Cpp())
    head = f"__device__ __forceinline__ float {name}({', '.join(f'float {x}' for x in NAMES[:arity])}) {{"
    return "\n".join([head, *(f"    {line}" for line in (*lines, f"return {result};")), "}"]) + "\n"


class _Cpp:
    def definition(self, name: str, term: Term, text: str) -> str:
        return f"const {_TYPES[term.kind]} {name} = {text};"

    def made(self, term: Term, x: Sequence[str]) -> str:
        match term.operation:
            case "choose":
                return f"({x[0]} ? {x[1]} : {x[2]})"
            case "bitcast":
                return f"{_BITS[term.kind]}({x[0]})"
            case "convert":
                return f"{_TYPES[term.kind]}({x[0]})"
            case "neg":
                return f"(-{x[0]})"
            case "abs" | "sqrt" | "floor" as operation:
                return f"{_CALLED[operation][term.kind == 'float64']}({x[0]})"
            case "fused":
                return f"({x[0]} * {x[1]} + {x[2]})"
            case "shl":
                # For a number with its sign it would be undefined.
                unsigned = "uint64" if term.kind == "int64" else "uint32"
                return f"{_TYPES[term.kind]}({unsigned}({x[0]}) << {x[1]})"
            case "shr":
                return f"({x[0]} >> {x[1]})"
            case "add" | "sub" | "mul" as operation if term.kind in ("int32", "int64"):
                # These wrap around.
                unsigned = "uint64" if term.kind == "int64" else "uint32"
                return f"{_TYPES[term.kind]}({unsigned}({x[0]}) {_BINARY[operation]} {unsigned}({x[1]}))"
            case operation:
                return f"({x[0]} {(_BINARY | COMPARISONS)[operation]} {x[1]})"

    def number(self, term: Term) -> str:
        text = constant(term.number, term.kind)
        return f"({text})" if term.number < 0 and not math.isinf(term.number) else text
