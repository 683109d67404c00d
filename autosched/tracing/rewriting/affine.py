"""Values as affine functions of another one: (x - mean x)·r·γ + β, as norms, scales and biases are.

Along one dimension, that of channels or features: a `factor` r does not vary along it, a `scale` γ and a `shift` β are
constants that vary along it alone. Conversions and roundings to 16 bits on the way are looked through; those to 8 bits
are not, as they are what a user of quantization asks for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.templates import filled
from autosched.tracing.values.values import Pointwise, Reduced, Value, View
from autosched.tracing.values.views import Reshape, Slicing
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal
from search_spaces.workloads.expressions.walking import distinct

# 1/n as a float32 differs from that of float64 by less.
_RELATIVE = 1e-6
_NARROW = {f"round_{dtype}": dtype for dtype in ("float16", "bfloat16")}

# The terms that read a class (`Equalities.readers`).
Readers = Mapping[int, Sequence[Value]]


@dataclass(frozen=True, eq=False)
class Affine:
    """`(core - mean(core)) * factors * scale + shift`; the mean is subtracted only where it is `centred`.

    The dimension is counted from the last one as `place`, from 1. `factors` have size 1 along it, and the core's other
    sizes; `scale` and `shift` have this dimension alone, or none. `through`: the values between, outermost first;
    `factored`: so many of them down to the last one with a factor.
    """

    core: Value
    place: int
    factors: tuple[Value, ...] = ()
    scale: Value | None = None
    shift: Value | None = None
    centred: bool = False
    through: tuple[Value, ...] = ()
    factored: int = 0

    @property
    def extent(self) -> int:
        return self.core.shape[-self.place]

    def changes(self, other: Affine) -> bool:
        """True if more than roundings and views are between the core and that of the other function."""
        return (self.factors, self.scale, self.shift, self.centred) != (
            other.factors,
            other.scale,
            other.shift,
            other.centred,
        )


def affine(equalities: Equalities, value: Value, place: int, to_product: bool = False) -> Affine:
    """The value as a function of the innermost value that it is affine in; at worst of itself.

    The core is as it is rounded, but for `to_product`, with which it is what is below its last roundings.
    """
    found, views = Affine(value, place), list[View]()
    best = found, 0
    while not found.centred and found.extent > 1:
        core = found.core
        if isinstance(core, View) and regroups(core, place):
            views.append(core)
            found = replace(found, core=core.argument, through=(*found.through, core))
            continue
        inner = _peeled(equalities, found, core) if isinstance(core, Pointwise) and is_float(core.dtype) else None
        if inner is None:
            break
        new = tuple(_viewed(f, views, place) for f in inner.factors[len(found.factors) :])
        through = (*found.through, core)
        factored = len(through) if new else found.factored
        peeled = inner.changes(found)
        found = replace(inner, factors=(*found.factors, *new), through=through, factored=factored)
        best = (found, len(views)) if peeled else best
    found, count = (found, len(views)) if to_product else best
    return replace(found, core=functools.reduce(_as_in, reversed(views[:count]), unconverted(found.core)))


def regroups(value: Value, place: int) -> bool:
    """True for a view that regroups the dimensions before the one that matters, and no others."""
    kept = isinstance(value, View) and isinstance(value.kind, Reshape)
    return kept and value.shape[-place:] == value.operands[0].shape[-place:]


def rounds(value: Value) -> bool:
    """True for a conversion or rounding of another value's elements, and no more."""
    if not isinstance(value, Pointwise) or not is_float(value.dtype):
        return False
    match value.expression:
        case Access("0", ()):
            return value.arguments[0].shape == value.shape
        case Apply(name, (Access("0", ()),)) if name in _NARROW:
            return value.arguments[0].shape == value.shape
    return False


def placed(value: Value, through: Sequence[Value]) -> Value:
    """The value with these views and roundings, outermost first, in the place of what they are of."""
    for each in reversed(through):
        if isinstance(each, View):
            value = replace(each, name=f"{each.name}_of_{value.name}", argument=value)
        elif isinstance(each, Pointwise):
            value = replace(each, name=f"{each.name}_of_{value.name}", arguments=(value,))
    return value


def _as_in(value: Value, view: View) -> Value:
    return replace(view, argument=value, dtype=value.dtype)


