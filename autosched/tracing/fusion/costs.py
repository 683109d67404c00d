"""What a cut is judged by: not a device's figures but their proportions, which are alike on all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from search_spaces import Stage, Workload
from search_spaces.schedules.knobs import padded
from search_spaces.scheduling import ChainSize, scheduling_of
from search_spaces.workloads.expressions.expression import Apply, Expression
from search_spaces.workloads.expressions.operators import OPERATORS
from search_spaces.workloads.expressions.walking import accesses, variables, walk

# A launch takes as long as moving 8 MB; a byte from memory, as long as 10 operations of pointwise work or 150 of a dot.
LAUNCH_BYTES = 8e6
_FLOPS_PER_BYTE = 10.0
_DOT_FLOPS_PER_BYTE = 150.0
# Columns of a result that the registers of a program hold while it walks what they are sums over.
_HELD_COLUMNS = 256
# Rows, and positions of a walk, of a program of a chain; and how many programs keep a device busy.
_TILE = 128
_PROGRAMS = 100
# Points that the registers of a program hold: 128 for each thread of eight warps.
_POINTS = 2**15


def cost(workload: Workload, chained: bool = False) -> float:
    """How long a kernel takes, as the number of bytes that memory moves meanwhile; `chained`: of chained products."""
    if chained:
        chain = scheduling_of(workload, chained=True).chain
        assert chain is not None, "only what is chained products is taken for that"
        busy = min(1.0, _programs(chain) / _PROGRAMS)
        pointwise, multiplied = _chained_operations(workload)
        # A dot of half the rows reads as much of what they are multiplied with.
        again = _TILE / _rows(chain)
        return LAUNCH_BYTES + work(workload.min_bytes, pointwise / busy, multiplied * again / busy)
    dots = sum(2.0 * s.points for s in workload.stages if s.is_contraction)
    return LAUNCH_BYTES + work(workload.min_bytes + _written_again(workload), workload.flops - dots, dots)


def _programs(chain: ChainSize) -> int:
    """How many programs may share the work of a chain: along rows, and with some more along what is walked."""
    tiles = chain.outer * math.ceil(chain.rows / _rows(chain))
    return tiles if chain.stored else tiles * math.prod(math.ceil(extent / _TILE) for extent in chain.streamed)


def _rows(chain: ChainSize) -> int:
    """Rows of a program, which registers hold with all columns where these are stored."""
    return min(_TILE, max(1, _POINTS // padded(chain.columns))) if chain.stored else _TILE


def _chained_operations(workload: Workload) -> tuple[float, float]:
    """The pointwise operations and those of dots in a kernel of chained products.

    What several stages compute of the same point is computed once, and what they read of products, again for every so
    many columns that the last of these has.
    """
    stages = {s.name: s for s in workload.stages}
    walks = max(_walks(s, stages) for s in workload.stages)
    folded = {a.tensor for s in workload.stages if s.reduction for a in accesses(s.expression)}
    pointwise = dots = 0.0
    known: set[Expression] = set()
    for stage in workload.stages:
        times = walks if stage.name in folded else 1
        multiplied = _multiplied(stage)
        if multiplied:
            dots += 2.0 * stage.points * times
        elif stage.reduction:
            pointwise += float(stage.points * walks)
        new = {e for part in multiplied or (stage.expression,) for e in walk(part) if isinstance(e, Apply)} - known
        known |= new
        pointwise += sum(OPERATORS[e.operator][1] * _points(e, stage) * walks for e in new if isinstance(e, Apply))
    return pointwise, dots


def _walks(stage: Stage, stages: Mapping[str, Stage]) -> int:
    """How often what a stage reads of products is computed: once for every tile of columns that they do not have."""
    read = {x for a in accesses(stage.expression) if a.tensor in stages for x in stages[a.tensor].axes}
    if stage.reduction is None or read.isdisjoint(stage.reduction.axes):
        return 1
    return math.ceil(math.prod(x.extent for x in stage.axes if x not in read) / _HELD_COLUMNS)


def _multiplied(stage: Stage) -> tuple[Expression, ...]:
    """The operands of a stage that dots compute: each has axes that the other has not; or none."""
    match stage.expression:
        case Apply("mul", (a, b)) if stage.reduction is not None and stage.reduction.operator == "sum":
            of_a, of_b = variables(a), variables(b)
            return (a, b) if of_a - of_b and of_b - of_a else ()
    return ()


def _points(e: Expression, stage: Stage) -> int:
    return math.prod(stage.extents[v] for v in variables(e))


def _written_again(workload: Workload) -> int:
    """The bytes that pointwise work writes more than once: outputs without an axis, at every position of that axis."""
    if not all(s.is_pointwise for s in workload.stages):
        return 0
    points = max(t.elements for t in workload.outputs)
    return sum(t.bytes * (points // t.elements - 1) for t in workload.outputs)


def work(moved: float, flops: float, dots: float) -> float:
    """How long it takes to move so many bytes and do so many operations meanwhile, pointwise ones and those of dots."""
    return max(moved, flops / _FLOPS_PER_BYTE, dots / _DOT_FLOPS_PER_BYTE)
