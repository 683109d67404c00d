"""Scalar expressions over tensor elements, with affine indexing.

An expression says how one element of a stage is computed:

    Apply("mul", (Access("a", (m, k)), Access("b", (k, n))))      a[m, k] * b[k, n]

The pointwise operators are the ones in `OPERATORS`; everything else (gelu, silu, sigmoid …) is composed of them, so a
backend that prints these prints every activation.

A value is a float32 or an integer of 64 bits, as `is_integral` says. Elements of tensors, positions and literals are
read as float32, whatever the tensor holds, and exactly by `to_integer`; constants are integers as `Integer`. Where the
arguments of arithmetic and comparisons are integers, so is the arithmetic, which wraps around; one operator never has
arguments of both kinds. A comparison is 1 or 0, as a float32, and `where` takes its second argument where the first is
not 0. `round_float16` and `round_bfloat16` round to what the narrower type holds, `wrap_int32` and the like keep the
lower bits. An integer divided by 0 is itself, shifts by less than 0 or more than 63 shift everything out. `erf` is
right to the last places of 1, as sums with 1 ask for, `erf_relative` to its own. `exp2_normal` may be 0 where it is no
normal number. Powers, `fmod` and angles are those of C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.errors import InputError, unknown_name

# name -> (number of arguments, floating-point operations charged for one element).
# Transcendental functions are charged what evaluating them costs: a polynomial of 10 to 20 operations, or several.
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
# What a narrower type keeps: the operators that round, and the element type that they round to.
ROUNDINGS: Mapping[str, str] = {
    f"round_{name}": name for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
}
# The same of integers: the operators that keep the lower bits, as an integer of that element type.
WRAPPINGS: Mapping[str, str] = {f"wrap_{name}": name for name in ("int32", "int16", "int8", "uint8")}
# Operators on integers alone (`quotient` is cut towards 0), on one kind or the other, and of either kind to a truth.
OF_INTEGERS = frozenset(
    {"quotient", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", *WRAPPINGS}
)
_OF_EITHER = frozenset({"add", "sub", "mul", "neg", "abs", "maximum", "minimum", "where"})
COMPARISONS = frozenset({"lt", "le", "eq"})
# The integers that a value can be.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Affine:
    """`offset + sum(coefficient * variable)`. Terms are sorted by variable, none has coefficient 0."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @staticmethod
    def of(*terms: tuple[str, int], offset: int = 0) -> Affine:
        """An affine form from (variable, coefficient) pairs, which may repeat a variable."""
        total: dict[str, int] = {}
        for variable, coefficient in terms:
            total[variable] = total.get(variable, 0) + coefficient
        return Affine(tuple(sorted((v, c) for v, c in total.items() if c)), offset)

    def __add__(self, other: Affine) -> Affine:
        return Affine.of(*self.terms, *other.terms, offset=self.offset + other.offset)

    def __neg__(self) -> Affine:
        return Affine(tuple((v, -c) for v, c in self.terms), -self.offset)

    def __sub__(self, other: Affine) -> Affine:
        return self + -other

    def __mul__(self, factor: int) -> Affine:
        return Affine.of(*((v, c * factor) for v, c in self.terms), offset=self.offset * factor)

    @property
    def is_axis(self) -> bool:
        """Whether it is just a variable."""
        return self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1

    def substituted(self, forms: Mapping[str, Affine]) -> Affine:
        """The form with every variable replaced by a form."""
        terms = [(v, c * by) for variable, c in self.terms for v, by in forms[variable].terms]
        return Affine.of(*terms, offset=self.offset + sum(c * forms[variable].offset for variable, c in self.terms))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value with every variable replaced by a number."""
        return self.offset + sum(c * values[v] for v, c in self.terms)

    def maximum(self, extents: Mapping[str, int]) -> int:
        """The largest value when each variable runs from 0 below its extent."""
        return self.offset + sum(max(0, c * (extents[v] - 1)) for v, c in self.terms)

    def minimum(self, extents: Mapping[str, int]) -> int:
        """The smallest value when each variable runs from 0 below its extent."""
        return self.offset + sum(min(0, c * (extents[v] - 1)) for v, c in self.terms)

    def __str__(self) -> str:
        parts = [v if c == 1 else f"{v}*{c}" for v, c in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)

    def to_json(self) -> Any:
        return [[list(t) for t in self.terms], self.offset]

    @staticmethod
    def from_json(data: Any) -> Affine:
        terms, offset = data
        return Affine(tuple((str(v), int(c)) for v, c in terms), int(offset))


def axis_index(name: str) -> Affine:
    """The index that is just the axis `name`."""
    return Affine(((name, 1),))


@dataclass(frozen=True, slots=True)
class Access:
    """One element of a tensor (an input or an earlier stage); `fill` where the index is outside of the tensor.

    Without a `fill`, the index never is. (Padding, concatenation and windows read outside.)
    """

    tensor: str
    index: tuple[Affine, ...]
    fill: float | int | None = None


@dataclass(frozen=True, slots=True)
class Gather:
    """One element of an input, at least one of whose indices is data: `table[token[r], d]`.

    An index is an affine form of the axes or an expression. Where the value of an expression is no index of the
    dimension, the element is NaN, or 0 in an input of integers or booleans. `parts`, `depth`: as `Apply` has them.
    """

    tensor: str
    index: tuple[Affine | Expression, ...]
    parts: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _measure(self, self.looked_up)

    @property
    def looked_up(self) -> tuple[Expression, ...]:
        """The indices that are data."""
        return tuple(i for i in self.index if not isinstance(i, Affine))


@dataclass(frozen=True, slots=True)
class Position:
    """An affine form of the axes as a value: what `torch.arange` and masks are made of."""

    index: Affine


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant: a number or an infinity. 0 and -0 are two of them."""

    value: float

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or math.isnan(self.value):
            raise InputError(f"constant {self.value!r}; expected a number")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[float, float]:
        return self.value, math.copysign(1.0, self.value)


