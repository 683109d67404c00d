"""Structure of a workload without dots: its parallel and reduced axes, its folds, scans and outputs.

    total[n, g] = sum over c, i of x[n, g, c, i]                          parallel  n, g
    out[n, g, c, i] = x[n, g, c, i] - total[n, g] * 1/4096 + bias[g, c]   reduced   c, i

An axis is reduced if a stage folds it or scans along it, and parallel otherwise. Other stages are computed at their
readers. An output with all axes is stored point by point, one with the parallel axes once for each of their positions
(a row). Without reduced axes, all work is pointwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces.errors import UnmatchedError
from search_spaces.structure.contraction import contraction
from search_spaces.structure.reads.memory_walks import largest_walk, memory_walks
from search_spaces.structure.reads.windows import inlined_reads, window_of
from search_spaces.structure.scans_apart import scans_apart
from search_spaces.structure.stages import inline, with_axes_named
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage, Workload

# Positions of an axis in one tile of any kernel, at most.
_MOST_HELD = 4096
# The most positions folded besides a window: from so many on, matrix instructions multiply them.
_FEW = 16


@dataclass(frozen=True)
class Structure:
    """The axes of a workload, the outermost first, and its folds and scans in order; `workload` has these axes.

    Tiles have several positions of the last parallel axis and of the last reduced one. `outer`: neighbours in memory
    are neighbours along the last parallel axis, as in the sum of each column of a row-major matrix. `even`: that holds
    for every tensor. `kept_count`: number of reduced axes that some folds keep. `crossed`: folds of the parallel axis,
    which no stage with rows reads (`structure.crossed`).
    """

    workload: Workload
    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...] = ()
    folds: tuple[Stage, ...] = ()
    outer: bool = False
    even: bool = True
    kept_count: int = 0
    scans: tuple[Stage, ...] = ()
    crossed: tuple[Stage, ...] = ()

    @property
    def kept(self) -> tuple[Axis, ...]:
        """The first reduced axes, if some folds keep them and others fold the results."""
        return self.reduced[: self.kept_count]

    @property
    def row(self) -> Axis | None:
        """The parallel axis along which tiles have several positions, if any."""
        return self.parallel[-1] if self.parallel else None

    @property
    def rows(self) -> int:
        """Number of rows: the extent of that axis."""
        return self.row.extent if self.row else 1

    @property
    def column(self) -> Axis:
        """The reduced axis along which tiles have several positions."""
        return self.reduced[-1]

    @property
    def outputs(self) -> tuple[Stage, ...]:
        stages = {s.name: s for s in self.workload.stages}
        return tuple(map(stages.__getitem__, self.workload.output_names))

    def body_of(self, stage: Stage) -> Expression:
        """The stage's value at one point, with everything inlined but folds and scans."""
        return inline(stage.expression, {s.name: s for s in self.workload.stages if s.is_pointwise})

    def read_folds(self, stage: Stage) -> tuple[Stage, ...]:
        """The folds that the stage reads, except through other folds."""
        read = {a.tensor for s in (stage, *self.read_scans([stage])) for a in accesses(self.body_of(s))}
        return tuple(s for s in self.folds if s.name in read)

    def read_scans(self, stages: Iterable[Stage]) -> tuple[Stage, ...]:
        """The scans among the stages and those that they read, also through others, with all members, in order."""
        found: set[str] = set()
        rest = list(stages) if self.scans else []
        while rest:
            stage = rest.pop()
            named = {*(stage.scan.members if stage.scan else ()), *(a.tensor for a in accesses(self.body_of(stage)))}
            rest += [s for s in self.scans if s.name in named - found]
            found |= named
        return tuple(s for s in self.scans if s.name in found)

    def depends_on_parts(self, stage: Stage) -> bool:
        """True if the stage is computed from folds of only some of the reduced axes."""
        return any(
            s.reduction is None or set(s.reduction.axes) != set(self.reduced) or self.depends_on_parts(s)
            for s in self.read_folds(stage)
        )

    @property
    def folds_scans_of_folds(self) -> bool:
        """True if a fold reads scans of other folds, which a loop over the columns has too late."""
        return any(self.read_scans([fold]) and self.read_folds(fold) for fold in self.folds)

    @property
    def backwards(self) -> bool:
        """True if scans go from the last column to the first."""
        return any(s.scan.reverse for s in self.scans if s.scan)

    def is_per_point(self, output: Stage) -> bool:
        """True if the output has reduced axes: it is not one value per row."""
        return not set(self.reduced).isdisjoint(output.axes)


