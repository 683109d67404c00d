"""Shifted, padded or computed operands as boxes of the values that their indices take, each element made once.

    relu(x[2*p + r - 1, 2*q + s - 1, c] else 0)    of 56 p and q, 3 taps r and s, 64 channels:
    a box of 113 h = 2*p + r, 113 w = 2*q + s, and 64 c; element (h, w, c) is relu(x[h - 1, w - 1, c] else 0)

im2col would make it nine times. Where a dimension is longer than what is read of it, the box ends earlier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression, LookUp, Position
from search_spaces.workloads.expressions.walking import accesses, distinct

# A box has at most so many times the elements that the tensors have: further apart, nothing would be copied once.
_MOST_GROWTH = 4
# Elements that may always be copied: padding of a few positions multiplies a small tensor.
_FEW = 2**16


def in_place(operand: Expression) -> bool:
    """True if a main loop may read the operand as it is: a tensor, of which nothing outside is read."""
    return isinstance(operand, Access) and operand.fill is None


def box_of(form: Contraction, operand: Expression) -> Mapping[Affine, int]:
    """The forms that index dimensions, without their offsets, and how many values each takes: the box's dimensions.

    They are in the order of the first tensor's memory, after those of other tensors.
    """
    first, *others = accesses(operand)
    strides = form.map_of(first).tensor.effective_strides
    ordered = sorted(range(len(strides)), key=lambda n: -strides[n])
    indices = [*(i for a in others for i in a.index), *(first.index[n] for n in ordered)]
    linear = [Affine(i.terms) for i in indices if i.terms]
    # The later of two equal ones stays: the first tensor's order counts.
    kept = [*reversed(dict.fromkeys(reversed(linear)))]
    return {x: x.maximum(form.extents) - x.minimum(form.extents) + 1 for x in kept}


def read_of_box(form: Contraction, operand: Expression, name: str) -> Access:
    """The operand as a read of its box, a buffer of this name."""
    return Access(name, tuple(x + Affine(offset=-x.minimum(form.extents)) for x in box_of(form, operand)))


def why_no_box(form: Contraction, operand: Expression) -> str | None:
    """Reason that the operand is not copied to a box, or None."""
    parts = distinct(operand)
    if any(isinstance(e, LookUp) for e in parts):
        return "an operand depends on data as indices"
    if not accesses(operand):
        return "an operand reads no tensor"
    box = box_of(form, operand)
    if any(isinstance(e, Position) and e.index.terms and Affine(e.index.terms) not in box for e in parts):
        return "an operand depends on positions that no tensor of it is read at"
    elements = math.prod(box.values())
    read = {a.tensor for a in accesses(operand)}
    known = sum(math.prod(t.shape) for t in form.workload.inputs if t.name in read)
    if elements > max(_FEW, _MOST_GROWTH * known):
        return f"a box of {elements} elements would be read from {known}"
    return None