def _viewed(factor: Value, views: Sequence[View], place: int) -> Value:
    for view in reversed(views):
        shape = list(view.shape)
        shape[-place] = 1
        factor = reshape(factor, tuple(shape))
    return factor


@dataclass(frozen=True, eq=False)
class _Peeling:
    """An affine function within an expression: what is left of it is `rest`."""

    value: Pointwise
    found: Affine
    rest: Expression

    def inward(self, rest: Expression, found: Affine | None = None) -> _Peeling:
        return _Peeling(self.value, found or self.found, rest)

    def scaled(self, rest: Expression, by: Value, combine: Callable[..., Expression] = ex.mul) -> _Peeling:
        scale = combined(combine, (self.found.scale, by), self.found.extent)
        return self.inward(rest, replace(self.found, scale=scale))

    def shifted(self, rest: Expression, by: Value, sign: float = 1.0) -> _Peeling:
        """With one more summand of the rest, which what is outside of it scales."""

        def of(total: Expression, scale: Expression, more: Expression) -> Expression:
            return ex.add(total, ex.mul(ex.mul(scale, Literal(sign)), more))

        found = self.found
        shift = combined(of, (found.shift or _number(0.0), found.scale or _number(1.0), by), found.extent)
        return self.inward(rest, replace(found, shift=shift))


def _peeled(equalities: Equalities, found: Affine, value: Pointwise) -> Affine | None:
    """The function as one of an argument of the core's expression, or of a part of it; None where nothing is peeled."""
    here = _Peeling(value, found, value.expression)
    best = here
    while (inner := _inner(equalities, here)) is not None:
        best = inner if inner.found.changes(here.found) else best
        here = inner
    match here.rest:
        case Access(number, ()) if value.arguments[int(number)].shape == value.shape:
            core = value.arguments[int(number)]
            return replace(here.found, core=core) if is_float(core.dtype) else None
    if best.rest is value.expression:
        return None
    dtype = _NARROW.get(best.rest.operator, "float32") if isinstance(best.rest, Apply) else "float32"
    core = replace(value, name=f"{value.name}_within", dtype=dtype, strides=None, expression=best.rest)
    return replace(best.found, core=core)


def _inner(equalities: Equalities, here: _Peeling) -> _Peeling | None:
    """One operator further inwards; None where it is not affine."""
    match here.rest:
        case Apply(name, (x,)) if name in _NARROW:
            return here.inward(x)
        case Apply("neg", (x,)):
            return here.scaled(x, _number(-1.0))
        case Apply("mul", (a, b)):
            return _product(here, a, b) or _product(here, b, a)
        case Apply("div", (a, b)):
            return _product(here, a, b, ex.div)
        case Apply("add", (a, b)):
            return _sum(here, a, b) or _sum(here, b, a)
        case Apply("sub", (a, b)):
            return _sum(here, a, b, -1.0) or _difference(equalities, here, a, b) or _negated(here, a, b)
    return None


def _product(
    here: _Peeling, rest: Expression, by: Expression, combine: Callable[..., Expression] = ex.mul
) -> _Peeling | None:
    if (column := _column(here, by)) is not None:
        return here.scaled(rest, column, combine)
    if (row := _row(here, by)) is not None:
        factors = (*here.found.factors, _inverse(row) if combine is ex.div else row)
        return here.inward(rest, replace(here.found, factors=factors))
    return None


def _sum(here: _Peeling, rest: Expression, more: Expression, sign: float = 1.0) -> _Peeling | None:
    # A shift within factors would vary as they do.
    column = None if here.found.factors else _column(here, more)
    return None if column is None else here.shifted(rest, column, sign)


def _negated(here: _Peeling, constant: Expression, rest: Expression) -> _Peeling | None:
    inner = _sum(here, rest, constant)
    return None if inner is None else inner.scaled(rest, _number(-1.0))


def _difference(equalities: Equalities, here: _Peeling, x: Expression, mean: Expression) -> _Peeling | None:
    """The value within a difference of it and its mean; None for other differences."""
    match x, mean:
        case Access(number, ()), Access(other, ()):
            core, subtracted = (here.value.arguments[int(n)] for n in (number, other))
            if _is_mean(equalities, subtracted, core, here.found.place):
                return here.inward(x, replace(here.found, centred=True))
    return None