def structure_of(workload: Workload) -> Structure:
    """The structure of the workload, with its axes merged.

    Reduced workloads get new names of axes: r (r0, r1 … if several) and c (c0, c1 …, c).

    Raises:
        UnmatchedError: the reason that it has none.
    """
    found = _structure_or_reason(workload)
    if isinstance(found, str):
        raise UnmatchedError(found)
    return found


@lru_cache(256)  # Every anchor asks, and so does the partition of a function into kernels.
def _structure_or_reason(workload: Workload) -> Structure | str:
    try:
        return _structure(workload)
    except UnmatchedError as why:
        return str(why)


def windowed(workload: Workload) -> Structure:
    """The structure of a workload whose folds are all of windows, for loops over what is not unrolled of them.

    Its parallel axes are those of points, its reduced axes those of the loops: the rows of large windows, and a few
    positions besides windows, as the channels of a small group.

    Raises:
        UnmatchedError: the reason that it has none.
    """
    structure_of(workload)
    form = contraction(workload)
    if form and min(math.prod(x.extent for x in axes) for axes in (form.rows, form.columns)) >= _FEW:
        raise UnmatchedError(f"the product has rows and columns for dots, {_FEW} of each or more")
    windows = {s.name for s in workload.stages if window_of(s)}
    workload = inlined_reads(workload, in_loops=True)
    folds = {s.name: s for s in workload.stages if s.reduction}
    found = replace(_pointwise(workload), folds=tuple(folds.values()), reduced=tuple(_reduced(workload.stages)))
    read = {a.tensor for s in workload.stages for a in accesses(s.expression)}
    for stage in workload.stages:
        beside = math.prod(x.extent for x in _reduced([stage]) if x not in window_of(stage))
        if stage.scan or beside > _FEW or (stage.reduction and stage.name not in windows):
            raise UnmatchedError(f"{stage.name} is a scan, or folds more than a window of few channels")
    for stage in folds.values():
        if set(stage.axes) != set(found.parallel) or is_integral(stage.expression):
            raise UnmatchedError(f"{stage.name} is of other points than {_names(found.parallel)}, or of integers")
        stored = stage.name in workload.output_names
        if not read.isdisjoint(folds) if stored else stage.dtype != "float32":
            raise UnmatchedError(f"{stage.name} is rounded, and read by others")
        if any(a.tensor in folds for a in accesses(found.body_of(stage))):
            raise UnmatchedError(f"{stage.name} is a fold of folds")
    return found


def _structure(workload: Workload) -> Structure:
    workload = scans_apart(inlined_reads(workload))
    check_extents(workload)
    folds = [s for s in workload.stages if s.reduction]
    for stage in folds:
        if stage.is_contraction and _is_matrix_product(workload, stage):
            raise UnmatchedError(f"{stage.name} is a product of two tensors, for dots")
        # Rows are folded in float32, which would round sums of integers.
        if stage.is_contraction and is_integer(stage.dtype):
            raise UnmatchedError(f"{stage.name} sums products of integers, which is not done in {stage.dtype} here")
    if all(s.is_pointwise for s in workload.stages):
        return _pointwise(workload)
    return _with_own_names(_reducing(workload, [s for s in workload.stages if s.reduction]))


