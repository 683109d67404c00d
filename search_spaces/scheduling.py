"""Schedulability: the anchor of a workload's kernel, or the reason that it has none, without building a search space.

The partitioner asks this of thousands of workloads, for few of which a space is built. Backends and checks ask for the
operands of dot units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from search_spaces.errors import UnmatchedError
from search_spaces.structure.axes import structure_of
from search_spaces.structure.chains.finding import chain_of
from search_spaces.structure.contraction import contraction_as_named
from search_spaces.structure.crossed import crossed_of
from search_spaces.structure.multiplied import multiplied
from search_spaces.structure.reads.windows import MAX_WINDOW
from search_spaces.structure.segmented import segmented
from search_spaces.workloads.workload import Workload

# The partitioner asks again of every kernel that it has tried: of a large model, a thousand.
_MOST_KEPT = 1024

__all__ = ["MAX_WINDOW", "ChainSize", "Scheduling", "has_dots", "multiplied", "scheduling_of"]


@dataclass(frozen=True)
class ChainSize:
    """The extents of chained products: positions of the `outer` axes, of which a program has one; rows; columns; and
    all axes that are `streamed`, which no output has unless it is `stored` with them."""

    outer: int
    rows: int
    columns: int
    streamed: tuple[int, ...]
    stored: bool


@dataclass(frozen=True)
class Scheduling:
    """`why`: the reason that no kernel computes the workload, "" where one does. `is_dots`: it is made around dots of
    two operands; `chain`: around dots that follow on dots. `most_programs`: that can share the work of folds of folds,
    a row each; None without such a limit.
    """

    why: str = ""
    is_dots: bool = False
    chain: ChainSize | None = None
    most_programs: int | None = None


def scheduling_of(workload: Workload, chained: bool = False, computed: bool = False) -> Scheduling:
    """The first anchor that fits a workload, or a chain of products if `chained`.

    `computed`: operands of dots may be computed in the main loop; without it such contractions are not asked for, and
    the reason is that of the other anchors.
    """
    return _scheduling(workload.scheduled, chained, computed)


@lru_cache(_MOST_KEPT)
def _scheduling(workload: Workload, chained: bool, computed: bool) -> Scheduling:
    if chained:
        return _chained(workload)
    sums = any(s.reduction and s.reduction.operator == "sum" for s in workload.stages)
    product = contraction_as_named(workload) if sums else None
    if sums and product is None and (of_segments := segmented(workload)):
        product = of_segments.form
    # Operands without a batch axis have it among their rows or columns, which are several axes then.
    if product and (computed or product.multiplies_tensors):
        return Scheduling(is_dots=True)
    try:
        structure = structure_of(workload)
    except UnmatchedError as why:
        try:
            crossed_of(workload)
        except UnmatchedError:
            return Scheduling(str(why))
        return Scheduling()
    rows = math.prod(x.extent for x in structure.parallel)
    return Scheduling(most_programs=rows if structure.kept else None)


def has_dots(workload: Workload) -> bool:
    """True if its sums are dots of two operands, loaded or computed."""
    return scheduling_of(workload, computed=True).is_dots


def _chained(workload: Workload) -> Scheduling:
    try:
        chain = chain_of(workload)
    except UnmatchedError as why:
        return Scheduling(str(why))
    streamed = tuple(x.extent for x in chain.walked)
    outer = math.prod(x.extent for x in chain.outer)
    size = ChainSize(outer, chain.m.extent, chain.c.extent, streamed, bool(chain.points))
    return Scheduling(chain.why_not_held or "", chain=size)
