"""Decisions of chains of products, and their starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.chains.chain_tiles import ChainTile
from search_spaces.anchors.chains.masked_loops import skips
from search_spaces.anchors.chains.specialized_loops import is_specialized, specialized_starts
from search_spaces.anchors.contractions.dot_knobs import least_tile
from search_spaces.decisions.decision import Decision, start
from search_spaces.decisions.loops.overlapping import overlapping
from search_spaces.decisions.loops.pipelining import pipelining
from search_spaces.decisions.memory.transfers import loads, stores
from search_spaces.decisions.programs.max_registers import max_registers
from search_spaces.decisions.programs.ordering import ASCENDING, DESCENDING, direction, group
from search_spaces.decisions.programs.persistence import Units, persistence
from search_spaces.decisions.programs.specialization import specialization
from search_spaces.decisions.programs.splitting import join, splitting
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.descriptors import why_not_describable, why_not_storable
from search_spaces.devices.features import EARLY_LAUNCH, Descriptors
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.knobs import KnobValue, Values, nearest, padded
from search_spaces.schedules.limits import Offers
from search_spaces.structure.chains.chain import LONGEST_AT_ONCE, LONGEST_CARRIED, Chain
from search_spaces.workloads.workload import Axis, Tensor

# Rows and columns of a tile, unless matrix instructions have more.
_TILES = (16, 32, 64, 128, 256)
# The longest part of a summed or carried axis in one tile; longer sums have a loop.
_LONGEST = 256
_DEPTH_TILES = (32, 64, 128)
# Positions of the outer axis that are interleaved, tile of rows by tile of rows: if a mask leaves rows unequal work,
# the longest of all of these go first.
_GROUPS = (1, 2, 4, 8, 16, 32, 64, 128)
# Summed positions of an inner product in one iteration of its loop, to start from.
_START_DEPTH = 64
# (m, any, warps, stages) to start from if one tile has the whole streamed axis.
_AT_ONCE_STARTS = tuple((m, 0, warps, 3) for m, warps in ((128, 8), (64, 4), (64, 8), (32, 4), (32, 8), (16, 4)))
# (m, carried, warps, stages) if the carried axis is divided among programs.
_CUT_STARTS = ((128, 256, 8, 3), (256, 128, 8, 3), (128, 128, 8, 4), (128, 128, 4, 3), (64, 128, 4, 4), (64, 256, 4, 3))
# Up to this many rows, most of a tile is empty: (m, c, warps, stages) for these, and programs per multiprocessor.
_FEW_ROWS = 16
_FEW_STARTS = ((16, 64, 4, 3), (16, 128, 4, 3), (16, 64, 2, 4), (16, 32, 2, 4), (16, 128, 8, 2), (16, 64, 4, 5))
_PROGRAMS_PER_SM = 3
# Numbers of parts of a split loop, and the fewest columns of a part.
_SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LEAST_PART = 64
# (m, c, warps, stages) to start from, for values of up to so many elements (Dao, "FlashAttention-2"; Shah et al.,
# "FlashAttention-3", 2024).
_STARTS = {
    64: ((64, 128, 4, 2), (64, 64, 4, 3), (128, 128, 4, 3), (128, 64, 4, 3), (64, 128, 4, 3), (128, 64, 8, 3)),
    128: ((128, 64, 4, 2), (64, 64, 4, 3), (128, 128, 8, 2), (64, 64, 4, 2), (128, 64, 8, 3), (64, 128, 4, 2)),
    256: ((128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 2), (128, 32, 8, 2)),
}
# For several products, as gradients have: if two programs share a multiprocessor, one computes while dots of the other
# run. (An H200, 2048 rows and columns.)
_SEVERAL_STARTS = {
    64: ((64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (128, 64, 8, 3), (128, 64, 4, 3)),
    128: ((64, 64, 4, 2), (128, 64, 8, 2), (128, 64, 8, 3)),
    256: ((64, 64, 8, 2), (64, 32, 8, 2), (128, 32, 8, 2)),
}


def chain_decisions(chain: Chain, target: Target, offers: Offers) -> tuple[Decision, ...]:
    """All decisions of a chain.

    Raises:
        UnmatchedError: tiles would be too large.
    """
    carried, least = [x for p in chain.carried.values() for x in p.carried], _least_side(chain, target)
    cut = _cut(chain, carried, least)
    triangular = bool(mask_of(chain).forms)
    neighbours = chain.outer[-1].extent if triangular and chain.outer else 1
    neighbours = -(-chain.m.extent // least) if cut else neighbours
    # Points are counted for all rows of a program together.
    shared = chain.why_at_once is None and not any(f.counts for f in chain.walk.folds)
    points = math.prod(x.extent for x in chain.walked)
    tiled = ("m", *(k.name for k in cut))

    def counts(values: Values) -> tuple[int, int]:
        *_, slower, faster = 1, *(axis.extent for axis in ChainTile(chain, values).grid().axes)
        return slower, faster

    tiles = (
        _tiling("m", chain.m.extent, "grid", least),
        _tiling("c", chain.c.extent, "loop", least) if chain.why_at_once is None else _whole("c", chain, least),
        _summed(chain, carried, least),
        *cut,
    )
    return (
        *tiles,
        direction(_directions(chain)),
        group(neighbours > 1, ("split", *tiled), counts, tuple(g for g in _GROUPS if g < 2 * neighbours)),
        *persistence(
            Units(lambda values: target.num_sms),
            ("split", *tiled),
            lambda values: ChainTile(chain, values).grid().tiles,
            dots=True,
        ),
        splitting(_SPLITS, points // _LEAST_PART if shared else 1),
        join(ahead=shared and target.features.has(EARLY_LAUNCH)),
        loads("rows_load", _addressing(chain, chain.row_tensors, target)),
        loads("walked_load", _addressing(chain, chain.walked_tensors, target)),
        # Descriptors store only results of whole tiles, as in the base program.
        replace(stores(_store_addressing(chain, target)), effect=None),
        specialization(offers.walks and is_specialized(chain, target)),
        overlapping(),
        *skips(chain, by_ranges=bool(mask_of(chain).ranged)),
        max_registers((80, 128, 168)),
        num_warps(target, 2, 8),
        # The nested loop that is pipelined depends on the iterations that the mask leaves.
        replace(pipelining(target, (1, 2, 3, 4, 5), dots=True), effect=None),
    )


def _least_side(chain: Chain, target: Target) -> int:
    """The shortest side of a tile: columns of one product are rows of another."""
    precision = chain.workload.precision
    products = (*chain.inner, *chain.carried.values(), *chain.beside)
    return max(_TILES[0], *(max(least_tile(p.dtype, precision, target)[:2]) for p in products))


def _tiling(name: str, extent: int, level: str, least: int) -> Decision:
    fitting = [s for s in _TILES if least <= s < 2 * extent] or [least]
    return tiling(name, extent, level, fitting)


def _summed(chain: Chain, carried: Sequence[Axis], least: int) -> Decision:
    """Tiles of the longest sum of an inner product: all of it, or less if it may have a loop."""
    longest = max((x for p in chain.inner for x in p.summed), key=lambda x: x.extent)
    whole = longest in carried or (chain.why_at_once is None and longest.extent <= _LONGEST)
    tiles = [] if whole else [t for t in _DEPTH_TILES if t < longest.extent]
    if longest.extent <= _LONGEST or not tiles:
        tiles.append(padded(max(least, longest.extent)))
    return tiling("d", longest.extent, "loop", tiles)


def _directions(chain: Chain) -> tuple[KnobValue, ...]:
    """Orders of the rows; the last is the one in which rows with the most work under the mask go first."""
    grows = [dict(form.terms).get(chain.m.name, 0) for form in mask_of(chain).forms]
    if not grows:
        return (ASCENDING,)
    return (ASCENDING, DESCENDING) if max(grows) > 0 else (DESCENDING, ASCENDING)


def _cut(chain: Chain, carried: Sequence[Axis], least: int) -> tuple[Decision, ...]:
    """Tiles of a carried axis too long for one program, if one tile has the whole streamed axis.

    Raises:
        UnmatchedError: several axes would have to be divided.
    """
    if not chain.beside and all(x.extent <= LONGEST_CARRIED for x in carried):
        return ()
    if len({*carried}) != 1 or any(p.carried != chain.beside[0].carried for p in chain.beside):
        raise UnmatchedError(f"sums of {len({*carried})} kinds of columns would have to be cut among programs")
    return (_tiling("e", carried[0].extent, "grid", least),)


def _whole(name: str, chain: Chain, least: int) -> Decision:
    """One tile of the whole streamed axis."""
    if chain.why_not_held:
        raise UnmatchedError(f"{chain.why_not_held}; tiles hold at most {LONGEST_AT_ONCE} along one axis")
    return tiling(name, chain.c.extent, "loop", (padded(max(chain.c.extent, least)),))


def _addressing(chain: Chain, names: Iterable[str], target: Target) -> tuple[KnobValue, ...]:
    """Ways to move tiles of these inputs."""
    tensors = [t for t in chain.workload.inputs if t.name in {*names}]
    by = target.features.descriptors
    fine = by is not None and _is_short(chain, by) and all(_is_described(t, by) for t in tensors)
    return ("pointer", "descriptor") if fine else ("pointer",)


def _is_short(chain: Chain, by: Descriptors) -> bool:
    """True if descriptors describe tiles of the streamed axis: a tile of all of it may be too long."""
    return chain.why_at_once is None or padded(chain.c.extent) <= by.longest


def _is_described(tensor: Tensor, by: Descriptors) -> bool:
    return why_not_describable(tensor, by) is None and 0 not in tensor.effective_strides[-2:]


def _store_addressing(chain: Chain, target: Target) -> tuple[KnobValue, ...]:
    carried = {x.name for p in chain.carried.values() for x in p.carried} | {chain.c.name}
    stages = {s.name: s for s in chain.workload.stages}
    whole = [t for t in chain.workload.outputs if carried & {x.name for x in stages[t.name].axes}]
    by = target.features.descriptors
    if by is None or not (_is_short(chain, by) or not chain.points):
        return ("pointer",)
    return ("pointer", "descriptor") if whole and all(why_not_storable(t, by) is None for t in whole) else ("pointer",)


def chain_starts(chain: Chain, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Starts whose tiles fill the tensor cores while registers keep the folds; for few rows, split loops."""
    knobs = {d.name: d.knob for d in decisions}
    longest = max((padded(x.extent) for x in chain.depths), default=64)
    few = chain.m.extent <= _FEW_ROWS
    by_size = _SEVERAL_STARTS if chain.has_several else _STARTS
    tiles = _FEW_STARTS if few else next(s for size, s in by_size.items() if min(longest, _LONGEST) <= size)
    if chain.why_at_once:
        tiles = _AT_ONCE_STARTS
    specialized = [] if few or chain.why_at_once else list(specialized_starts(chain, target, decisions))
    found: list[Values] = []
    for descriptors in (True, False) if "descriptor" in knobs["walked_load"].values else (False,):
        for m, c, warps, stages in tiles if "e" not in knobs else _CUT_STARTS:
            values = Values(
                m=nearest(knobs["m"], m),
                c=nearest(knobs["c"], max(c, 1)),
                d=nearest(knobs["d"], _START_DEPTH),
                warps=warps,
                stages=stages,
                direction=knobs["direction"].values[-1],
            )
            values |= {"e": nearest(knobs["e"], c)} if "e" in knobs else {}
            values |= {"skip": knobs["skip"].values[-1]} if "skip" in knobs else {}
            values["split"] = nearest(knobs["split"], _wanted_parts(chain, target, values))
            values["group"] = nearest(knobs["group"], 8) if values["split"] == 1 else 1
            for name in ("rows_load", "walked_load", "store"):
                values[name] = knobs[name].values[-1] if descriptors else "pointer"
            if values["split"] != 1:
                values |= {"store": "pointer", "join": knobs["join"].values[-1]}
            found.append(start(decisions, values))
    return (*found, *specialized) if chain.has_several else (*specialized, *found)


def _wanted_parts(chain: Chain, target: Target, values: Values) -> float:
    """Parts that give every multiprocessor a few programs, of two iterations at least; 1 if rows are many."""
    programs = values.tiling("m")[0] * math.prod(x.extent for x in chain.outer)
    if programs > target.num_sms / 2:
        return 1
    iterations = values.tiling("c")[0] * math.prod(x.extent for x in chain.walked[:-1])
    return max(1.0, min(_PROGRAMS_PER_SM * target.num_sms / programs, iterations / 2))
