"""Workloads with only the parts of their inputs that they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from search_spaces import Tensor, Workload
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression, LookUp
from search_spaces.workloads.expressions.walking import accesses, distinct, rewritten


def read_part(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[Workload, tuple[torch.Tensor, ...]]:
    """The same computation of boxes of its inputs: w[3, k, n] of all of w is w[0, k, n] of w[3:4]."""
    boxes = {t.name: _box(t, workload) for t in workload.inputs}

    def moved(e: Expression) -> Expression | None:
        box = boxes.get(e.tensor) if isinstance(e, Access) else None
        if not isinstance(e, Access) or box is None:
            return None
        return Access(e.tensor, tuple(i + Affine(offset=-first) for i, (first, _) in zip(e.index, box, strict=True)))

    stages = tuple(replace(s, expression=rewritten(s.expression, moved)) for s in workload.stages)
    kept, parts = [], []
    for tensor, given in zip(workload.inputs, inputs, strict=True):
        box = boxes[tensor.name]
        kept.append(tensor if box is None else Tensor(tensor.name, tuple(n for _, n in box), tensor.dtype))
        parts.append(given if box is None else given[tuple(slice(first, first + n) for first, n in box)])
    return replace(workload, inputs=tuple(kept), stages=stages), tuple(parts)


def _box(tensor: Tensor, workload: Workload) -> tuple[tuple[int, int], ...] | None:
    """First index and size of what is read along each dimension; None where that is data, or beyond the tensor."""
    if any(isinstance(e, LookUp) and e.tensor == tensor.name for s in workload.stages for e in distinct(s.expression)):
        return None
    reads: list[tuple[Access, Mapping[str, int]]] = [
        (a, s.extents) for s in workload.stages for a in accesses(s.expression) if a.tensor == tensor.name
    ]
    if not reads or any(a.fill is not None for a, _ in reads):
        return None
    firsts = [min(a.index[d].minimum(extents) for a, extents in reads) for d in range(len(tensor.shape))]
    lasts = [max(a.index[d].maximum(extents) for a, extents in reads) for d in range(len(tensor.shape))]
    return tuple((first, last + 1 - first) for first, last in zip(firsts, lasts, strict=True))
