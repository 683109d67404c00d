"""Terms of vector arithmetic, in which formulas are written and from which backends make their own code.

    y = x.to("float64") * 0.5          a term; numbers take the kind of the other operand
    choose(x < 0.0, -y, y)

Operations are IEEE's, element by element. Nothing is reassociated; `fused` alone may be rounded once or twice, so a
formula must be right either way (a GPU's compiler also fuses a product that is only added to something).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["float32", "float64", "int32", "int64", "bool"]
Number = float | int

_BITS: dict[Kind, Kind] = {"float32": "int32", "float64": "int64", "int32": "float32", "int64": "float64"}


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """A value as an expression. Only one object is one term: it is computed once."""

    kind: Kind
    operation: str
    arguments: tuple[Term, ...] = ()
    number: Number = 0

    def _with(self, operation: str, other: Term | Number, swapped: bool = False) -> Term:
        term = other if isinstance(other, Term) else constant(other, self.kind)
        assert term.kind == self.kind, f"{operation} of {self.kind} and {term.kind}"
        return Term(self.kind, operation, (term, self) if swapped else (self, term))

    def __add__(self, other: Term | Number) -> Term:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Term:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Term | Number) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Term | Number) -> Term:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Term:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Term | Number) -> Term:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self._with("div", other, swapped=True)

    def __neg__(self) -> Term:
        return Term(self.kind, "neg", (self,))

    def __lshift__(self, places: int) -> Term:
        return self._with("shl", places)

    def __rshift__(self, places: int) -> Term:
        """Arithmetic shift: copies of the sign come in from the left."""
        return self._with("shr", places)

    def __and__(self, other: Term) -> Term:
        return self._with("and", other)

    def __or__(self, other: Term) -> Term:
        return self._with("or", other)

    def __lt__(self, other: Term | Number) -> Term:
        return self._compared("lt", other)

    def __le__(self, other: Term | Number) -> Term:
        return self._compared("le", other)

    def equals(self, other: Term | Number) -> Term:
        return self._compared("eq", other)

    def differs(self, other: Term | Number) -> Term:
        """Unlike other comparisons, true if either is NaN."""
        return self._compared("ne", other)

    def _compared(self, comparison: str, other: Term | Number) -> Term:
        return Term("bool", comparison, self._with(comparison, other).arguments)

    def to(self, kind: Kind) -> Term:
        """The number in the other floating-point type, rounded to nearest."""
        return Term(kind, "convert", (self,))

    def bits(self) -> Term:
        """The bits of a float as an integer, or of an integer as a float."""
        return Term(_BITS[self.kind], "bitcast", (self,))

    def abs(self) -> Term:
        return Term(self.kind, "abs", (self,))

    def sqrt(self) -> Term:
        return Term(self.kind, "sqrt", (self,))

    def floor(self) -> Term:
        return Term(self.kind, "floor", (self,))


def argument(number: int) -> Term:
    """The argument of a formula, a float32, counted from 0."""
    return Term("float32", "argument", (), number)


def constant(number: Number, kind: Kind) -> Term:
    return Term(kind, "constant", (), number)


def choose(condition: Term, a: Term | Number, b: Term | Number) -> Term:
    """a where the condition holds, else b. A number must be exact in float32; one of the two is a term."""
    kind = a.kind if isinstance(a, Term) else b.kind if isinstance(b, Term) else None
    assert kind is not None
    chosen = (t if isinstance(t, Term) else constant(t, kind) for t in (a, b))
    return Term(kind, "choose", (condition, *chosen))


def fused(a: Term, b: Term, c: Term | Number) -> Term:
    """a * b + c."""
    addend = c if isinstance(c, Term) else constant(c, a.kind)
    return Term(a.kind, "fused", (a, b, addend))


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """The sum of coefficients[i] * x**i, by Horner's rule."""
    result: Term = constant(coefficients[-1], x.kind)
    for c in reversed(coefficients[:-1]):
        result = fused(result, x, c)
    return result


def at_most(x: Term, limit: float) -> Term:
    """The smaller of x and the limit; NaN stays NaN."""
    return choose(limit_below(x, limit), limit, x)


def at_least(x: Term, limit: float) -> Term:
    """The larger of x and the limit; NaN stays NaN."""
    return choose(x < limit, limit, x)


def limit_below(x: Term, limit: float) -> Term:
    return constant(limit, x.kind) < x


def is_negative(x: Term) -> Term:
    """True if the sign of a float is minus, even for -0 or NaN."""
    return x.bits() < 0


def with_sign_of(size: Term, x: Term) -> Term:
    """A number without a sign (or NaN) with that of x."""
    return choose(is_negative(x), -size, size)
