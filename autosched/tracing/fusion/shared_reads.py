"""Tensors that a kernel reads in several places, shifted, or outside: one input for all of its reads.

An element is pulled with the dimensions of its tensor, where its index may be outside; or else by plain axes:

    x[b, h - 1 or 0, w], x[b, h, w + 1 or 0], x0[bhw]    →    x[b, h - 1 or 0, w], x[b, h, w + 1 or 0], x[b, h, w]

Dimensions that all reads index alike, and inside, become plain axes, which can be merged; the others keep their sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from autosched.tracing.values.positions import within
from autosched.tracing.values.pulled import Pulled
from autosched.tracing.values.tensor_reads import MemoryView, TensorRead, in_order, view_of, whole_of
from autosched.tracing.values.values import Extents
from search_spaces import InputError, Stage
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, LookUp
from search_spaces.workloads.expressions.walking import accesses, distinct, rewritten
from search_spaces.workloads.strides import check_strides

_Forms = tuple[Affine, ...]
_T = TypeVar("_T")


def with_shared_reads(pulled: Pulled) -> tuple[list[Stage], list[TensorRead]]:
    """The stages and operands of a kernel with the fewest inputs that such tensors need."""
    stages, operands = list(pulled.stages), list(pulled.reads.operands.values())
    gathered = {e.tensor for s in stages for e in distinct(s.expression) if isinstance(e, LookUp)}
    # Views that add dimensions of size 1 read the same tensor.
    there = [(n, each) for n, origin in pulled.reads.origins.items() for each in (_without_units(*origin), origin)]
    shared: dict[str, _Shared] = {}
    moved: dict[str, tuple[_Shared, _Forms]] = {}
    for whole in [o for o in operands if not o.is_plain and o.name not in gathered]:
        same = {n: forms for n, (view, forms) in there if replace(whole_of(view), name=whole.name) == whole}
        reads = [r for s in stages for r in _reads(s, whole.name, _movable(s, same, operands))]
        made = _shared(whole, reads, pulled) if reads else None
        if made is not None:
            shared[whole.name] = made
            moved |= {name: (made, forms) for name, forms in same.items()}
    if not shared:
        return stages, operands
    stages = [_read_by(s, shared, _movable(s, moved, operands)) for s in stages]
    return stages, [shared[o.name].operand if o.name in shared else o for o in operands]


def _without_units(strided: MemoryView, forms: _Forms) -> tuple[MemoryView, _Forms]:
    """The view, and an index of it, without dimensions of size 1."""
    kept = [d for d, size in enumerate(strided.shape) if size > 1]
    shape, strides = (tuple(each[d] for d in kept) for each in (strided.shape, strided.strides))
    return replace(strided, shape=shape, strides=strides), tuple(forms[d] for d in kept)


def _movable(stage: Stage, reads: Mapping[str, _T], operands: Sequence[TensorRead]) -> Mapping[str, _T]:
    """The reads by plain axes that need not stay so: contractions keep those of what they multiply."""
    if not stage.is_contraction:
        return reads
    bounds = {o.name for o in operands if is_integer(o.value.dtype)} - {a.tensor for a in _multiplied(stage)}
    return {name: read for name, read in reads.items() if name in bounds}


def _multiplied(stage: Stage) -> Iterator[Access]:
    """The factors of a product that are elements of tensors."""
    return (factor for factor in stage.factors if isinstance(factor, Access))


def _reads(stage: Stage, whole: str, same: Mapping[str, _Forms]) -> Iterator[_Forms]:
    """The indices at which a stage reads the tensor, by its own dimensions."""
    for access in accesses(stage.expression):
        if access.tensor == whole:
            yield access.index
        elif access.tensor in same:
            yield same[access.tensor]


@dataclass(frozen=True)
class _Shared:
    """An operand with dimensions of a tensor: `own` are kept, in the order of the operand."""

    operand: TensorRead
    own: tuple[int, ...]

    def access(self, forms: _Forms) -> Access:
        """The element at these indices by the dimensions of the tensor."""
        own = iter(self.own)
        named = zip(self.operand.strides, self.operand.sizes, strict=True)
        index = tuple(axis_index(v) if size is None else forms[next(own)] for (v, _), size in named)
        return Access(self.operand.name, index)


def _read_by(stage: Stage, shared: Mapping[str, _Shared], moved: Mapping[str, tuple[_Shared, _Forms]]) -> Stage:
    """The stage with tensors read as shared: by their own indices, or by these forms instead of plain axes."""

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access):
            return None
        if e.tensor in shared:
            return replace(shared[e.tensor].access(e.index), fill=e.fill)
        if e.tensor in moved:
            made, forms = moved[e.tensor]
            return made.access(forms)
        return None

    return replace(stage, expression=rewritten(stage.expression, change))


def _shared(whole: TensorRead, reads: Sequence[_Forms], pulled: Pulled) -> _Shared | None:
    """The operand for all these reads; None where the tensor is better left unchanged."""
    sizes = [n for n in whole.sizes if n is not None]
    first, rank, extents = reads[0], range(len(sizes)), pulled.extents
    own = {d for d in rank if any(r[d] != first[d] or not within(r[d], sizes[d], extents) for r in reads)}
    own |= {d for d in rank if any(c < 0 or v in pulled.reads.windows for v, c in first[d].terms)}
    sums = {d for d in rank if len(first[d].terms) > 1}
    for kept in (own, own | sums):
        made = _operand(whole, reads, kept, extents)
        if made is not None:
            return made
    return None


def _operand(whole: TensorRead, reads: Sequence[_Forms], own: set[int], extents: Extents) -> _Shared | None:
    """The operand with these dimensions kept; None where the rest does not form a tensor."""
    strides = [s for _, s in whole.strides]
    kept_axes = {v for r in reads for d in own for v, _ in r[d].terms}
    plain = [d for d in range(len(strides)) if d not in own]
    address = sum((reads[0][d] * strides[d] for d in plain), Affine(offset=whole.offset))
    if any(v in kept_axes for v, _ in address.terms):
        return None
    kept = [(*whole.strides[d], whole.sizes[d]) for d in sorted(own)]
    made = in_order(replace(whole, offset=address.offset), [*((v, s, None) for v, s in address.terms), *kept])
    view = view_of(made, extents)
    try:
        check_strides(made.name, view.shape, view.strides)
    except InputError:
        return None
    places = {name: d for d, (name, _) in enumerate(whole.strides)}
    return _Shared(made, tuple(places[v] for v, _ in made.strides if v not in made.axes))
