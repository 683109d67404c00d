"""Elements where an index is outside of a padded tensor: constants, if all that they read is outside then, too.

    where(le(0, i) * lt(i, 7), relu(x[i] else 0), 0)   →   relu(x[i] else 0)       as relu(0) = 0
    where(le(0, i) * lt(i, 7), x[i] * s[c], 0)             stays, as s[c] may be no number

A guarded read needs no selection after it, and copies of it need no positions.
"""

from __future__ import annotations

import torch

from autosched.checking.operations import OPERATIONS
from autosched.tracing.values.positions import within
from autosched.tracing.values.reads import Reads
from autosched.tracing.values.values import Index
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.walking import distinct

# More parts are not evaluated: functions that keep a 0 are short.
_MOST_PARTS = 64


def constant_outside(
    element: Expression, index: Index, shape: tuple[int, ...], reads: Reads
) -> Literal | Integer | None:
    """The constant that the element is wherever the index is outside of the shape; None if it is not known."""
    crossing = [
        (i, size)
        for i, size in zip(index, shape, strict=True)
        if isinstance(i, Affine) and not within(i, size, reads.extents)
    ]
    if len(distinct(element)) > _MOST_PARTS:
        return None
    read = (e for e in distinct(element) if isinstance(e, Access))
    found = _evaluated(element, {e: e.fill for e in read if e.fill is not None and _is_outside(e, crossing, reads)})
    if found is None or found.isnan():
        return None
    return Literal(float(found)) if found.is_floating_point() else Integer(int(found))


def _is_outside(e: Access, crossing: list[tuple[Affine, int]], reads: Reads) -> bool:
    """True for a read that is outside of its tensor where one of these indices is outside of its dimension."""
    operand = next((o for o in reads.operands.values() if o.name == e.tensor), None)
    return operand is not None and set(crossing) <= {*zip(e.index, operand.sizes, strict=True)}


def _evaluated(e: Expression, outside: dict[Access, float | int]) -> torch.Tensor | None:
    match e:
        case Literal(number):
            return torch.tensor(number, dtype=torch.float64)
        case Integer(number):
            return torch.tensor(number)
        case Access() if e in outside:
            return torch.tensor(float(outside[e]), dtype=torch.float64)
        case Apply(operator, arguments):
            given = [_evaluated(a, outside) for a in arguments]
            known = [a for a in given if a is not None]
            if len(known) < len(given):
                return None
            return known[0].double() if operator == "to_float" else OPERATIONS[operator](*known)
        case _:
            return None
