"""Two products with folds between them on a CPU (back-to-back GEMM): the intermediate result stays in a cache.

Before:  for m, c: s[m, c] = sum over d of q[m, d] * k[c, d]
         for m:    top[m] = max over c of s[m, c];  total[m] = sum over c of exp(s[m, c] - top[m])
         for m, e: out[m, e] = sum over c of exp(s[m, c] - top[m]) / total[m] * v[c, e]
After:   grid b.0, m.0 (shared out to threads):
           for j, i: points[i, j] = dot(row panel i of q, column panel j of k)        up to where a mask ends
           top, total = folds of the rows of points;  points = exp(points - top)
           for i, j: out[i, j] = dot(row panel i of points, column panel j of v) / total
With pieces of c, sums[i, j] += dot(…) for each up to the end of a mask, and then out = sums / total. If a mask that
is read rules out pieces, its ranges have ends that are data, or the streamed axis is in blocks, all of these run
piece by piece (`cached_pieces`).

`points` are private to a program: a tile of rows by the whole streamed axis, as much as its core's cache holds.
Register tiles are those of contractions. They divide the rows of a program, the last of which ends with all rows; of
columns that are no whole vectors the last tile is moved back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from search_spaces.anchors.chains.cached.cached_pieces import is_in_pieces, ranged_out
from search_spaces.anchors.chains.cached.cached_points import CachedPoints, runs_along
from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.chains.masked_loops import skips
from search_spaces.decisions.decision import Anchor, Decision, derived
from search_spaces.decisions.loops.skipping import is_skipping
from search_spaces.decisions.loops.unrolling import unrolling
from search_spaces.decisions.loops.vectors import vectorizing
from search_spaces.decisions.memory.packing import IN_PLACE, PANELS, ROWS, packing
from search_spaces.decisions.memory.prefetching import prefetching_rows
from search_spaces.decisions.tiles.register_tiles import (
    REGISTER_ROWS,
    register_tiles,
    register_tiling,
    why_too_many_registers,
)
from search_spaces.decisions.tiles.tiling import nested, tiling
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import buffers
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.schedules.knobs import KnobValue, Values, nearest
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.expression import Access, Expression, to_text
from search_spaces.workloads.workload import Axis

# Rows of a program: fewer do not pay for packing the other operand.
_FEWEST_ROWS = 16
_MOST_ROWS = 512
# Rows are multiples of this, so that most register tiles divide them.
_STEP = 4
# Rows where no such number divides them: the last program computes some of the one before it again.
_UNEVEN_HEIGHTS = (16, 32, 64, 128, 256, 512)
# Depth of a register tile's sum in one go: deeper sums are best cut, so that panels stay in a first-level cache.
_DEEPEST = 512
# Bytes of a program's private memory, in second-level caches.
_MOST_CACHES = 2
_MOST_CACHES_OF_RANGES = 16
# Numbers of pieces of the streamed axis in the second product; each adds to sums in memory.
_PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_SHORTEST_PIECE = 32
_UNEVEN_PIECES = (32, 64, 128, 256, 512)
# Length of a piece to start from if a mask rules some of them out.
_START_PIECE = 128
# Starts: (rows of a program, register tile of the first product, of the second), as rows and vectors.
_STARTS = (
    (128, (8, 2), (8, 2)),
    (64, (8, 2), (8, 2)),
    (256, (8, 2), (8, 2)),
    (64, (8, 3), (4, 4)),
    (128, (4, 4), (4, 4)),
    (32, (8, 2), (8, 2)),
)
# The same where ranges are data: low tiles and short pieces reach less into other ranges.
_STARTS_OF_RANGES = ((32, (8, 2), (8, 2)), (64, (8, 2), (8, 2)), (32, (4, 4), (4, 4)), (128, (8, 2), (8, 2)))


def cached_chain(chain: Chain, target: Target) -> Sketch:
    """The sketch of two products with folds between them, on a CPU.

    Raises:
        UnmatchedError: the chain is not two plain products, or a core's cache does not hold the points.
    """
    _check(chain)
    decisions = _decisions(chain, target)
    anchor = Anchor(
        "chain",
        lambda values: _lower(chain, target, values),
        (
            Rule(("m", "inner_register"), partial(_why_uneven, "inner_register")),
            Rule(("m", "carried_register"), partial(_why_uneven, "carried_register")),
            Rule(("inner_register",), lambda values: why_too_many_registers(target, values.tiling("inner_register"))),
            Rule(
                ("carried_register",), lambda values: why_too_many_registers(target, values.tiling("carried_register"))
            ),
            Rule(("c", "inner_register", *(x.name for x in decisions if x.name == "skip")), partial(_why_cut, chain)),
        ),
        _starts(chain, decisions, target),
    )
    return derived(anchor, decisions)


def _check(chain: Chain) -> None:
    """Raise UnmatchedError except for two plain products, one after the other."""
    if len(chain.inner) != 1 or len(chain.carried) != 1 or chain.beside or chain.points or len(chain.walked) > 2:
        raise UnmatchedError("not one product of what one other makes along one axis, or blocks of one")
    (inner,), (carried,) = chain.inner, chain.carried.values()
    for e in (inner.a, inner.b, carried.b):
        if not isinstance(e, Access) or not all(i.is_axis for i in e.index) or e.fill is not None:
            raise UnmatchedError(f"{to_text(e)} is computed before it is multiplied")
    if inner.summed[0].extent > _DEEPEST:
        raise UnmatchedError(f"{inner.summed[0].extent} positions of {inner.summed[0].name} are summed in several goes")
    if any(f.counts for f in chain.walk.folds if f.name not in chain.carried):
        raise UnmatchedError("points are counted")


def _decisions(chain: Chain, target: Target) -> tuple[Decision, ...]:
    """Every decision.

    Raises:
        UnmatchedError: no register tile divides rows or columns, or a core's cache does not hold the points.
    """
    (inner,), (carried,) = chain.inner, chain.carried.values()
    (axis,) = carried.carried
    walked = math.prod(x.extent for x in chain.walked)
    extent = chain.m.extent
    # Of a range of the streamed axis no more is touched than that.
    caches = _MOST_CACHES_OF_RANGES if ranged_out(chain) else _MOST_CACHES
    most = min(caches * target.l2_bytes // (4 * walked), _MOST_ROWS)
    even = [h for h in range(_FEWEST_ROWS, most + 1, _STEP) if extent % h == 0]
    heights = even or [h for h in _UNEVEN_HEIGHTS if h <= min(most, extent)]
    if most < _FEWEST_ROWS:
        raise UnmatchedError(f"a cache holds {most} rows of {walked} columns; expected {_FEWEST_ROWS} at least")
    if not heights:
        raise UnmatchedError(f"the first product has {extent} rows; expected {_FEWEST_ROWS} at least")
    rows = [r for r in REGISTER_ROWS if any(h % r == 0 for h in heights)]
    return (
        tiling("m", extent, "grid", heights),
        replace(nested("c", chain.c.extent, ("loop", "tile"), _pieces(chain.c.extent, target)), bears_on="nothing"),
        register_tiling("inner_register", _register_tiles(rows, chain.c, target), target),
        register_tiling("carried_register", _even_tiles(rows, axis, target), target),
        packing("pack_rows", _packing(chain, inner.a, inner.summed[0], ROWS)),
        packing("pack_walked", _packing(chain, inner.b, chain.c)),
        packing("pack_carried", _packing(chain, carried.b, axis)),
        *skips(chain, by_ranges=bool(ranged_out(chain))),
        unrolling(),
        vectorizing(),
        prefetching_rows(),
    )


def _pieces(extent: int, target: Target) -> tuple[tuple[int, int], ...]:
    """The whole streamed axis, and pieces of it that are not too short; the last one is cut if there are no vectors."""
    if extent % target.lanes:
        return (1, extent), *((-(-extent // length), length) for length in _UNEVEN_PIECES if length < extent)
    return tuple((n, extent // n) for n in _PIECES if extent % n == 0 and (n == 1 or extent // n >= _SHORTEST_PIECE))


def _register_tiles(rows: Collection[int], axis: Axis, target: Target) -> tuple[KnobValue, ...]:
    """The register tiles of the first product: those that divide its columns, or all if these are no whole vectors."""
    if axis.extent % target.lanes == 0:
        return _even_tiles(rows, axis, target)
    found = tuple(t for t in register_tiles(rows, target) if isinstance(t, tuple) and t[1] <= axis.extent)
    if not found:
        raise UnmatchedError(
            f"the first product has {axis.extent} columns; expected a vector of {target.lanes} at least"
        )
    return found


def _even_tiles(rows: Collection[int], axis: Axis, target: Target) -> tuple[KnobValue, ...]:
    """The register tiles that divide a product's columns."""
    found = tuple(t for t in register_tiles(rows, target) if isinstance(t, tuple) and axis.extent % t[1] == 0)
    if not found:
        raise UnmatchedError(
            f"a product has {axis.extent} columns; expected whole vectors, a multiple of {target.lanes}"
        )
    return found


