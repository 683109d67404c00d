"""The structure of a workload of one product, and what every structure is read with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_spaces.structure.merging import is_axis
from search_spaces.workloads import expression as ex
from search_spaces.workloads.dtypes import accumulator_of
from search_spaces.workloads.expression import Access, Apply, Expression, Gather
from search_spaces.workloads.workload import Axis, Stage, Workload


@dataclass(frozen=True)
class ContractionForm:
    """out[batch…, m, n] = epilogue(sum over k of a · b): one contraction, then only pointwise stages.

    `m` indexes only `a`, `n` only `b`; `result` is the epilogue with everything inlined but the contraction itself.
    """

    batch: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: Axis
    a: Access
    b: Access
    contraction: Stage
    result: Expression


def contraction_form(workload: Workload) -> ContractionForm | None:
    """The workload as one contraction with a pointwise epilogue, or None when it is something else.

    Its axes are called b (b0, b1 … when there are several), m, n and k in the form, whatever they are in the workload.
    """
    found = _contraction_form(workload)
    if found is None:
        return None
    names = {x.name: "b" if len(found.batch) == 1 else f"b{i}" for i, x in enumerate(found.batch)}
    names |= {found.m.name: "m", found.n.name: "n", found.k.name: "k"}
    return _contraction_form(with_axes_named(workload, names))


def _contraction_form(workload: Workload) -> ContractionForm | None:
    first, *rest = workload.stages
    if workload.output_names != (workload.stages[-1].name,):
        return None
    if not first.is_contraction or not is_plain(workload) or any(s.reduction for s in rest):
        return None
    assert first.reduction is not None
    assert isinstance(first.expression, Apply)
    left, right = first.expression.arguments
    assert isinstance(left, Access)
    assert isinstance(right, Access)
    if len(first.reduction.axes) != 1 or any(s.axes != first.axes for s in rest):
        return None
    in_left, in_right = _variables(left), _variables(right)
    only_left = [x for x in first.axes if x.name in in_left - in_right]
    only_right = [x for x in first.axes if x.name in in_right - in_left]
    batch = tuple(x for x in first.axes if x.name in in_left & in_right)
    k = first.reduction.axes[0]
    if len(only_left) != 1 or len(only_right) != 1 or k.name not in in_left & in_right:
        return None
    m, n, a, b = only_left[0], only_right[0], left, right
    if first.axes != (*batch, m, n):
        m, n, a, b = n, m, right, left
    if first.axes != (*batch, m, n):
        return None
    own = Access(first.name, tuple(ex.axis_index(x.name) for x in first.axes))
    result = inline(Access(rest[-1].name, own.index), {s.name: s for s in rest}) if rest else own
    return ContractionForm(batch, m, n, k, a, b, first, result)


def accumulator_dtype(workload: Workload) -> str:
    """The element type in which the products of the workload's contraction are summed: float32, int32 for integers.

    The epilogue computes in float32 all the same. Without one, int32 sums go to an int32 output as they are.
    """
    return accumulator_of(workload.contracted[0])


def inline(expression: Expression, stages: dict[str, Stage]) -> Expression:
    """The expression with every access to one of `stages` replaced by what that stage computes.

    Stages are accessed at their own axes here; a stage that reduces cannot be inlined.
    """

    def inlined(e: Expression) -> Expression | None:
        own = isinstance(e, Access) and e.tensor in stages
        return inline(stages[e.tensor].expression, stages) if own and isinstance(e, Access) else None

    return ex.rewritten(expression, inlined)


def is_plain(workload: Workload) -> bool:
    """Whether every index is just an axis, and stages are read at their own axes."""
    stages = {s.name: s for s in workload.stages}
    for stage in workload.stages:
        forms = (i for e in ex.walk(stage.expression) if isinstance(e, Access | Gather) for i in e.index)
        if any(isinstance(i, ex.Affine) and not is_axis(i) for i in forms):
            return False
        if any(a.fill is not None for a in ex.accesses(stage.expression)):
            return False
        for access in ex.accesses(stage.expression):
            names = [i.terms[0][0] for i in access.index]
            if len(set(names)) != len(names):
                return False
            if access.tensor in stages and names != [a.name for a in stages[access.tensor].axes]:
                return False
    return True


def with_axes_named(workload: Workload, names: dict[str, str]) -> Workload:
    """The same workload with other names for its axes."""

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(names[x.name], x.extent) for x in given)

    def form(index: ex.Affine) -> ex.Affine:
        return ex.Affine.of(*((names[v], c) for v, c in index.terms), offset=index.offset)

    stages = tuple(
        replace(
            s,
            axes=axes(s.axes),
            expression=ex.reindexed(s.expression, form),
            reduction=replace(s.reduction, axes=axes(s.reduction.axes)) if s.reduction else None,
        )
        for s in workload.stages
    )
    return replace(workload, stages=stages)


def _variables(access: Access) -> set[str]:
    return {v for index in access.index for v, _ in index.terms}