def _check_scans(scans: Sequence[Stage], reduced: Sequence[Axis]) -> None:
    """Refuse scans along several axes or in both directions along one, and scans next to folds over other axes."""
    if scans and len(reduced) > 1:
        raise UnmatchedError(f"{scans[0].name} is a scan, and axes beside its own are folded: {_names(reduced)}")
    if len({s.scan.reverse for s in scans if s.scan}) > 1:
        raise UnmatchedError(f"{scans[0].name} and other scans go both ways along {_names(reduced)}")


def _is_matrix_product(workload: Workload, product: Stage) -> bool:
    """True if a product is for dots: with its whole kernel, or by itself if that is no contraction.

    Products with a vector are reductions of rows.
    """
    form = contraction(workload)
    tensors = {t.name for t in workload.inputs}
    if form is None and len(workload.outputs) > 1 and all(a.tensor in tensors for a in accesses(product.expression)):
        form = contraction(replace(workload, stages=(product,), output_names=(), output_strides=()))
    return form is not None and form.is_matrix_product and form.m.extent > 1 < form.n.extent


def _pointwise(workload: Workload) -> Structure:
    outputs = [s for s in workload.stages if s.name in workload.output_names]
    # The last of those with most axes; loops have its order.
    largest = max(reversed(outputs), key=lambda s: len(s.axes))
    if not largest.axes:
        raise UnmatchedError(f"{largest.name} is one number, and nothing is folded")
    for stage in outputs:
        beside = [x.name for x in stage.axes if x not in largest.axes]
        if beside:
            raise UnmatchedError(f"{stage.name} and {largest.name} share no loop: only {stage.name} has {beside}")
    return Structure(workload, largest.axes)


def _reduced(stages: Sequence[Stage]) -> list[Axis]:
    """The axes of folds and scans, in order."""
    return list(dict.fromkeys(x for s in stages for x in s.loops if _is_reduced(x, s)))


def _is_reduced(axis: Axis, stage: Stage) -> bool:
    folded = stage.reduction.axes if stage.reduction else ()
    return axis in folded or (stage.scan is not None and axis.name == stage.scan.axis)


def _reducing(workload: Workload, folds: Sequence[Stage]) -> Structure:
    reduced, scans = _reduced(workload.stages), [s for s in workload.stages if s.scan]
    _check_scans(scans, reduced)
    rows = tuple(x for x in [*folds, *scans][0].axes if x not in reduced)
    kept = _kept(folds, reduced)
    for stage in (*folds, *scans):
        if {x for x in stage.axes if x not in reduced} != set(rows):
            raise UnmatchedError(f"{stage.name} has axes {_names(stage.axes)}; expected {_names(rows)} of every fold")
    allowed = [set(rows), {*rows, *kept}, {*rows, *reduced}]
    for stage in workload.stages:
        beside = [x for x in stage.axes if x not in (*rows, *reduced)]
        if beside:
            raise UnmatchedError(f"{stage.name} has the axis {_names(beside)}, which no fold has")
        if stage.name in workload.output_names and set(stage.axes) not in allowed:
            expected = " or ".join(dict.fromkeys(_names(x for x in (*rows, *reduced) if x in some) for some in allowed))
            raise UnmatchedError(f"{stage.name} has axes {_names(stage.axes)}; expected {expected}")
    walks = memory_walks(workload)
    moving = largest_walk(walks, reduced)
    # Axes that some folds keep are the outer loops; of each kind, the farther apart in memory, the farther outside.
    reduced.sort(key=lambda x: (x not in kept, -moving.get(x, 0) if x in moving else float("-inf")))
    column = reduced[-1]
    inner = min(moving, key=lambda x: (moving[x], x != column), default=column)
    outer = inner not in reduced
    if outer:
        rows = tuple(sorted(rows, key=lambda x: x == inner))
    even = all(w.get(inner, 1) == 1 for w in walks)
    found = Structure(workload, rows, tuple(reduced), tuple(folds), outer, even, len(kept), tuple(scans))
    if found.folds_scans_of_folds and column.extent > _MOST_HELD:
        raise UnmatchedError(f"{scans[0].name} is of folds, and is folded, along more than {_MOST_HELD} positions")
    return _in_two_steps(found) if kept else found


