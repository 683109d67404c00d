"""Folds of rows and folds of columns over one read: the structure of sums over both, and of gradients of norms.

left[r] = sum over c of x[r, c]                 the part of the rows
out[r, c] = x[r, c] * left[r]
top[c] = sum over r of x[r, c] * left[r]        a fold of the columns, which may read those of the rows
last[c] = top[c] * 2                            the epilogue of that fold
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from search_spaces.errors import UnmatchedError
from search_spaces.structure.axes import Structure, structure_of
from search_spaces.structure.reads.memory_walks import largest_walk, memory_walks
from search_spaces.structure.reads.windows import inlined_reads
from search_spaces.structure.stages import with_axes_named
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Workload


def crossed_of(workload: Workload) -> Structure:
    """The structure of the workload, with its axes merged and called r and c: of its rows, and the `crossed` folds.

    Raises:
        UnmatchedError: the reason that it has none.
    """
    workload = inlined_reads(workload)
    axes = {x.name: x for s in workload.stages for x in s.loops}
    folds = [s for s in workload.stages if s.reduction]
    if any(s.scan for s in workload.stages):
        raise UnmatchedError("scans do not go with folds along rows and columns")
    if any(s.is_contraction and is_integer(s.dtype) for s in folds):
        raise UnmatchedError("sums of products of integers are not folded as rows")
    over = {tuple(x.name for x in s.reduction.axes) for s in folds if s.reduction}
    if len(axes) != 2 or len(over) != 2 or over != {(name,) for name in axes}:
        raise UnmatchedError(f"folds are over {sorted(map(list, over))}; expected both of two axes, each by itself")
    walk = largest_walk(memory_walks(workload), axes.values())
    column = min(walk, key=lambda x: walk[x], default=None)
    if column is None:
        raise UnmatchedError("nothing is walked along both axes")
    names = {name: "c" if name == column.name else "r" for name in axes}
    return _divided(with_axes_named(workload, names))


def _divided(workload: Workload) -> Structure:
    """The part of the rows, with the folds of columns, which no stage of the rows reads."""
    down = [s for s in workload.stages if s.reduction and [x.name for x in s.reduction.axes] == ["r"]]
    late = _reading(workload, {s.name for s in down})
    for stage in workload.stages:
        if stage.name in late and [x.name for x in stage.axes] != ["c"]:
            raise UnmatchedError(
                f"{stage.name} has axes {[x.name for x in stage.axes]}, of folds of all rows; expected c"
            )
        if stage.reduction and any(a.tensor in late for a in accesses(stage.expression)):
            raise UnmatchedError(f"{stage.name} folds what is computed from folds of all rows")
    outputs = [s for s in workload.stages if s.name in workload.output_names]
    first = [s.name for s in outputs if s.name not in late]
    across = [s.name for s in workload.stages if s.reduction and s not in down]
    kept = first or across[-1:]
    strides = dict(zip(workload.output_names, workload.output_strides, strict=True))
    needed = _needed(workload, {*kept, *across})
    part = replace(
        workload,
        stages=tuple(s for s in workload.stages if s.name in needed),
        output_names=tuple(kept),
        output_strides=tuple(strides.get(name) for name in kept),
    )
    rows = structure_of(part)
    if [x.name for x in rows.parallel] != ["r"] or [x.name for x in rows.reduced] != ["c"] or rows.outer:
        raise UnmatchedError("rows do not lie along memory")
    return replace(rows, workload=workload, crossed=tuple(down))


def _reading(workload: Workload, names: Collection[str]) -> set[str]:
    """The stages of these names, and those that are computed from them."""
    found = set(names)
    for stage in workload.stages:
        if any(a.tensor in found for a in accesses(stage.expression)):
            found.add(stage.name)
    return found


def _needed(workload: Workload, names: Collection[str]) -> set[str]:
    """The stages of these names, and those from which they are computed."""
    found = set(names)
    for stage in reversed(workload.stages):
        if stage.name in found:
            found |= {a.tensor for a in accesses(stage.expression)}
    return found