def _packing(chain: Chain, e: Expression, along: Axis, otherwise: str = PANELS) -> tuple[KnobValue, ...]:
    """Ways to read an operand: in place if it runs along an axis, or packed."""
    assert isinstance(e, Access)
    plain = runs_along(chain, e, along)
    if otherwise == ROWS:
        return (IN_PLACE, ROWS, PANELS) if plain else (IN_PLACE, PANELS)
    return (IN_PLACE, PANELS) if plain else (PANELS,)


def _starts(chain: Chain, decisions: Sequence[Decision], target: Target) -> tuple[Values, ...]:
    """Operands packed, in tiles that fill the multiply-add units, and rows for which packing pays."""
    knobs = {d.name: d.knob for d in decisions}
    found = []
    ranged = bool(ranged_out(chain))
    for number, (height, inner, carried) in enumerate(_STARTS_OF_RANGES if ranged else _STARTS):
        values = Values({name: k.values[-1] for name, k in knobs.items()})
        values["m"] = nearest(knobs["m"], height)
        for name, (rows, vectors) in (("inner_register", inner), ("carried_register", carried)):
            fitting = [t for t in knobs[name].values if isinstance(t, tuple) and _fits(t, values["m"], target)]
            values[name] = nearest(knobs[name].restricted(fitting or knobs[name].values), rows, vectors * target.lanes)
        values |= {"pack_carried": knobs["pack_carried"].values[0], "unroll": 2, "vectors": 2, "prefetch": 0}
        if "skip" in knobs:
            # The share that a mask leaves is unknown: if it is large, it is best folded at once.
            values["skip"] = ranged or number % 2 == 0
        masked = bool(mask_of(chain).forms) or is_skipping(values)
        values["c"] = nearest(knobs["c"], height if ranged else _START_PIECE if masked else chain.c.extent)
        values["pack_rows"] = knobs["pack_rows"].values[1]
        found.append(values)
    return tuple(found)


def _fits(tile: tuple[int, ...], rows: KnobValue, target: Target) -> bool:
    assert isinstance(rows, tuple)
    return rows[-1] % tile[0] == 0 and why_too_many_registers(target, tile) is None


def _why_uneven(knob: str, values: Values) -> str | None:
    height, rows = values.tile("m"), values.tiling(knob)[0]
    return f"{knob} has register tiles of {rows} rows, which do not divide {height}" if height % rows else None


def _why_cut(chain: Chain, values: Values) -> str | None:
    length, columns = values.tile("c"), values.tiling("inner_register")[1]
    if not is_in_pieces(chain, values) or length % columns == 0:
        return None
    return f"inner has register tiles of {columns} columns, which do not divide pieces of {length}"


def _lower(chain: Chain, target: Target, values: Values) -> TileProgram:
    parts = CachedPoints(chain, values)
    own = parts.own
    axes = (*(GridAxis(f"{x.name}.0", x.extent) for x in chain.outer), GridAxis("m.0", values.tiling("m")[0]))
    kernel = Kernel(chain.workload.name, Grid(axes), parts.body(), Launch(lanes=target.lanes))
    return TileProgram(chain.workload.name, buffers(chain.workload, *own), (kernel,))
