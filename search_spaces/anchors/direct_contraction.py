"""Direct contractions on a CPU: one operand read in place at every tap, the other one packed in panels beforehand.

See `contractions/direct/direct_program.py` for the program. A convolution of any rank, stride, dilation, padding and
grouping is one, with what is computed before and after it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from search_spaces.anchors.contractions.direct.direct_program import direct_program, with_inner_reduction
from search_spaces.anchors.contractions.direct.direct_tiles import direct_decisions, direct_starts
from search_spaces.anchors.contractions.direct.operand_boxes import in_place, operand_box, why_no_box
from search_spaces.decisions.decision import Anchor, derived
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.contraction import Contraction, Product, contraction
from search_spaces.structure.taps import with_taps
from search_spaces.workloads.expressions.expression import Gather, why_not_sliced
from search_spaces.workloads.expressions.walking import accesses, distinct
from search_spaces.workloads.workload import Workload

# Elements of panels by elements of their tensors: more are not columns, but an image unfolded for every tap (im2col).
_MOST_UNFOLDED = 2
_ALONG_TWO = "an index moves along two axes of a tile"


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for a sum of products, of which one operand is shifted, padded or computed."""
    if target.kind != "cpu":
        raise UnmatchedError("on a GPU all operands go through shared memory")
    form, reason = _form(workload)
    if form is None and reason == _ALONG_TWO:
        # Windows as taps and channels, of which there may be one: taps are loops.
        form, reason = _form(with_taps(workload, 1))
    if form is None:
        raise UnmatchedError(reason)
    applied = direct_decisions(form, target)
    anchor = Anchor(
        "direct_contraction",
        lambda values: direct_program(form.workload, form, target, values),
        starts=direct_starts(form, target, applied),
    )
    return (derived(anchor, applied),)


def _form(workload: Workload) -> tuple[Contraction | None, str]:
    """The contraction, rows and columns as they are multiplied; or None and the reason."""
    found = contraction(workload, rounded=False)
    if found is None:
        return None, "its sums are no products of rows and columns over common axes"
    if len(found.dots) > 1 or found.dtype not in ("float32", "float16", "bfloat16"):
        return None, "a register tile sums one product of floats"
    if found.is_packed and all(map(found.is_plain, found.tensors)) and len(found.rows) == len(found.reduced) == 1:
        return None, "no operand is shifted, padded or computed: it is a matrix product"
    form = _oriented(found)
    reason = _why_not(form)
    return (None, reason) if reason else (with_inner_reduction(form), "")


def _oriented(form: Contraction) -> Contraction:
    """The contraction with the operand whose panels have fewer elements for each of its tensor's as columns."""
    form = form.row_major
    (dot,) = form.dots
    exchanged = (Product(dot.stage, dot.b, dot.a),)
    other = replace(form, rows=form.columns, columns=form.rows, m=form.n, n=form.m, dots=exchanged)
    return other if _unfolded(other) < _unfolded(form) else form


def _unfolded(form: Contraction) -> float:
    """Elements of the panels, by those of the tensors that they are made of."""
    ((dot,), extents) = form.dots, form.extents
    read = accesses(dot.b)
    axes = {v for a in read for i in a.index for v in i.axes}
    known = {a.tensor for a in read}
    total = sum(math.prod(t.shape) for t in form.workload.inputs if t.name in known)
    return math.prod(extents[x] for x in axes) / max(1, total)


def _why_not(form: Contraction) -> str | None:
    ((a,), (b,)) = form.operands
    gathered = any(isinstance(e, Gather) for _, result in form.results for e in distinct(result))
    if gathered or not form.has_plain_epilogue:
        return "its epilogue reads shifted or gathered elements"
    if _unfolded(form) > _MOST_UNFOLDED:
        return "both operands are shifted: panels would be an image for every tap"
    if any(isinstance(e, Gather) for e in distinct(b)):
        return "columns are gathered"
    if not in_place(a) and (reason := why_no_box(form, a)):
        return reason
    inner = with_inner_reduction(form)
    tiled = (inner.m.name, inner.n.name, inner.k.name)
    read = (operand_box(inner, a, 1).read, *accesses(b))
    return _ALONG_TWO if any(why_not_sliced(x, tiled) for x in read) else None