@dataclass(frozen=True, slots=True)
class Integer:
    """A constant integer of 64 bits."""

    value: int

    def __post_init__(self) -> None:
        whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not whole or not LEAST_INTEGER <= self.value <= LARGEST_INTEGER:
            raise InputError(f"constant integer {self.value!r}; expected one of 64 bits")


@dataclass(frozen=True, slots=True)
class Apply:
    """A pointwise operator of `OPERATORS` applied to expressions.

    `parts`: how many expressions `walk` finds in it, what is there twice counted twice; `depth`: how many of them lie
    within each other at most.
    """

    operator: str
    arguments: tuple[Expression, ...]
    parts: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise unknown_name("pointwise operator", self.operator, OPERATORS)
        arity = OPERATORS[self.operator][0]
        if len(self.arguments) != arity:
            raise InputError(f"{self.operator} takes {arity} arguments, got {len(self.arguments)}")
        _measure(self, self.arguments)


def _measure(made: Apply | Gather, within: tuple[Expression, ...]) -> None:
    object.__setattr__(made, "parts", 1 + sum(map(parts, within)))
    object.__setattr__(made, "depth", 1 + max(map(depth, within), default=0))


Expression = Access | Gather | Position | Literal | Integer | Apply


def add(a: Expression, b: Expression) -> Expression:
    return Apply("add", (a, b))


def sub(a: Expression, b: Expression) -> Expression:
    return Apply("sub", (a, b))


def mul(a: Expression, b: Expression) -> Expression:
    return Apply("mul", (a, b))


def div(a: Expression, b: Expression) -> Expression:
    return Apply("div", (a, b))


def call(operator: str, *arguments: Expression) -> Expression:
    return Apply(operator, arguments)


def parts(expression: Expression) -> int:
    """How many expressions it is made of, itself included."""
    return expression.parts if isinstance(expression, Apply | Gather) else 1


def depth(expression: Expression) -> int:
    """How many expressions lie within each other, itself included."""
    return expression.depth if isinstance(expression, Apply | Gather) else 1


def is_integral(expression: Expression) -> bool:
    """Whether the value of the expression is an integer, and no float32."""
    while isinstance(expression, Apply) and expression.operator in _OF_EITHER:
        # Both are of one kind, which a leaf says at once.
        first, last = expression.arguments[-2:][0], expression.arguments[-1]
        expression = last if isinstance(first, Apply) else first
    if isinstance(expression, Apply):
        return expression.operator == "to_integer" or expression.operator in OF_INTEGERS
    return isinstance(expression, Integer)