def _is_mean(equalities: Equalities, value: Value, of: Value, place: int) -> bool:
    """True if a value is the mean of another along the dimension, which it keeps."""
    n, dim = of.shape[-place], len(of.shape) - place
    factor = 1.0
    if value.shape != (*of.shape[:dim], 1, *of.shape[dim + 1 :]):
        return False
    while True:
        match value:
            case View(argument=argument, kind=Reshape()):
                value = argument
            case Pointwise(arguments=(argument,), expression=Apply("mul", (Access(), Literal(by)))):
                value, factor = argument, factor * by
            case Pointwise(arguments=(argument,), expression=Apply("div", (Access(), Literal(by)))):
                value, factor = argument, factor / by
            case Reduced(operator="sum", argument=argument, dims=dims):
                same = dims == (dim,) and equalities.are_equal(unconverted(argument), unconverted(of))
                return same and math.isclose(factor, 1 / n, rel_tol=_RELATIVE)
            case _:
                return False


def unconverted(value: Value) -> Value:
    """A value before its conversions to a wider type of floats."""
    while isinstance(value, Pointwise) and value.expression == Access("0", ()) and is_float(value.dtype):
        (argument,) = value.arguments
        if argument.shape != value.shape or not is_float(argument.dtype):
            break
        value = argument
    return value


def is_merged(equalities: Equalities, readers: Readers, value: Value) -> bool:
    """True for what a rewrite has made of several values: it holds for each of these as well, so need not be found."""
    pieces = (
        r for r in readers.get(equalities.number(value), ()) if isinstance(r, View) and isinstance(r.kind, Slicing)
    )
    return any(not isinstance(form, View) for piece in pieces for form in equalities.forms(piece))


def _used(here: _Peeling, part: Expression) -> dict[int, Value]:
    numbers = sorted({int(e.tensor) for e in distinct(part) if isinstance(e, Access)})
    return {n: here.value.arguments[n] for n in numbers}


def _column(here: _Peeling, part: Expression) -> Value | None:
    """A part of the expression as a constant that varies along the dimension alone; None if it is not."""
    place, used = here.found.place, _used(here, part)
    lines = {}
    for number, argument in used.items():
        along = len(argument.shape) >= place and argument.shape[-place] == argument.elements
        if not along and argument.elements != 1:
            return None
        if not is_constant(argument):
            return None
        lines[number] = reshape(argument, (argument.elements,) if argument.elements > 1 else ())
    shape = max((v.shape for v in lines.values()), default=())
    return computed(Result(f"{here.value.name}_along", shape, "float32", ""), part, lines)


def _row(here: _Peeling, part: Expression) -> Value | None:
    """A part of the expression that does not vary along the dimension, as a value of size 1 there."""
    place, used = here.found.place, _used(here, part)
    if any(len(a.shape) >= place and a.shape[-place] > 1 for a in used.values()):
        return None
    shape = list(here.value.shape)
    shape[-place] = 1
    match part:
        case Access(number, ()) if used[int(number)].shape == tuple(shape) and used[int(number)].dtype == "float32":
            return used[int(number)]
    return computed(Result(f"{here.value.name}_across", tuple(shape), "float32", ""), part, used)


def computed(result: Result, part: Expression, used: Mapping[int, Value]) -> Value:
    """A part of an expression as a value of its own; `used`: the arguments that it reads, by number."""

    def of(*elements: Expression) -> Expression:
        by_number = dict(zip(used, elements, strict=True))
        return filled(part, [by_number.get(n, Literal(0.0)) for n in range(max(used, default=-1) + 1)])

    return result.elementwise(of, *used.values())


def _number(value: float) -> Value:
    return Result("number", (), "float32", "").constant(value)


def _inverse(row: Value) -> Value:
    result = Result(f"{row.name}_inverse", row.shape, "float32", row.line)
    return result.elementwise(lambda x: ex.div(Literal(1.0), x), row)


def combined(combine: Callable[..., Expression], values: Sequence[Value | None], extent: int) -> Value:
    """A function of constants along a dimension of this extent; of one alone, where the other is None, it is that."""
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        known = [_number(1.0), *known] if combine is ex.div else known
        if len(known) == 1:
            return known[0]
    shape = (extent,) if any(v.shape for v in known) else ()
    return Result(f"{known[-1].name}_combined", shape, "float32", "").elementwise(combine, *known)
