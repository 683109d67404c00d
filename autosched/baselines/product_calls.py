"""Matrix products by one call of BLAS, with a bias, a residual or a relu that the call includes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autosched.baselines.strided_operands import Operand, Placed, View, by_steps
from autosched.baselines.sums_of_products import SumOfProducts
from search_spaces import Workload
from search_spaces.workloads.expressions.walking import variables

# Takes tensors and the elements at which the operands of a workload begin in them; returns the output.
Compute = Callable[[Sequence[Tensor], Sequence[int]], Tensor]


def product_call(workload: Workload) -> Compute | None:
    """The workload by torch.mm, addmm, bmm or baddbmm, or None."""
    form = SumOfProducts.of(workload)
    if form is None or not form.is_whole or len(form.addends) > 1:
        return None
    first, second = form.a, form.b
    if form.axes and form.axes[-1] in variables(first):
        # Columns are innermost in the output.
        first, second = second, first
    a, b, out = Operand.of(workload, first), Operand.of(workload, second), Operand.of_output(workload)
    if a is None or b is None:
        return None
    rows, columns = (by_steps(form.only_in(*pair), out.steps) for pair in ((first, second), (second, first)))
    batch, reduced = by_steps(form.in_both, out.steps), by_steps(form.reduced, a.steps)
    outer = [batch] if batch else []
    views = a.view(form.extents, [*outer, rows, reduced]), b.view(form.extents, [*outer, reduced, columns])
    placed = Placed.of(workload, [*outer, rows, columns])
    addend = _addend(form, outer, rows, columns)
    if views[0] is None or views[1] is None or placed is None or (form.addends and addend is None):
        return None
    return _multiplying(views[0], views[1], addend, placed, form.relu)


def _addend(form: SumOfProducts, outer: Sequence[list[str]], rows: list[str], columns: list[str]) -> View | None:
    """The added tensor as BLAS takes it: a vector where it is the same in all rows, as a bias is."""
    operand = Operand.of(form.workload, form.addends[0]) if form.addends else None
    if operand is None:
        return None
    moved = any(operand.steps.get(axis) for axis in (*rows, *(x for axes in outer for x in axes)))
    return operand.view(form.extents, [*outer, rows, columns] if moved or outer else [columns])


def _multiplying(a: View, b: View, addend: View | None, placed: Placed, relu: bool) -> Compute | None:
    batched = len(a.shape) > 2
    if addend is None:
        if relu:
            return None
        multiply = torch.bmm if batched else torch.mm

        def plain(tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
            made = placed.allocated(tensors[0].device)
            multiply(a.of(tensors, begins), b.of(tensors, begins), out=placed.seen(made))
            return made

        return plain
    if relu and batched:
        return None
    add = torch._addmm_activation if relu else torch.baddbmm if batched else torch.addmm

    def adding(tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
        made = placed.allocated(tensors[0].device)
        given = (each.of(tensors, begins) for each in (addend, a, b))
        add(*given, out=placed.seen(made))
        return made

    return adding