def check_kinds(expression: Expression) -> None:
    """Raise InputError where an operator is given an argument of a kind that it does not take."""
    for e in walk(expression):
        why = _why_not_of_kind(e) if isinstance(e, Apply) and e.operator != "to_integer" else None
        if why:
            raise InputError(f"{to_text(e)}: {why}")


def _why_not_of_kind(e: Apply) -> str | None:
    condition, arguments = (e.arguments[0], e.arguments[1:]) if e.operator == "where" else (None, e.arguments)
    kinds = {is_integral(a) for a in arguments}
    if e.operator in OF_INTEGERS or e.operator == "to_float":
        return "expected integers" if False in kinds else None
    if e.operator in _OF_EITHER or e.operator in COMPARISONS:
        mixed = len(kinds) > 1 or (condition is not None and is_integral(condition))
        return "expected integers or float32, not both" if mixed else None
    return "expected float32, got integers" if True in kinds else None


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it, outermost first, left to right."""
    rest = [expression]
    while rest:
        here = rest.pop()
        yield here
        if isinstance(here, Apply):
            rest += reversed(here.arguments)
        elif isinstance(here, Gather):
            rest += reversed(here.looked_up)


def accesses(expression: Expression) -> tuple[Access, ...]:
    """Every tensor element that the expression reads at affine indices, in order, repeats included."""
    return tuple(e for e in walk(expression) if isinstance(e, Access))


def gathers(expression: Expression) -> tuple[Gather, ...]:
    """Every tensor element that the expression reads at indices that are data, in order, repeats included."""
    return tuple(e for e in walk(expression) if isinstance(e, Gather))


def affine_forms(expression: Expression) -> Iterator[Affine]:
    """Every affine form of the axes in the expression: indices and positions."""
    for e in walk(expression):
        if isinstance(e, Access | Gather):
            yield from (i for i in e.index if isinstance(i, Affine))
        elif isinstance(e, Position):
            yield e.index


def variables(expression: Expression) -> frozenset[str]:
    """The axes that the value of the expression depends on."""
    return frozenset(v for form in affine_forms(expression) for v, _ in form.terms)


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """The expression with every part for which `change` gives another one replaced, outermost first.

    A part that stands in several places is looked at once.
    """
    known: dict[int, Expression] = {}

    def visited(e: Expression) -> Expression:
        made = known.get(id(e))
        if made is None:
            made = known[id(e)] = replaced(e)
        return made

    def replaced(e: Expression) -> Expression:
        changed = change(e)
        if changed is not None:
            return changed
        match e:
            case Apply(operator, arguments):
                return Apply(operator, tuple(map(visited, arguments)))
            case Gather(tensor, index):
                return Gather(tensor, tuple(i if isinstance(i, Affine) else visited(i) for i in index))
            case _:
                return e

    return visited(expression)


def reindexed(expression: Expression, form: Callable[[Affine], Affine]) -> Expression:
    """The expression with every affine form of the axes, of indices and of positions, replaced by another one."""

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor, index, fill):
                return Access(tensor, tuple(map(form, index)), fill)
            case Position(index):
                return Position(form(index))
            case Gather(tensor, mixed):
                at = (form(i) if isinstance(i, Affine) else rewritten(i, change) for i in mixed)
                return Gather(tensor, tuple(at))
            case _:
                return None

    return rewritten(expression, change)


def flops(expression: Expression) -> int:
    """Floating-point operations for one evaluation."""
    return sum(OPERATORS[e.operator][1] for e in walk(expression) if isinstance(e, Apply))


def to_text(expression: Expression) -> str:
    """The expression as a reader would write it."""
    match expression:
        case Literal(value):
            return f"{value:g}"
        case Integer(value):
            return str(value)
        case Access(tensor, index, fill):
            outside = "" if fill is None else f" or {fill:g}"
            return f"{tensor}[{', '.join(map(str, index))}]{outside}"
        case Gather(tensor, index):
            return f"{tensor}[{', '.join(str(i) if isinstance(i, Affine) else to_text(i) for i in index)}]"
        case Position(index):
            return f"({index})"
        case Apply(operator, arguments):
            return f"{operator}({', '.join(map(to_text, arguments))})"
