"""Attention by one call of PyTorch's scaled_dot_product_attention, which chooses among its libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from autosched.baselines.product_calls import Compute
from autosched.baselines.strided_operands import Operand, Placed, View, by_steps
from search_spaces import Stage, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, Position, div, mul, sub
from search_spaces.workloads.expressions.walking import variables

_LEAST = Literal(float("-inf"))


@dataclass(frozen=True)
class _Attention:
    """softmax(scale q kᵀ + mask) v, its axes outermost first; `reads`: q, k, v and, if there is one, the mask."""

    batch: tuple[str, ...]
    query: str
    key: str
    summed: str
    value: str
    reads: tuple[Access, ...]
    scale: float
    causal: bool


def attention_call(workload: Workload) -> Compute | None:
    """The workload by one attention, causal or not, with a mask that is added or without, or None."""
    form = _attention(workload)
    operands = [Operand.of(workload, access) for access in form.reads] if form is not None else []
    if form is None or None in operands:
        return None
    extents = {x.name: x.extent for stage in workload.stages for x in stage.loops}
    batch = by_steps(form.batch, Operand.of_output(workload).steps)
    outer = [[*batch[:-1]], [*batch[-1:]]]
    inner = [(form.query, form.summed), (form.key, form.summed), (form.key, form.value), (form.query, form.key)]
    pairs = zip(operands, inner, strict=False)
    views = [o.view(extents, [*outer, *([x] for x in axes)]) for o, axes in pairs if o is not None]
    placed = Placed.of(workload, [*outer, [form.query], [form.value]])
    found = [view for view in views if view is not None]
    return _computing(form, found, placed) if placed is not None and len(found) == len(views) else None


def _computing(form: _Attention, views: Sequence[View], placed: Placed) -> Compute:
    def compute(tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
        q, k, v, *mask = (view.of(tensors, begins) for view in views)
        added = mask[0] if mask else None
        made = scaled_dot_product_attention(q, k, v, added, is_causal=form.causal, scale=form.scale)
        return placed.written_by(made)

    return compute


def _attention(workload: Workload) -> _Attention | None:
    if len(workload.stages) != 4 or len({t.dtype for t in (*workload.inputs, *workload.outputs)}) > 1:
        return None
    scores, largest, total, out = workload.stages
    folds = [(s.reduction.operator, len(s.reduction.axes)) for s in workload.stages if s.reduction and not s.scan]
    match scores.expression, out.expression:
        case Apply("mul", (Access() as q, Access() as k)), Apply("mul", (_, Access() as v)):
            pass
        case _:
            return None
    if folds != [("sum", 1), ("max", 1), ("sum", 1), ("sum", 1)] or len(scores.axes) != len(out.axes):
        return None
    key, summed, *others = (s.reduction.axes[0].name for s in (out, scores, largest, total) if s.reduction)
    kept = [x.name for x in largest.axes]
    queries = [x for x in kept if x in variables(q) - variables(k)]
    values = [x.name for x in out.axes if x.name not in kept]
    if len(values) != 1 or not queries or others != [key, key]:
        return None
    # Heads that share keys are axes of a batch.
    (query,), (value,) = queries[-1:], values
    found = _scores(largest.expression, _own(scores), query, key)
    if found is None:
        return None
    scale, causal, mask = found
    if not _is_softmax(workload.stages, v, bool(mask)):
        return None
    batch = tuple(x for x in kept if x != query)
    axes = {*batch}, {query, summed}, {key, summed}, {key, value}, {query, key}
    reads = (q, k, v, *mask)
    fits = all(variables(read) <= axes[0] | of for read, of in zip(reads, axes[1:], strict=False))
    return _Attention(batch, query, key, summed, value, reads, scale, causal) if fits else None


def _scores(
    expression: Expression, product: Access, query: str, key: str
) -> tuple[float, bool, tuple[Access, ...]] | None:
    """The scale of the scores, True for causal ones, and the mask that is added to them."""
    later = Position(Affine.of((key, 1), (query, -1)))
    causal = False
    match expression:
        case Apply("where", (Apply("le", (at, Literal(0.0))), inner, least)) if (at, least) == (later, _LEAST):
            expression, causal = inner, True
    mask: tuple[Access, ...] = ()
    match expression:
        case Apply("add", (inner, Access() as added)) if not causal and added != product:
            expression, mask = inner, (added,)
    match expression:
        case Apply("mul", (scored, Literal(scale))) if scored == product:
            return scale, causal, mask
        case _:
            return (1.0, causal, mask) if expression == product else None


def _is_softmax(stages: Sequence[Stage], values: Access, masked: bool) -> bool:
    """True if the last three stages are a softmax of the scores, times the values, or 0 in rows that see no key.

    As the library has it; only with a `mask` there may be such rows, and other softmaxes have NaN there.
    """
    _, largest, total, out = stages
    score, most, sum_of = largest.expression, _own(largest), _own(total)
    finite = Apply("where", (Apply("eq", (most, _LEAST)), Literal(0.0), most))
    known = Apply("where", (sum_of, sum_of, Literal(1.0)))
    plain = () if masked else ((most, sum_of),)
    for subtracted, divided in (*plain, (finite, known)):
        weight = Apply("exp", (sub(score, subtracted),))
        part = div(weight, divided)
        rounded = Apply(f"round_{out.dtype}", (part,)) if out.dtype != "float32" else part
        if total.expression == weight and out.expression in (mul(part, values), mul(rounded, values)):
            return True
    return False


def _own(stage: Stage) -> Access:
    return Access(stage.name, tuple(axis_index(x.name) for x in stage.axes))
