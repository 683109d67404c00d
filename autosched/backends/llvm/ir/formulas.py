"""Formulas as LLVM IR on vectors of float32."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.formulas.terms import Kind, Term
from autosched.backends.llvm.ir.text import F32, F64, I32, I64, Builder, IRValue
from autosched.backends.llvm.ir.values import double_constant, float_constant, int_constant, overload, vector

_TYPES: dict[Kind, str] = {"float32": F32, "float64": F64, "int32": I32, "int64": I64}
_SUFFIXES: dict[Kind, str] = {"float32": "f32", "float64": "f64"}
_INSTRUCTIONS = {
    "float": {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"},
    "int": {"add": "add", "sub": "sub", "and": "and", "shl": "shl", "shr": "ashr"},
    "bool": {"and": "and", "or": "or"},
}
_INTRINSICS = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "fused": "fma"}
_COMPARED = {"lt": "<", "le": "<=", "eq": "=="}


def emit(b: Builder, term: Term, arguments: Sequence[IRValue], lanes: int) -> IRValue:
    """The value of a term; `arguments` have the type <lanes x float>. Only needed terms are computed."""
    return _Emitter(b, arguments, lanes).value(term)


class _Emitter:
    def __init__(self, b: Builder, arguments: Sequence[IRValue], lanes: int) -> None:
        self._b, self._arguments, self._lanes = b, arguments, lanes
        self._known: dict[int, IRValue] = {}

    def value(self, term: Term) -> IRValue:
        # By identity: the root term keeps all others alive.
        if id(term) not in self._known:
            self._known[id(term)] = self._computed(term)
        return self._known[id(term)]

    def _computed(self, term: Term) -> IRValue:
        if term.operation == "argument":
            return self._arguments[int(term.number)]
        if term.operation == "constant":
            return self._constant(term)
        b, x = self._b, [self.value(a) for a in term.arguments]
        kind = term.arguments[0].kind
        result = vector(_TYPES.get(term.kind, ""), self._lanes)
        match term.operation:
            case "lt" | "le" | "eq" if kind.startswith("float"):
                return b.fcmp_ordered(_COMPARED[term.operation], x[0], x[1])
            case "lt" | "eq":
                return b.icmp_signed(_COMPARED[term.operation], x[0], x[1])
            case "ne":
                return b.fcmp_unordered("!=", x[0], x[1])
            case "choose":
                return b.select(x[0], x[1], x[2])
            case "bitcast":
                return b.bitcast(x[0], result)
            case "convert":
                return b.fpext(x[0], result) if term.kind == "float64" else b.fptrunc(x[0], result)
            case "neg":
                return b.fneg(x[0])
            case operation if operation in _INTRINSICS:
                name = f"llvm.{_INTRINSICS[operation]}.{overload(self._lanes, _SUFFIXES[kind])}"
                return b.call(name, result, x)
            case operation:
                group = "bool" if kind == "bool" else kind.rstrip("0123456789")
                return b.binary(_INSTRUCTIONS[group][operation], x[0], x[1])

    def _constant(self, term: Term) -> IRValue:
        if term.kind == "float32":
            return float_constant(term.number, self._lanes)
        if term.kind == "float64":
            return double_constant(term.number, self._lanes)
        return int_constant(int(term.number), self._lanes, _TYPES[term.kind])
