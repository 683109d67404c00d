"""Formulas as functions of a CUDA C++ module."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from autosched.backends.cuda.language.types import constant
from autosched.backends.formulas.terms import Kind, Term, argument

_NAMES = "xyz"
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|"}
_COMPARED = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_TYPES: dict[Kind, str] = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64", "bool": "bool"}
_BITS: dict[Kind, str] = {
    "float32": "__int_as_float",
    "int32": "__float_as_int",
    "float64": "__longlong_as_double",
    "int64": "__double_as_longlong",
}
# Functions by their operation: of float32, and of float64.
_CALLED = {"abs": ("fabsf", "fabs"), "sqrt": ("sqrtf", "sqrt"), "floor": ("floorf", "floor")}
# A term that is used once is printed where it is used, up to about this length of the line.
_LONGEST = 90


def function(name: str, formula: Callable[..., Term], arity: int) -> str:
    """A device function that computes the formula of float32 numbers."""
    return _Function(formula(*(argument(i) for i in range(arity)))).text(name, arity)


class _Function:
    def __init__(self, term: Term) -> None:
        self._term = term
        self._uses: Counter[int] = Counter()
        self._count(term)
        self._known: dict[int, str] = {}
        self._lines: list[str] = []

    def text(self, name: str, arity: int) -> str:
        parameters = ", ".join(f"float {x}" for x in _NAMES[:arity])
        result = self._printed(self._term)
        lines = [f"    {line}" for line in self._lines]
        head = f"__device__ __forceinline__ float {name}({parameters}) {{"
        return "\n".join([head, *lines, f"    return {result};", "}"]) + "\n"

    def _count(self, term: Term) -> None:
        self._uses[id(term)] += 1
        if self._uses[id(term)] == 1:
            for a in term.arguments:
                self._count(a)

    def _printed(self, term: Term) -> str:
        if term.operation == "argument":
            return _NAMES[int(term.number)]
        if term.operation == "constant":
            return _number(term)
        if id(term) in self._known:
            return self._known[id(term)]
        text = self._made(term, [self._printed(a) for a in term.arguments])
        if self._uses[id(term)] > 1 or len(text) > _LONGEST:
            name = f"t{len(self._lines)}"
            self._lines.append(f"const {_TYPES[term.kind]} {name} = {text};")
            text = name
        self._known[id(term)] = text
        return text

    def _made(self, term: Term, x: list[str]) -> str:
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
                # Of a number with its sign it would not be defined.
                unsigned = "uint64" if term.kind == "int64" else "uint32"
                return f"{_TYPES[term.kind]}({unsigned}({x[0]}) << {x[1]})"
            case "shr":
                return f"({x[0]} >> {x[1]})"
            case "add" | "sub" | "mul" as operation if term.kind in ("int32", "int64"):
                # These wrap around.
                unsigned = "uint64" if term.kind == "int64" else "uint32"
                return f"{_TYPES[term.kind]}({unsigned}({x[0]}) {_BINARY[operation]} {unsigned}({x[1]}))"
            case operation:
                return f"({x[0]} {(_BINARY | _COMPARED)[operation]} {x[1]})"


def _number(term: Term) -> str:
    text = constant(term.number, term.kind)
    return f"({text})" if term.number < 0 and not math.isinf(term.number) else text
