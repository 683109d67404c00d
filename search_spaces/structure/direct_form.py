"""Contractions as a direct register tile takes them: which operand is read at every tap, and which is in panels."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from search_spaces.errors import UnmatchedError
from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.structure.copied_boxes import box_of, in_place, read_of_box, why_no_box
from search_spaces.structure.operand_types import MULTIPLIED
from search_spaces.structure.taps import with_taps
from search_spaces.workloads.expressions.expression import LookUp, why_not_sliced
from search_spaces.workloads.expressions.walking import accesses, distinct
from search_spaces.workloads.strides import dense_strides
from search_spaces.workloads.workload import Axis, Workload

# Elements of panels by elements of their tensors: more are not columns, but an image unfolded for every tap (im2col).
_MOST_UNFOLDED = 2


class _AlongTwoError(UnmatchedError):
    """An index moves along two axes of a tile."""


@lru_cache(256)  # Anchors ask whose it is.
def direct_form(workload: Workload) -> Contraction:
    """The contraction: rows of an operand that is shifted, padded or computed, columns of the one that is packed.

    Raises:
        UnmatchedError: the reason that it is none, or that it is a plain matrix product.
    """
    try:
        return _form(workload)
    except _AlongTwoError:
        # Windows as taps and channels, of which there may be one: taps are loops.
        return _form(with_taps(workload, 1))


def _form(workload: Workload) -> Contraction:
    found = contraction(workload, rounded=False)
    if found is None:
        raise UnmatchedError("its sums are no products of rows and columns over common axes")
    if len(found.dots) > 1 or found.dtype not in MULTIPLIED:
        raise UnmatchedError("a register tile sums one product of floats")
    if found.is_packed and all(map(found.is_plain, found.tensors)) and len(found.rows) == len(found.reduced) == 1:
        raise UnmatchedError("no operand is shifted, padded or computed: it is a matrix product")
    form = _oriented(found)
    _check(form)
    form = _with_inner_reduction(form)
    ((a,), (b,)) = form.operands
    read, tiled = (read_of_box(form, a, ""), *accesses(b)), (form.m.name, form.n.name, form.k.name)
    for reason in filter(None, (why_not_sliced(x, tiled) for x in read)):
        raise _AlongTwoError(reason)
    return form


def _oriented(form: Contraction) -> Contraction:
    """The contraction with the operand whose panels have fewer elements for each of its tensor's as columns."""
    form = form.row_major
    (dot,) = form.dots
    exchanged = (dot.swapped,)
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


def _check(form: Contraction) -> None:
    """Raise UnmatchedError for operands and epilogues that are not read by slices."""
    ((a,), (b,)) = form.operands
    gathered = any(isinstance(e, LookUp) for _, result in form.results for e in distinct(result))
    if gathered or not form.has_plain_epilogue:
        raise UnmatchedError("its epilogue reads shifted or gathered elements")
    if _unfolded(form) > _MOST_UNFOLDED:
        raise UnmatchedError("both operands are shifted: panels would be an image for every tap")
    if any(isinstance(e, LookUp) for e in distinct(b)):
        raise UnmatchedError("its columns are gathered")
    if not in_place(a) and (reason := why_no_box(form, a)):
        raise UnmatchedError(reason)


def _with_inner_reduction(form: Contraction) -> Contraction:
    """The contraction with its reduced axes in the order of its rows' memory, the innermost last.

    The last one that moves along no index of m is k, if there is one.
    """
    ((a,), _) = form.operands
    box, read = box_of(form, a), read_of_box(form, a, "")
    strides = dense_strides(tuple(box.values()))

    def stride(x: Axis) -> int:
        return sum(i.step(x.name) * apart for i, apart in zip(box, strides, strict=True))

    ordered = sorted(form.reduced, key=lambda x: -abs(stride(x)))
    apart = [x for x in ordered if why_not_sliced(read, (form.m.name, x.name)) is None]
    return replace(form, reduced=tuple(ordered), k=(apart or ordered)[-1])
