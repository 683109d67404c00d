"""Contractions of operands that are stored first, where many tiles would compute or look up each element again.

Before:  for m, n: out[m, n] = sum over k of x[m, k] * f(q[n, k], s[n])     2048 rows: 8 to 16 tiles compute f
After:   for n, k: b[n, k] = f(q[n, k], s[n])                               a kernel of its own, at every call
         for m, n: out[m, n] = sum over k of x[m, k] * b[n, k]              with all decisions that tensors have

Weights in few bits, scaled by groups, become a product of two tensors in 16 bits. The workspace has as many elements as
the operand, in the type that dots multiply. Of constants, too, it is made at every call: to keep it would take the
memory that few bits save. (PyTorch's own products of dequantised weights store them as well.) Rows that are looked up
have no descriptors; stored in the order of their segments they have, and products of these have producers.
"""

from __future__ import annotations

from search_spaces.anchors import contraction, segmented_contraction
from search_spaces.anchors.contractions.copied_contraction import of_copies
from search_spaces.anchors.contractions.stored_operands import with_stored_operands
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.segmented import segmented
from search_spaces.workloads.workload import Workload


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """The sketch of the contraction of stored operands, on a GPU."""
    if target.kind != "gpu":
        raise UnmatchedError("a CPU copies operands in boxes and panels")
    changed, copies = with_stored_operands(workload)
    anchor = segmented_contraction if segmented(workload) else contraction
    return of_copies("stored_contraction", workload, copies, anchor.derive(changed, target, offers))
