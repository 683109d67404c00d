"""The cost of a partition: not a device's figures but their ratios, which are similar on all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from search_spaces import Stage, Workload
from search_spaces.schedules.knobs import padded
from search_spaces.scheduling import ChainSize, has_dots, scheduling_of
from search_spaces.workloads.expressions.expression import Apply, Expression
from search_spaces.workloads.expressions.operators import OPERATORS
from search_spaces.workloads.expressions.walking import accesses, flops, variables, walk

# A launch takes as long as moving 8 MB; a byte from memory, as long as 10 operations of pointwise work or 150 of a dot.
LAUNCH_BYTES = 8e6
_FLOPS_PER_BYTE = 10.0
_DOT_FLOPS_PER_BYTE = 150.0
# Accumulator columns that a program keeps in registers over the main loop.
_TILE_COLUMNS = 256
# Rows, and columns per iteration, of a program of a chain.
_TILE = 128
# Programs that fill a device.
PROGRAMS = 100
# Bytes of a folded value.
_FOLDED_BYTES = 4
# Capacity of a program's registers in points: 128 for each thread of eight warps.
_POINTS = 2**15


def cost(workload: Workload, chained: bool = False) -> float:
    """Time of a kernel in bytes that memory moves meanwhile; `chained`: a kernel of chained products."""
    if chained:
        chain = scheduling_of(workload, chained=True).chain
        assert chain is not None, "only what is chained products is taken for that"
        busy = min(1.0, _programs(chain) / PROGRAMS)
        pointwise, multiplied = _chained_operations(workload)
        # A dot of half the rows reads as much of its other operand.
        again = _TILE / _rows(chain)
        return LAUNCH_BYTES + work(workload.min_bytes, pointwise / busy, multiplied * again / busy)
    most = scheduling_of(workload).most_programs
    busy = 1.0 if most is None else min(1.0, most / PROGRAMS)
    multiplying = [s for s in workload.stages if s.is_contraction or (s.factors and has_dots(workload))]
    dots = sum(s.dot_flops for s in multiplying)
    pointwise = workload.flops - dots + sum(map(_computed_again, multiplying))
    moved = workload.min_bytes + _written_again(workload)
    return LAUNCH_BYTES + work(moved, pointwise, dots) / busy + _waits(workload)


def _computed_again(stage: Stage) -> float:
    """Operations on operands of a dot besides the first time: once more for every further tile of the other's axes."""
    total = 0.0
    for operand, other in itertools.permutations(stage.factors, 2):
        own = math.prod(stage.extents[v] for v in variables(operand) - stage.cut)
        across = math.prod(stage.extents[v] for v in variables(other) - variables(operand))
        total += own * flops(operand) * (math.ceil(across / _TILE_COLUMNS) - 1)
    return total


def _programs(chain: ChainSize) -> int:
    """Programs that may share the work of a chain: along rows, and by splitting the loop."""
    tiles = chain.outer * math.ceil(chain.rows / _rows(chain))
    return tiles if chain.stored else tiles * math.prod(math.ceil(extent / _TILE) for extent in chain.streamed)


def _rows(chain: ChainSize) -> int:
    """Rows of a program, whose registers keep all columns where these are stored."""
    return min(_TILE, max(1, _POINTS // padded(chain.columns))) if chain.stored else _TILE


def _chained_operations(workload: Workload) -> tuple[float, float]:
    """The pointwise operations and the dot operations in a kernel of chained products.

    Points shared by several stages are counted once; inputs that are products, once per column tile of the last stage.
    """
    stages = {s.name: s for s in workload.stages}
    tiles = max(_column_tiles(s, stages) for s in workload.stages)
    folded = {a.tensor for s in workload.stages if s.reduction for a in accesses(s.expression)}
    pointwise = dots = 0.0
    known: set[Expression] = set()
    for stage in workload.stages:
        times = tiles if stage.name in folded else 1
        multiplied = _multiplied(stage)
        if multiplied:
            dots += stage.dot_flops * times
        elif stage.reduction:
            pointwise += float(stage.points * tiles)
        new = {e for part in multiplied or (stage.expression,) for e in walk(part) if isinstance(e, Apply)} - known
        known |= new
        pointwise += sum(OPERATORS[e.operator][1] * _points(e, stage) * tiles for e in new if isinstance(e, Apply))
    return pointwise, dots


def _column_tiles(stage: Stage, stages: Mapping[str, Stage]) -> int:
    """Recomputations of a stage's products: one for every tile of columns that they do not depend on."""
    read = {x for a in accesses(stage.expression) if a.tensor in stages for x in stages[a.tensor].axes}
    if stage.reduction is None or read.isdisjoint(stage.reduction.axes):
        return 1
    return math.ceil(math.prod(x.extent for x in stage.axes if x not in read) / _TILE_COLUMNS)


def _multiplied(stage: Stage) -> tuple[Expression, ...]:
    """The operands of a dot stage: each has axes that the other lacks; or none."""
    match stage.expression:
        case Apply("mul", (a, b)) if stage.reduction is not None and stage.reduction.operator == "sum":
            of_a, of_b = variables(a), variables(b)
            return (a, b) if of_a - of_b and of_b - of_a else ()
    return ()


def _points(e: Expression, stage: Stage) -> int:
    return math.prod(stage.extents[v] for v in variables(e))


def _written_again(workload: Workload) -> int:
    """Redundant bytes that pointwise work writes: outputs without an axis, at every position of that axis."""
    if not all(s.is_pointwise for s in workload.stages):
        return 0
    points = max(t.elements for t in workload.outputs)
    return sum(t.bytes * (points // t.elements - 1) for t in workload.outputs)


def _waits(workload: Workload) -> float:
    """Time in bytes for folds of segments that read others: no program has a whole segment, so these are joined and
    stored, and another launch reads them and the inputs again."""
    sizes = {s.name: float(_FOLDED_BYTES * math.prod(s.shape)) for s in workload.stages if s.reduction}
    again = {t.name: float(t.bytes) for t in workload.inputs} | {name: 2 * size for name, size in sizes.items()}
    reading = ({a.tensor for a in accesses(s.expression)} for s in workload.stages if s.cut)
    return sum(LAUNCH_BYTES + sum(again.get(x, 0.0) for x in read) for read in reading if read & sizes.keys())


def work(moved: float, flops: float, dots: float) -> float:
    """Time, in bytes, of moving `moved` bytes overlapped with `flops` pointwise operations and `dots` operations of
    dots.
    """
    return max(moved, flops / _FLOPS_PER_BYTE, dots / _DOT_FLOPS_PER_BYTE)