def _kept(folds: Sequence[Stage], reduced: Sequence[Axis]) -> list[Axis]:
    """The reduced axes that some folds keep and others fold: all that keep any keep the same, and fold all others."""
    keeping = {s.name: [x for x in reduced if x not in s.reduction.axes] for s in folds if s.reduction}
    found = next((axes for s in folds if (axes := [x for x in reduced if x in s.axes])), None)
    if found is None:
        # None keeps an axis as its own: a fold may fold some axes of an expression without the others.
        found = next(([x for x in reduced if x not in axes] for axes in keeping.values() if axes), [])
    for stage in folds:
        own = [x for x in reduced if x in stage.axes]
        left_out = keeping[stage.name]
        fits = (own == found and left_out == found) if own else left_out in ([], [x for x in reduced if x not in found])
        if not fits:
            other = next(s for s in folds if s is not stage)
            raise UnmatchedError(
                f"{other.name} keeps {_names(other.axes) or 'no axis'}, which {stage.name} folds, and "
                f"{stage.name} keeps {_names(stage.axes) or 'no axis'}; expected one order of folds"
            )
    return found


def _in_two_steps(found: Structure) -> Structure:
    """Folds over all reduced axes that depend on folds of some of them, as folds of folds.

    Before: s[r] = sum over g, c of x[r, g, c] / top[r, g]
    After:  s_each[r, g] = sum over c of x[r, g, c] / top[r, g];  s[r] = sum over g of s_each[r, g]
    """
    stages: list[Stage] = []
    names = Names({t.name for t in found.workload.inputs} | {s.name for s in found.workload.stages})
    kept, folded = found.kept, found.reduced[len(found.kept) :]
    for stage in found.workload.stages:
        whole = stage.reduction is not None and set(stage.reduction.axes) == set(found.reduced)
        if not whole or not found.depends_on_parts(stage):
            stages.append(stage)
            continue
        assert stage.reduction is not None
        name = names.fresh(f"{stage.name}_each")
        dtype = "int64" if is_integral(stage.expression) else "float32"
        each = Stage(name, (*stage.axes, *kept), stage.expression, replace(stage.reduction, axes=folded), dtype)
        read = Access(name, tuple(axis_index(x.name) for x in each.axes))
        body: Expression = ex.call("to_integer", read) if dtype == "int64" else read
        stages += [each, replace(stage, expression=body, reduction=replace(stage.reduction, axes=kept))]
    workload = replace(found.workload, stages=tuple(stages))
    return replace(found, workload=workload, folds=tuple(s for s in stages if s.reduction))


def _names(axes: Iterable[Axis]) -> str:
    return ", ".join(x.name for x in axes)


def _with_own_names(found: Structure) -> Structure:
    *outer, column = found.reduced
    names = {x.name: "r" if len(found.parallel) == 1 else f"r{i}" for i, x in enumerate(found.parallel)}
    names |= {x.name: f"c{i}" for i, x in enumerate(outer)} | {column.name: "c"}

    def renamed(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(x, name=names[x.name]) for x in axes)

    workload = with_axes_named(found.workload, names)
    folds = tuple(s for s in workload.stages if s.reduction)
    scans = tuple(s for s in workload.stages if s.scan)
    parallel, reduced = renamed(found.parallel), renamed(found.reduced)
    return replace(found, workload=workload, parallel=parallel, reduced=reduced, folds=folds, scans=scans)


def check_extents(workload: Workload) -> None:
    """Raise UnmatchedError if axes of one name differ in extent."""
    known: dict[str, Axis] = {}
    for axis in (x for s in workload.stages for x in s.loops):
        other = known.setdefault(axis.name, axis)
        if other != axis:
            raise UnmatchedError(f"axis {axis.name} has {other.extent} positions, and elsewhere {axis.extent}")
