"""The stages of a workload that dot units can compute."""

from __future__ import annotations

from search_spaces.structure.contraction import contraction
from search_spaces.structure.operand_types import operand_type
from search_spaces.structure.segmented import segmented
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Workload


def multiplied(workload: Workload) -> dict[str, str]:
    """The stages that dot units can compute, each with the element type of its operands.

    They are sums of products of two tensors; in a contraction also of values computed from tensors, in one of segments
    of elements of their tables, and in a chain of values computed from folds.
    """
    dtypes = {t.name: t.dtype for t in workload.inputs} | {s.name: s.dtype for s in workload.stages}
    plain = {s.name: dtypes[accesses(s.expression)[0].tensor] for s in workload.stages if s.is_contraction}
    form, of_segments = contraction(workload), segmented(workload)
    folds = {s.name for s in workload.stages if s.reduction}
    chained = [s for s in workload.stages if folds & {a.tensor for f in s.factors for a in accesses(f)}]
    of_chains = {s.name: operand_type(s.factors, dtypes) or "float32" for s in chained}
    dots = {d.stage: form.dtype for d in form.dots} if form else {}
    return of_chains | plain | dots | (dict.fromkeys(folds, of_segments.form.dtype) if of_segments else {})
