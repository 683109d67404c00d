"""Contributions of points to folds: the guards and masks by position under which a point leaves a fold unchanged.

    total[r] = sum over c of where(c <= r, x[r, c], 0)         points with r - c < 0 add 0
    most[r]  = max over c of where(c <= r, x[r, c], -inf)      points with r - c < 0 are no maximum
    mass[r]  = sum over c of exp(where(…, -inf) - most[r])     points with r - c < 0 add exp(-inf) = 0
    out[i]   = sum over k of x[i + k - 1] or 0                 points with i + k - 1 < 0 add 0

A set of affine forms of the axes describes the points of a value: all those where one of the forms is negative. A set
may also have conditions of values that are read: the expression has the value wherever one of them does not hold.

    most[r] = max over c of where(kept[c], x[r, c], -inf)      points without kept[c] are no maximum

Forms may have ends of ranges that are data as variables (`structure.reads.ranges`).

    total[g] = sum over t of where(begin[g] <= t < end[g], x[t], 0)      points with t - begin[g] < 0 add 0

A factor of 0 counts only if the other one is known to be a number, or 0 as well: 0 times infinity is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from search_spaces.programs.statements import fold_identity
from search_spaces.structure.axes import Structure
from search_spaces.structure.folds.moving import extreme_where_finite
from search_spaces.structure.reads.ranges import Range, RangeEnd, Ranges, is_ranged
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    LookUp,
    Position,
    call,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import COMPARISONS, ROUNDINGS
from search_spaces.workloads.expressions.walking import distinct
from search_spaces.workloads.workload import Stage

# An affine form, or a condition of values that are read.
Sign = Affine | Expression
# None: everywhere.
Forms = frozenset[Sign] | None
_NOWHERE: Forms = frozenset()
# Operators that map 0 to 0 (some to a negative one), and those that map an infinity to the same infinity.
_KEEP_ZERO = frozenset(
    {"neg", "abs", "sqrt", "tanh", "sin", "erf", "floor", "expm1", "log1p", "to_integer", "to_float", *ROUNDINGS}
)
_KEEP_INFINITY = frozenset({"floor", *ROUNDINGS})
# Positions are compared in float32, which represents integers up to here.
_MOST_EXACT = 2**24


def positions(forms: Forms) -> frozenset[Affine]:
    """The forms of the axes alone among these."""
    return frozenset(x for x in forms or () if isinstance(x, Affine) and not is_ranged(x))


def ranges(forms: Forms) -> frozenset[Affine]:
    """The forms among these that have ends of ranges."""
    return frozenset(x for x in forms or () if isinstance(x, Affine) and is_ranged(x))


def conditions(forms: Forms) -> frozenset[Expression]:
    """The conditions among these."""
    return frozenset(x for x in forms or () if not isinstance(x, Affine))


@dataclass
class Guards:
    """Values that expressions of a structure are known to have at guarded points, and the arguments of its maxima.

    `ends`: the ends of ranges in forms, by their variables. `online`: all folds share one loop, and references of
    exponentials are finite numbers during it, as `structure.folds.dependent` keeps them. Then conditions of values that
    are read count too.
    """

    structure: Structure
    online: bool = False
    ends: dict[str, RangeEnd] = field(default_factory=dict)
    _known: dict[tuple[Expression, float], Forms] = field(default_factory=dict)
    _maxima: dict[str, Expression] = field(default_factory=dict)

    def unchanged(self, fold: Stage) -> Forms:
        """Points that leave the fold unchanged."""
        assert fold.reduction is not None
        body, operator = self.structure.body_of(fold), fold.reduction.operator
        if operator == "max":
            self._maxima[fold.name] = body
        return self.equal(body, float(fold_identity(operator, is_integral(body))))

    def equal(self, e: Expression, value: float) -> Forms:
        """Points where the expression has the value."""
        key = (e, value)
        if key not in self._known:
            self._known[key] = self._equal(e, value)
        return self._known[key]

    def _equal(self, e: Expression, value: float) -> Forms:
        match e:
            case Literal(number) | Integer(number):
                return None if number == value else _NOWHERE
            case Access(tensor, index, fill) if fill is not None and fill == value:
                return self._outside(tensor, index)
            case Apply("where", (condition, first, second)):
                false, true = self.truth(condition)
                one, other = self.equal(first, value), self.equal(second, value)
                return _either(_shared(one, other), _either(_shared(false, other), _shared(true, one)))
            case Apply("maximum" | "minimum", (first, second)):
                return _shared(self.equal(first, value), self.equal(second, value))
            case Apply("add" | "sub", (first, second)) if value == 0:
                return _shared(self.equal(first, value), self.equal(second, value))
            case Apply("mul" | "div", (first, Literal(number))) if value == 0 and _is_factor(number):
                return self.equal(first, value)
            case Apply("mul", (Literal(number), second)) if value == 0 and _is_factor(number):
                return self.equal(second, value)
            case Apply("mul", (first, second)) if value == 0:
                return _shared(self.equal(first, value), self.equal(second, value))
            case Apply("mul" | "div", (first, Literal(number))) if value == -math.inf and _is_factor(number, 0.0):
                return self.equal(first, value)
            case Apply("exp" | "exp2" | "exp2_normal", (exponent,)) if value == 0:
                return self.equal(exponent, -math.inf)
            case Apply("sub", (first, second)) if value == -math.inf:
                return self._less(first, second)
            case Apply(operator, (argument,)) if operator in (_KEEP_ZERO if value == 0 else _KEEP_INFINITY):
                return self.equal(argument, value)
            case _:
                return _NOWHERE

    def _less(self, first: Expression, shift: Expression) -> Forms:
        """Points where `first - shift` is minus infinity: those where `first` is, if the shift is a number.

        The maximum of `first` along the columns may be none. Then one of the other points is NaN, or all are minus
        infinity, and their difference is NaN for every one of them; but `online` only in the end. Values that are read
        count as numbers there, as in powers of two (`structure.folds.powers`).
        """
        match first, shift:
            case Apply("mul", (one, Literal(p))), Apply("mul", (other, Literal(q))) if p == q and _is_factor(p, 0.0):
                return self._less(one, other)
        forms = self.equal(first, -math.inf)
        if isinstance(shift, Literal):
            return forms if math.isfinite(shift.value) else _NOWHERE
        is_its_maximum = self._maxima.get(extreme_where_finite(shift) or "") == first
        if self.online:
            # While points are folded that is a finite number, also of a row without any so far.
            return forms if is_its_maximum or self._reads_given(shift) else _NOWHERE
        known = forms and not ranges(forms) and is_its_maximum and isinstance(shift, Access)
        return forms if known and self._every_row_has_points(positions(forms)) else _NOWHERE

    def _every_row_has_points(self, forms: frozenset[Affine]) -> bool:
        """True if every row has a column where none of the forms is negative; of one column, with steps of 1."""
        column = self.structure.column
        if len(self.structure.reduced) > 1:
            return False
        least, most = [Affine()], [Affine(offset=column.extent - 1)]
        for form in forms:
            step = dict(form.terms).get(column.name, 0)
            if abs(step) != 1:
                return False
            rest = form + Affine.of((column.name, -step))
            (least if step == 1 else most).append(-rest if step == 1 else rest)
        return all((end - first).minimum(self._extents) >= 0 for first in least for end in most)

    def _outside(self, tensor: str, index: Sequence[Affine]) -> Forms:
        """Points where the index is outside of the tensor."""
        shape = next((t.shape for t in self.structure.workload.inputs if t.name == tensor), None)
        if shape is None:
            return _NOWHERE
        ends = (-i + Affine(offset=size - 1) for i, size in zip(index, shape, strict=True))
        return frozenset((*index, *ends))

    def truth(self, e: Expression) -> tuple[Forms, Forms]:
        """Points where a condition is false, and points where it is true."""
        false, true = self._by_position(e)
        if self.online and self._is_read(e) and (false == true == _NOWHERE or self.range_of(e)):
            return _either(false, frozenset({e})), _either(true, frozenset({call("eq", e, Literal(0.0))}))
        return false, true

    def _is_read(self, e: Expression) -> bool:
        """True for a condition of values that are read, without products or folds."""
        return self._reads_given(e) and self._is_boolean(e)

    def _reads_given(self, e: Expression) -> bool:
        read = {part.tensor for part in distinct(e) if isinstance(part, Access | LookUp)}
        return bool(read) and read <= self._dtypes.keys()

    def _is_boolean(self, e: Expression) -> bool:
        match e:
            case Access(tensor) | Gather(tensor):
                return self._dtypes[tensor] == "bool"
            case Apply("mul" | "minimum" | "maximum" | "bitwise_and" | "bitwise_or", arguments):
                return all(map(self._is_boolean, arguments))
            case Apply(operator):
                return operator in COMPARISONS
            case _:
                return False

    @cached_property
    def _dtypes(self) -> dict[str, str]:
        return {t.name: t.dtype for t in self.structure.workload.inputs}

    def _by_position(self, e: Expression) -> tuple[Forms, Forms]:
        match e:
            case Apply("lt" | "le" | "eq" as operator, (first, second)):
                a, b = self.position(first), self.position(second)
                if a is not None and b is not None:
                    more, less = b - a, a - b
                    before, after = more + Affine(offset=-1), less + Affine(offset=-1)
                    match operator:
                        case "lt":
                            return frozenset({before}), frozenset({less})
                        case "le":
                            return frozenset({more}), frozenset({after})
                        case _:
                            return frozenset({more, less}), _NOWHERE
                if (within := self.range_of(e)) is not None:
                    outside = within.outside
                    (form,) = outside if len(outside) == 1 else (None,)
                    return outside, _NOWHERE if form is None else frozenset({-form + Affine(offset=-1)})
                if operator == "eq" and second in (Literal(0.0), Integer(0)):
                    false, true = self.truth(first)
                    return true, false
            case Apply("mul" | "minimum" | "bitwise_and", (first, second)):
                (f1, t1), (f2, t2) = self.truth(first), self.truth(second)
                return _either(f1, f2), _shared(t1, t2)
            case Apply("maximum" | "bitwise_or", (first, second)):
                (f1, t1), (f2, t2) = self.truth(first), self.truth(second)
                return _shared(f1, f2), _either(t1, t2)
        return _NOWHERE, _NOWHERE

    def holding(self, e: Expression) -> frozenset[Affine] | None:
        """Forms of which none is negative exactly where a condition holds; None if there are no such forms."""
        match e:
            case Apply("lt" | "le" | "eq" as operator, (first, second)):
                a, b = self.position(first), self.position(second)
                if a is not None and b is not None:
                    more = b - a
                    found = {"lt": {more + Affine(offset=-1)}, "le": {more}, "eq": {more, -more}}
                    return frozenset(found[operator])
                within = self.range_of(e)
                if within is not None:
                    return within.outside if within.exactly else None
                denied = self.holding(first) if operator == "eq" and second in (Literal(0.0), Integer(0)) else None
                return frozenset(-f + Affine(offset=-1) for f in denied) if denied and len(denied) == 1 else None
            case Apply("mul" | "minimum" | "bitwise_and", (first, second)):
                one, other = self.holding(first), self.holding(second)
                return None if one is None or other is None else one | other
            case _:
                return None

    def range_of(self, condition: Expression) -> Range | None:
        """The range of folded positions in which a condition holds, by what is read where these are not counted."""
        return self._ranges.of(condition)

    @cached_property
    def _ranges(self) -> Ranges:
        folded = frozenset(x.name for x in self.structure.reduced)
        return Ranges(self.position, self._extents, folded, self._dtypes, self.ends)

    def position(self, e: Expression) -> Affine | None:
        """The expression as an affine form of positions."""
        match e:
            case Literal(number) | Integer(number) if float(number).is_integer():
                return Affine(offset=int(number))
            case Position(index):
                return index if self._is_exact(index) else None
            case Apply("to_integer" | "to_float", (argument,)):
                return self.position(argument)
            case Apply("add" | "sub" as operator, (first, second)):
                a, b = self.position(first), self.position(second)
                if a is None or b is None:
                    return None
                total = a + b if operator == "add" else a - b
                return total if self._is_exact(total) else None
            case _:
                return None

    def _is_exact(self, form: Affine) -> bool:
        return form.maximum(self._extents) <= _MOST_EXACT and form.minimum(self._extents) >= -_MOST_EXACT

    @cached_property
    def _extents(self) -> dict[str, int]:
        return {x.name: x.extent for x in (*self.structure.parallel, *self.structure.reduced)}


def _is_factor(number: float, above: float = -math.inf) -> bool:
    return math.isfinite(number) and number != 0 and number > above


def _either(a: Forms, b: Forms) -> Forms:
    return None if a is None or b is None else a | b


def _shared(a: Forms, b: Forms) -> Forms:
    if a is None or b is None:
        return b if a is None else a
    return a & b
