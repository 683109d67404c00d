"""Scalar expressions over tensor elements, with affine indexing.

An expression is the formula of one element of a stage:
    Apply("mul", (Access("a", (m, k)), Access("b", (k, n))))      a[m, k] * b[k, n]

The pointwise operators are the ones in `operators.OPERATORS`; everything else (gelu, silu, sigmoid …) is composed of
them, so a backend that prints these prints every activation.

A value is a float32 or an integer of 64 bits, as `kinds.is_integral` tells. Elements of tensors, positions and literals
are read as float32, whatever the tensor's type, and exactly by `to_integer`; constants are integers as `Integer`.
Arithmetic on integers is integer arithmetic, which wraps around; one operator never has arguments of both kinds. A
comparison is 1 or 0, as a float32, and `where` takes its second argument where the first is not 0. `round_float16` and
`round_bfloat16` round to values of the narrower type, `wrap_int32` and the like keep the lower bits. An integer divided
by 0 is itself, shifts by less than 0 or more than 63 shift everything out. `erf` is right to the last places of 1, as
sums with 1 need, `erf_relative` to its own. `exp2_normal` may be 0 where it is no normal number. `exp2_biased` of
a whole number from 0 to 254 is 2^(x - 127); others are rounded first, and beyond these it is NaN. Powers, `fmod` and
angles are those of C.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from search_spaces.errors import InputError, unknown_name
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.operators import LARGEST_INTEGER, LEAST_INTEGER, OPERATORS


@dataclass(frozen=True, slots=True)
class Access:
    """One element of a tensor (an input or an earlier stage); `fill` where the index is outside of the tensor.

    Without a `fill`, the index never is. (Padding, concatenation and windows read outside.)
    """

    tensor: str
    index: tuple[Affine, ...]
    fill: float | int | None = None


def why_not_sliced(access: Access, tiled: Collection[str]) -> str | None:
    """Reason that slices cannot express the access on a tile of these axes, or None if they can.

    It is then gathered: every element has an address of its own, and no descriptor loads it.
    """
    by_dimension = [[v for v in i.axes if v in tiled] for i in access.index]
    for index, axes in zip(access.index, by_dimension, strict=True):
        if len(axes) > 1:
            return f"{access.tensor} is indexed by {index}, which moves along {' and '.join(axes)} of one tile"
    moving = [x for axes in by_dimension for x in axes]
    twice = next((x for x in moving if moving.count(x) > 1), None)
    return f"{access.tensor} is read along a diagonal, by {twice} in two dimensions" if twice else None


@dataclass(frozen=True, slots=True)
class Gather:
    """One element of an input, at least one of whose indices is data: `table[token[r], d]`.

    An index is an affine form of the axes or an expression. If the value of an expression is no index of the dimension,
    the element is NaN, or 0 in an input of integers or booleans. `parts`, `depth`, `known`: as in `Apply`.
    """

    tensor: str
    index: tuple[Affine | Expression, ...]
    parts: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)
    known: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _measure(self, self.looked_up)

    def __hash__(self) -> int:
        return _hashed(self, (self.tensor, self.index))

    def __reduce__(self) -> tuple[type[Gather], tuple[Any, ...]]:
        return Gather, (self.tensor, self.index)

    @property
    def looked_up(self) -> tuple[Expression, ...]:
        """The indices that are data."""
        return tuple(i for i in self.index if not isinstance(i, Affine))


@dataclass(frozen=True, slots=True)
class Segment:
    """The number of elements of a sorted 1-D input of `size` integers that are at most a position.

    If these are the ends of the segments of an axis, it is the segment that the position is in: segment g has
    ends[g - 1] <= position < ends[g], the first one from 0 on. (`torch.bucketize(position, ends, right=True)`.) The
    position is an affine form of the axes or an expression of integers. If the ends are not sorted it is any number
    from 0 to `size`, which may depend on the schedule. `parts`, `depth`, `known`: as in `Apply`.
    """

    tensor: str
    position: Affine | Expression
    size: int
    parts: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)
    known: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        match self.position:
            case Apply("to_integer", (Position(index),)):
                object.__setattr__(self, "position", index)
            case Integer(value):
                object.__setattr__(self, "position", Affine(offset=value))
        _measure(self, self.looked_up)

    def __hash__(self) -> int:
        return _hashed(self, (self.tensor, self.position, self.size))

    def __reduce__(self) -> tuple[type[Segment], tuple[Any, ...]]:
        return Segment, (self.tensor, self.position, self.size)

    @property
    def looked_up(self) -> tuple[Expression, ...]:
        """The position, if that is data."""
        return () if isinstance(self.position, Affine) else (self.position,)


@dataclass(frozen=True, slots=True)
class Position:
    """An affine form of the axes as a value, as in `torch.arange` and masks."""

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

    `parts`: number of expressions that `walk` finds in it, repeated ones counted again; `depth`: the deepest nesting;
    `known`: its hash, and results that `walking` caches for it, by name.
    """

    operator: str
    arguments: tuple[Expression, ...]
    parts: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)
    known: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise unknown_name("pointwise operator", self.operator, OPERATORS)
        arity = OPERATORS[self.operator][0]
        if len(self.arguments) != arity:
            raise InputError(f"{self.operator} takes {arity} arguments, got {len(self.arguments)}")
        _measure(self, self.arguments)

    def __hash__(self) -> int:
        return _hashed(self, (self.operator, self.arguments))

    def __reduce__(self) -> tuple[type[Apply], tuple[Any, ...]]:
        return Apply, (self.operator, self.arguments)


def _measure(made: Compound, within: tuple[Expression, ...]) -> None:
    object.__setattr__(made, "parts", 1 + sum(map(parts, within)))
    object.__setattr__(made, "depth", 1 + max(map(depth, within), default=0))
    object.__setattr__(made, "known", {})


def _hashed(made: Compound, fields: tuple[Any, ...]) -> int:
    """The hash of the fields, computed once: else that of every expression walks through all within it.

    Hashes of strings differ between processes, so pickles are without it.
    """
    known: int | None = made.known.get("hash")
    if known is None:
        known = made.known["hash"] = hash(fields)
    return known


# Reads of a place that data determines.
LookUp = Gather | Segment
# Expressions with others in them.
Compound = Apply | Gather | Segment
Expression = Access | Gather | Segment | Position | Literal | Integer | Apply


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
    """Number of its expressions, itself included."""
    return expression.parts if isinstance(expression, Compound) else 1


def depth(expression: Expression) -> int:
    """Depth of its nesting, itself included."""
    return expression.depth if isinstance(expression, Compound) else 1


def to_text(expression: Expression) -> str:
    """The expression in the notation of a reader."""
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
        case Segment(tensor, position, _):
            return f"segment({tensor}, {position if isinstance(position, Affine) else to_text(position)})"
        case Position(index):
            return f"({index})"
        case Apply(operator, arguments):
            return f"{operator}({', '.join(map(to_text, arguments))})"
