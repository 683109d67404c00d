"""Products whose reduced axis is cut into segments by data: gradients of the matrices of experts.

    out[g, m, n] = sum over k of (x[m, k] if k is in g else 0) * (y[k, n] if k is in g else 0)     the workload
    out[g, m, n] = sum over k from begin[g] below end[g] of x[m, k] * y[k, n]                      the same

Both operands are 0 elsewhere: where one is, the other's infinities count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.structure.segmented import segmented
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, Position
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.workload import Workload


@dataclass(frozen=True)
class SegmentedSum:
    """The product without conditions, `cuts` being of its k; and the integers from and below which k counts."""

    form: Contraction
    begin: Expression
    end: Expression


def segmented_sum(workload: Workload) -> SegmentedSum | None:
    """The workload as such a product, or None if it is none."""
    form = contraction(workload)
    if form is None or len(form.dots) != 1 or form.around:
        return None
    (dot,) = form.dots
    a, b = (_where(e) for e in (dot.a, dot.b))
    bounds = _bounds(a[0], form.k.name) if a and b and a[0] == b[0] else None
    if a is None or b is None or bounds is None:
        return None
    outer = {x.name: x.extent for x in form.outer}
    along = variables(bounds[0]) | variables(bounds[1])
    if not along <= outer.keys():
        return None
    segments = math.prod(outer[x] for x in along)
    plain = replace(form, dots=(replace(dot, a=a[1], b=b[1]),), cuts=(form.k.name, segments))
    return SegmentedSum(plain, *bounds)


def is_packed_in_segments(workload: Workload) -> bool:
    """True if a CPU multiplies segments of rows, columns or k by register tiles, each by itself."""
    found = segmented(workload) or segmented_sum(workload)
    return found is not None and found.form.is_packed


def _where(e: Expression) -> tuple[Expression, Access] | None:
    """The condition and the element of an operand that is 0 where it does not hold."""
    match e:
        case Apply("where", (condition, Access() as element, Literal(0.0))):
            return condition, element
        case _:
            return None


def _bounds(condition: Expression, k: str) -> tuple[Expression, Expression] | None:
    """`begin` and `end` of begin <= k and k < end."""
    at = Apply("to_integer", (Position(axis_index(k)),))
    match condition:
        case Apply("mul", (Apply("le", (begin, below)), Apply("lt", (above, end)))) if below == above == at:
            return begin, end
        case Apply("mul", (Apply("lt", (above, end)), Apply("le", (begin, below)))) if below == above == at:
            return begin, end
        case _:
            return None
