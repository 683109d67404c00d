"""Roles of a workload's axes in a chain (batch, rows, streamed ones: `walked`), and roles of its folds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from search_spaces.errors import UnmatchedError
from search_spaces.structure.axes import check_extents
from search_spaces.structure.chains.chain import Chain, ChainedProduct
from search_spaces.structure.chains.chain import axes_text as text
from search_spaces.structure.operand_types import operand_type
from search_spaces.structure.stages import inline
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, mul, to_text
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.workload import Axis, Stage, Workload

# Positions of an axis from which on tiles are wanted along the innermost: of rows, and of streamed axes, which may be
# pages where only the positions within lie together.
_LONG_ROWS = 128
_LONG_PAGES = 16
# Rows within a block of a mask that suffice for tiles within one block, so that other ones can be skipped.
_SHORT_ROWS = 32


def classed(workload: Workload) -> Chain:
    """The folds of the workload as a chain, with the workload's names of axes.

    Raises:
        UnmatchedError: an axis or a fold has no place in one.
    """
    check_extents(workload)
    every = whole_folds(workload)
    walked = walked_axes(every)
    inner, beside, folds = _divided(every, walked)
    dtypes = {t.name: t.dtype for t in workload.inputs}
    products = tuple(_inner_product(s, walked, dtypes) for s in inner)
    kept = _kept_axes(inner, walked)
    carried = {s.name: _carried_product(s, kept, walked, dtypes) for s in _carrying(folds, kept)}
    others = tuple(_carried_product(s, kept, tuple(_summed_by(inner)), dtypes) for s in beside)
    rows = _row_axes(kept, products, (*carried.values(), *others))
    masks = [a for s in folds for a in accesses(s.expression) if dtypes.get(a.tensor) == "bool"]
    rows = _within_blocks(rows, walked, masks)
    _check_outputs(workload, kept, walked, {x for p in (*carried.values(), *others) for x in p.carried})
    batch = tuple(x for x in kept if x not in rows)
    last = _tiled_last(walked, _LONG_PAGES)
    return Chain(workload, batch, rows, last, products, tuple(folds), carried, _results(workload), others)


def _divided(
    every: Mapping[str, Stage], walked: Collection[Axis]
) -> tuple[Sequence[Stage], Sequence[Stage], Sequence[Stage]]:
    """The folds that have streamed axes, the others over the same axes as those, and those over the streamed ones."""
    inner = [s for s in every.values() if not {*s.axes}.isdisjoint(walked)]
    summed = _summed_by(inner)
    beside = [s for s in every.values() if s not in inner and s.reduction and {*s.reduction.axes} == summed]
    folds = [s for s in every.values() if s not in (*inner, *beside)]
    for fold in folds:
        if fold.reduction is None or {*fold.reduction.axes} != {*walked}:
            raise UnmatchedError(f"{fold.name} is not over {text(walked)}, as the other folds of what products make")
    return inner, beside, folds


def _summed_by(folds: Collection[Stage]) -> set[Axis]:
    return {x for s in folds if s.reduction for x in s.reduction.axes}


def _kept_axes(inner: Collection[Stage], walked: Collection[Axis]) -> Sequence[Axis]:
    """The axes that all inner products have, except streamed ones."""
    kept = list(dict.fromkeys(x for s in inner for x in s.axes if x not in walked))
    for stage in inner:
        if not {*kept} <= {*stage.axes}:
            raise UnmatchedError(f"{stage.name} has axes {text(stage.axes)}; expected {text(kept)} of every product")
    return kept


def _carrying(folds: Collection[Stage], kept: Collection[Axis]) -> Sequence[Stage]:
    """The folds with axes that other folds lack."""
    carried = {x for s in folds for x in s.axes} - {*kept}
    return [s for s in folds if not carried.isdisjoint(s.axes)]


def _row_axes(
    kept: Sequence[Axis], inner: Collection[ChainedProduct], others: Collection[ChainedProduct]
) -> tuple[Axis, ...]:
    """The kept axes that occur in no right operand, and in the left operands of all inner products."""
    of_columns = frozenset[str]().union(*(variables(p.b) for p in (*inner, *others)))
    found = [x for x in kept if x.name not in of_columns and all(x.name in variables(p.a) for p in inner)]
    rows = _tiled_last(found, _LONG_ROWS)
    if not rows:
        raise UnmatchedError(f"{text(kept)} are all of both operands: no rows share what is walked")
    return rows


def _within_blocks(rows: tuple[Axis, ...], walked: Sequence[Axis], masks: Sequence[Access]) -> tuple[Axis, ...]:
    """The rows with those within a block last, if a mask has blocks of rows by blocks of streamed positions."""
    for read in map(variables, masks):
        within = [x for x in rows if x.name not in read and x.extent >= _SHORT_ROWS]
        of_columns = [x.name in read for x in walked]
        if rows[-1].name in read and within and any(of_columns) and not all(of_columns):
            tiled = max(within, key=lambda x: x.extent)
            return (*(x for x in rows if x != tiled), tiled)
    return rows


def _results(workload: Workload) -> tuple[tuple[str, Expression], ...]:
    """The outputs, with everything inlined but folds."""
    rest = {s.name: s for s in workload.stages if not s.reduction}
    stages = {s.name: s for s in workload.stages}
    outputs = (stages[n] for n in workload.output_names)
    return tuple((s.name, own_access(s) if s.reduction else inline(s.expression, rest)) for s in outputs)


def whole_folds(workload: Workload) -> dict[str, Stage]:
    """The folds, with everything inlined but folds."""
    rest = {s.name: s for s in workload.stages if not s.reduction}
    return {s.name: replace(s, expression=inline(s.expression, rest)) for s in workload.stages if s.reduction}


def walked_axes(folds: Mapping[str, Stage]) -> tuple[Axis, ...]:
    """The streamed axes: those of folds that other folds are over."""
    found: list[Axis] = []
    for fold in folds.values():
        assert fold.reduction is not None
        for read in {a.tensor for a in accesses(fold.expression)} & folds.keys():
            if {*folds[read].axes} & {*fold.reduction.axes}:
                found += fold.reduction.axes
    if not found:
        raise UnmatchedError("no fold is of what several positions of a product hold")
    return tuple(dict.fromkeys(found))


def own_access(stage: Stage) -> Access:
    """The stage, read at its own axes."""
    return Access(stage.name, tuple(axis_index(x.name) for x in stage.axes))


def _check_outputs(
    workload: Workload, kept: Collection[Axis], walked: Collection[Axis], carried: Collection[Axis]
) -> None:
    for stage in workload.stages:
        beside = {*stage.axes} - {*kept}
        fits = {*kept} <= {*stage.axes} and (beside == {*walked} or beside <= {*carried})
        if stage.name in workload.output_names and not fits:
            every = f"{text(kept)} and those walked or carried"
            raise UnmatchedError(f"{stage.name} has axes {text(stage.axes)}; expected {every}")


def _inner_product(stage: Stage, walked: Sequence[Axis], dtypes: Mapping[str, str]) -> ChainedProduct:
    assert stage.reduction is not None
    summed, names = stage.reduction.axes, {x.name for x in walked}
    match stage.expression:
        case Apply("mul", (a, b)) if stage.reduction.operator == "sum":
            rows, columns = (b, a) if variables(a) & names else (a, b)
        case _:
            raise UnmatchedError(f"{stage.name} is no sum of products")
    inputs_only = all(x.tensor in dtypes for x in (*accesses(a), *accesses(b)))
    over = {x.name for x in summed}
    if not inputs_only or variables(rows) & names or not names <= variables(columns):
        raise UnmatchedError(f"{stage.name} is no product of rows and of what has {text(walked)}")
    if not over <= variables(rows) & variables(columns) or len(summed) > 1:
        raise UnmatchedError(f"{stage.name} is summed over {text(summed)}; expected one axis that both operands have")
    return ChainedProduct(stage.name, rows, columns, summed, _multiplied(stage.name, rows, columns, dtypes))


def _carried_product(
    stage: Stage, kept: Sequence[Axis], walked: Sequence[Axis], dtypes: Mapping[str, str]
) -> ChainedProduct:
    """A fold that carries axes of its own: the factors with these axes, and the others."""
    assert stage.reduction is not None
    carried = tuple(x for x in stage.axes if x not in kept)
    names = {x.name for x in carried}
    factors = _factors(stage.expression)
    columns = [f for f in factors if variables(f) & names]
    rows = [f for f in factors if f not in columns]
    if stage.reduction.operator != "sum" or not rows or not columns or len(carried) > 1:
        raise UnmatchedError(f"{stage.name} is no sum of products that carries one axis; it has {text(carried)}")
    a, b = (_product(x) for x in (rows, columns))
    of_b = variables(b)
    if not {*names, *(x.name for x in walked)} <= of_b or any(x.tensor not in dtypes for x in accesses(b)):
        raise UnmatchedError(f"{stage.name} multiplies by {to_text(b)}, which is no tile of {text(walked)} by rows")
    dtype = _multiplied(stage.name, a, b, dtypes)
    if isinstance(a, Apply) and ROUNDINGS.get(a.operator) == dtype:
        (a,) = a.arguments
    return ChainedProduct(stage.name, a, b, stage.reduction.axes, dtype, carried)


def _multiplied(stage: str, a: Expression, b: Expression, dtypes: Mapping[str, str]) -> str:
    """The narrowest element type that represents both operands of a dot. Results of folds are float32."""
    folded = {x.tensor for x in (*accesses(a), *accesses(b))} - dtypes.keys()
    found = operand_type((a, b), {**dtypes, **dict.fromkeys(folded, "float32")})
    if found is None:
        raise UnmatchedError(f"{stage} multiplies integers; expected floats")
    return found


def _factors(e: Expression) -> list[Expression]:
    return [f for a in e.arguments for f in _factors(a)] if isinstance(e, Apply) and e.operator == "mul" else [e]


def _product(factors: Sequence[Expression]) -> Expression:
    first, *others = factors
    for factor in others:
        first = mul(first, factor)
    return first


def _tiled_last(axes: Sequence[Axis], enough: int) -> tuple[Axis, ...]:
    """The axes with the tiled one last: the innermost of those that are long enough, or the longest."""
    if not axes:
        return ()
    tiled = max(range(len(axes)), key=lambda i: (min(axes[i].extent, enough), i))
    return (*axes[:tiled], *axes[tiled + 1 :], axes[tiled])
