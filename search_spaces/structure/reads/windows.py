"""Recomputation at the reader: stages at shifted indices, and folds over windows, which have no tile of their own.

    y[i] = relu(x[i])                           out[i] = relu(x[i + 1]) - relu(x[i])
    out[i] = y[i + 1] - y[i]            →

    out[i] = max over k of x[2 i + k]   →       out[i] = maximum(maximum(x[2 i], x[2 i + 1]), x[2 i + 2])

A window is read at sums of a folded axis and another one. Along a tile of both, each element would be read once for
every place of the window that it is in. A few positions whose fold others fold again (the sum of maxima of pairs) are
unrolled as well: a tile along them would be nearly empty.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import reduce

from search_spaces.errors import UnmatchedError
from search_spaces.workloads.canonical.inlining import at_index, element
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import accesses, rewritten
from search_spaces.workloads.stages import JOINED_BY
from search_spaces.workloads.workload import Axis, Stage, Workload

# Positions of a window that are unrolled: 8 x 8. Compilers take a second for a few hundred.
MAX_WINDOW = 64
# The most of them in an iteration of a loop over the others: a row of a window of 31 x 31.
_MAX_ITERATION = 32
# The most positions of a fold of folds that are unrolled besides windows: a tile of them would fill a few lanes.
_FEW = 8


def inlined_reads(workload: Workload, in_loops: bool = False) -> Workload:
    """The workload with windows unrolled, and stages read at their own axes only.

    `in_loops`: of windows that are large for that, the last axes are unrolled, and the first ones folded.

    Raises:
        UnmatchedError: a fold is not read at its own axes, or a stage is read outside of its extents.
    """
    known: dict[str, Stage] = {}
    for stage in workload.stages:
        own = _read_at_own_axes(stage, known)
        written = _written_out(own, _few_folded_again(own, workload.stages) or window_of(own), in_loops)
        # Written out, it reads stages at positions of its window.
        known[stage.name] = _read_at_own_axes(written, known)
    if tuple(known.values()) == workload.stages:
        return workload
    needed = _needed(known, workload.output_names)
    return replace(workload, stages=tuple(s for s in known.values() if s.name in needed))


def _read_at_own_axes(stage: Stage, known: Mapping[str, Stage]) -> Stage:
    return replace(stage, expression=rewritten(stage.expression, lambda e: _elsewhere(e, known)))


def _elsewhere(e: Expression, known: Mapping[str, Stage]) -> Expression | None:
    """The value of a stage at another index than its own axes, if the expression reads one there."""
    if not isinstance(e, Access) or e.tensor not in known:
        return None
    stage = known[e.tensor]
    if e.index == tuple(axis_index(x.name) for x in stage.axes) and e.fill is None:
        return None
    if not stage.is_pointwise:
        raise UnmatchedError(f"{ex.to_text(e)} is a fold or a scan, and is not read at its own axes")
    if e.fill is not None:
        raise UnmatchedError(f"{ex.to_text(e)} reads what is computed outside of it")
    return element(stage, e.index)


def _needed(stages: Mapping[str, Stage], outputs: Collection[str]) -> set[str]:
    """The stages that the outputs depend on."""
    found: set[str] = set()
    rest = list(outputs)
    while rest:
        name = rest.pop()
        if name in stages and name not in found:
            found.add(name)
            rest += stages[name].read
    return found


def _few_folded_again(stage: Stage, stages: Collection[Stage]) -> list[Axis]:
    """The folded axes of a stage, if they have few positions and what folds it, folds nothing else.

    Not of integers, which others read as numbers of float32; nor next to products and scans.
    """
    if stage.reduction is None or math.prod(x.extent for x in stage.reduction.axes) > _FEW:
        return []
    if is_integer(stage.dtype) or any(s.is_contraction or s.scan for s in stages):
        return []
    others = [s for s in stages if s.reduction and not {*stage.axes}.isdisjoint(s.reduction.axes)]
    again = all({*s.loops} <= {*stage.axes} for s in others)
    return [*stage.reduction.axes] if others and again else []


def _written_out(stage: Stage, window: list[Axis], in_loops: bool) -> Stage:
    """The stage with the axes of its window, if any, unrolled."""
    if stage.reduction is None or (stage.is_contraction and is_integer(stage.dtype)):
        return stage
    most = _MAX_ITERATION if in_loops else MAX_WINDOW
    if math.prod(x.extent for x in window) > most:
        window = _last(window) if in_loops else []
    if not window:
        return stage
    operator = JOINED_BY[stage.reduction.operator]
    values = [at_index(stage.expression, index) for index in _positions(stage, window)]
    rest = tuple(x for x in stage.reduction.axes if x not in window)
    whole = reduce(lambda a, b: Apply(operator, (a, b)), values)
    return replace(stage, expression=whole, reduction=replace(stage.reduction, axes=rest) if rest else None)


def window_of(stage: Stage) -> list[Axis]:
    """The folded axes that index a dimension together with others."""
    folded = stage.reduction.axes if stage.reduction else ()
    sums = (i for a in accesses(stage.expression) for i in a.index if len(i.terms) > 1)
    summed = {v for index in sums for v, _ in index.terms}
    return [x for x in folded if x.name in summed]


def _last(window: list[Axis]) -> list[Axis]:
    """As many of the last axes as fit into one iteration of a loop."""
    while math.prod(x.extent for x in window) > _MAX_ITERATION:
        window = window[1:]
    return window


def _positions(stage: Stage, window: list[Axis]) -> Iterator[dict[str, Affine]]:
    """The loops of the stage at every position of the window, row-major."""
    own = {name: axis_index(name) for name in stage.extents}
    for position in itertools.product(*(range(x.extent) for x in window)):
        yield own | {x.name: Affine.of(offset=at) for x, at in zip(window, position, strict=True)}
