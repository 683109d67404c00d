"""Tiles at all positions of a short reduced axis in one iteration: loads that they share, and a dot for each.

Before:  for k.0, nibble in 2:   p = bytes[k.0*64 : +64, n];  acc += dot(x[2*k + nibble], (p >> 4*nibble) & 15)
After (k_axes=unrolled):
         for k.0:                p = bytes[k.0*64 : +64, n]   a byte is loaded once
                                 acc += dot(x[2*k], p & 15);  acc += dot(x[2*k + 1], (p >> 4) & 15)

Where an operand's memory does not move along the axis: values of a few bits that are packed into one element.
"""

from __future__ import annotations

from search_spaces.anchors.contractions.class_tiles import together_axis
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.walking import accesses

# Dots of an iteration at most: eight values of a bit in a byte.
_MOST = 8


def may_unroll(form: Contraction) -> bool:
    """True if an operand reads the same elements at all positions of the innermost reduced axis but the tiled one."""
    axis = together_axis(form.reduced, form.k)
    if axis is None or not 1 < axis.extent <= _MOST or form.is_scaled_along(axis) or form.is_looked_up_along(axis):
        return False
    read = [[i for a in accesses(e) for i in a.index] for side in form.operands for e in side]
    return any(not any(i.step(axis.name) for i in indices) for indices in read)
