"""Integers in LLVM IR: values of <lanes x i64>, besides the float32 ones, and conversions between the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.backends.llvm.ir.text import F32, I8, I16, I32, I64, Builder, IRValue
from autosched.backends.llvm.ir.values import condition, float_constant, int_constant, overload, truth, vector
from search_spaces.programs.statements import Gather, Let, Load, Map, Reduce, Scan, fold_identity, produced, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.stages import JOINED_BY

# Narrower types; true for those that are sign-extended.
_NARROW = {"int32": (I32, True), "int16": (I16, True), "int8": (I8, True), "uint8": (I8, False)}
_COMPARED = {"lt": "<", "le": "<=", "eq": "=="}
_PLAIN = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}
# Ends of the spelling of an integer's type, and of that of a vector of them.
_INTEGRAL = (I64, f"{I64}>")
# From here on a float32 is no integer of 64 bits.
_TOO_LARGE = 2.0**63


def tiles_of_integers(kernel: Kernel) -> frozenset[str]:
    """The tiles that are kept as integers: all that are computed as such, and those loaded for them."""
    body = list(statements(kernel.body))
    exact: set[str] = set()
    for s in body:
        if isinstance(s, Map) and (is_integer(s.dst.dtype) or s.compared == "int64"):
            exact.update(a for a in s.arguments if isinstance(a, str))
        elif isinstance(s, Let) or (isinstance(s, Reduce) and is_integer(s.dst.dtype)):
            exact.add(s.src)
        elif isinstance(s, Scan):
            exact.update(x for x, d in zip(s.srcs, s.dsts, strict=True) if is_integer(d.dtype))
    made = [(t, isinstance(s, Load | Gather)) for s in body for t in produced(s) if is_integer(t.dtype)]
    return frozenset(t.name for t, is_read in made if not is_read or t.name in exact)


def is_integral(value: IRValue) -> bool:
    """True for a value of integers."""
    return value.type.endswith(_INTEGRAL)


def first_element(b: Builder, value: IRValue) -> IRValue:
    """First element of a vector of either kind."""
    return b.extract_element(value, 0, I64 if is_integral(value) else F32)


def constant(number: float | int, integral: bool, lanes: int) -> IRValue:
    return int_constant(int(number), lanes, I64) if integral else float_constant(number, lanes)


def identity(reduction: str, integral: bool, lanes: int) -> IRValue:
    return constant(fold_identity(reduction, integral), integral, lanes)


def operands(b: Builder, s: Map, value_of: Callable[[str], IRValue], lanes: int) -> list[IRValue]:
    """The arguments of a statement in the type of its computation: integers, or float32."""
    integral = is_integer(s.computed)
    if s.operator != "where":
        return [_operand(b, a, value_of, integral, lanes) for a in s.arguments]
    chooses, *chosen = s.arguments
    return [
        _operand(b, chooses, value_of, False, lanes),
        *(_operand(b, a, value_of, integral, lanes) for a in chosen),
    ]


def _operand(
    b: Builder, argument: str | float | int, value_of: Callable[[str], IRValue], integral: bool, lanes: int
) -> IRValue:
    if not isinstance(argument, str):
        return constant(argument, integral, lanes)
    value = value_of(argument)
    return to_float(b, value, lanes) if not integral and is_integral(value) else value


def to_float(b: Builder, value: IRValue, lanes: int) -> IRValue:
    """Integers rounded to float32."""
    return b.sitofp(value, vector(F32, lanes))


def from_float(b: Builder, value: IRValue, lanes: int) -> IRValue:
    """float32 cut towards 0; -2^63, as on x86, if that exceeds 64 bits."""
    size = b.call(f"llvm.fabs.{overload(lanes)}", vector(F32, lanes), [value])
    fits = b.fcmp_ordered("<", size, float_constant(_TOO_LARGE, lanes))
    cut = b.fptosi(b.select(fits, value, float_constant(0.0, lanes)), vector(I64, lanes))
    return b.select(fits, cut, int_constant(-(2**63), lanes, I64))


def wrapped(b: Builder, value: IRValue, dtype: str, lanes: int) -> IRValue:
    """The lower bits of integers, as values of an element type."""
    if dtype not in _NARROW:
        return value
    stored, signed = _NARROW[dtype]
    bits = b.trunc(value, vector(stored, lanes))
    return widened(b, bits, dtype, lanes) if signed else b.zext(bits, vector(I64, lanes))


def widened(b: Builder, value: IRValue, dtype: str, lanes: int) -> IRValue:
    """Elements of an integer type, or booleans, from memory as integers of 64 bits."""
    if dtype == "bool":
        is_true = b.icmp_signed("!=", value, int_constant(0, lanes, I8))
        return b.zext(is_true, vector(I64, lanes))
    extend = b.zext if dtype == "uint8" else b.sext
    return value if dtype == "int64" else extend(value, vector(I64, lanes))


def narrowed(b: Builder, value: IRValue, stored: str, dtype: str, lanes: int) -> IRValue:
    """Integers for memory: as an element type of integers, or as booleans."""
    if dtype == "bool":
        return b.zext(b.icmp_signed("!=", value, int_constant(0, lanes, I64)), vector(stored, lanes))
    return value if dtype == "int64" else b.trunc(value, vector(stored, lanes))


def apply(b: Builder, operator: str, x: Sequence[IRValue], lanes: int) -> IRValue:
    """The operator on integers; a comparison gives 1.0 or 0.0."""
    zero = int_constant(0, lanes, I64)
    match operator:
        case _ if operator in _PLAIN:
            return b.binary(_PLAIN[operator], x[0], x[1])
        case _ if operator in _COMPARED:
            return truth(b, b.icmp_signed(_COMPARED[operator], x[0], x[1]), lanes)
        case "where":
            return b.select(condition(b, x[0], lanes), x[1], x[2])
        case "neg":
            return b.sub(zero, x[0])
        case "abs":
            return b.select(b.icmp_signed("<", x[0], zero), b.sub(zero, x[0]), x[0])
        case "maximum" | "minimum":
            comparison = ">" if operator == "maximum" else "<"
            return b.select(b.icmp_signed(comparison, x[0], x[1]), x[0], x[1])
        case "quotient":
            return _quotient(b, x[0], x[1], lanes)
        case "shift_left" | "shift_right":
            return _shifted(b, operator, x[0], x[1], lanes)
        case _:
            raise KeyError(operator)


def folded(b: Builder, reduction: str, value: IRValue, before: IRValue, lanes: int) -> IRValue:
    """One step of a reduction."""
    return apply(b, JOINED_BY[reduction], [value, before], lanes)


def _quotient(b: Builder, x: IRValue, y: IRValue, lanes: int) -> IRValue:
    """x / y cut towards 0. A processor traps on a divisor of 0, and on -2^63 / -1."""
    zero, one, less = (int_constant(n, lanes, I64) for n in (0, 1, -1))
    negates = b.icmp_signed("==", y, less)
    safe = b.select(b.or_(negates, b.icmp_signed("==", y, zero)), one, y)
    return b.select(negates, b.sub(zero, x), b.binary("sdiv", x, safe))


def _shifted(b: Builder, operator: str, x: IRValue, y: IRValue, lanes: int) -> IRValue:
    # As unsigned numbers, negative ones are above 63.
    outside = b.icmp_unsigned(">", y, int_constant(63, lanes, I64))
    if operator == "shift_right":
        return b.ashr(x, b.select(outside, int_constant(63, lanes, I64), y))
    zero = int_constant(0, lanes, I64)
    return b.select(outside, zero, b.shl(x, b.select(outside, zero, y)))
