"""Warp-specialised main loops of chains: a producer warp loads tiles, warp groups share the rows. Rules and starts.

    cooperative    the warp groups run independently: while one computes between dots, the dots of another may run
    pingpong       they issue their dots alternately, which enforces this overlap
    overlap        the dots of a warp group run while it uses the results of the previous ones

(Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from search_spaces.anchors.chains.masked_loops import why_not_marked
from search_spaces.anchors.contractions.rules.specialization import why_no_stages
from search_spaces.decisions.decision import Decision, start
from search_spaces.devices.target import Target
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.roles.requests import why_no_turns
from search_spaces.schedules.knobs import Values, nearest
from search_spaces.schedules.rules import Rule
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access


@dataclass(frozen=True)
class _Start:
    """Knobs to start from; the rows of a tile are halved between two warp groups."""

    c: int
    specialize: str
    overlap: bool
    stages: int = 2
    max_registers: int = 0
    grid: str = "tiles"
    per_sm: int = 1
    store: str = "descriptor"


# Starts, for values of up to so many elements. Two programs on a multiprocessor for short values, whose exponentials
# take longest; one that overlaps, for long ones. (An H200, lengths of 128 to 8192.)
_STARTS: dict[int, tuple[_Start, ...]] = {
    64: (
        _Start(64, "cooperative", False, max_registers=80, grid="persistent", per_sm=2),
        _Start(128, "pingpong", True, stages=3, grid="persistent"),
        _Start(64, "pingpong", False, max_registers=80),
        _Start(128, "cooperative", False, grid="persistent"),
    ),
    128: (
        _Start(128, "pingpong", True),
        _Start(128, "cooperative", True),
        _Start(128, "cooperative", True, grid="persistent"),
        _Start(64, "cooperative", False),
    ),
    256: (_Start(64, "cooperative", False, store="pointer"), _Start(64, "pingpong", True, store="pointer")),
}
# For several products, as gradients have. (An H200, 2048 rows and columns.)
_SEVERAL_STARTS: dict[int, tuple[_Start, ...]] = {
    64: (_Start(128, "pingpong", False), _Start(64, "cooperative", False)),
    128: (_Start(64, "cooperative", False), _Start(64, "pingpong", False)),
}
# Registers of sums that leave enough for work on points.
_MOST_SUMS = 160


def is_specialized(chain: Chain, target: Target) -> bool:
    """True if a producer can load the operands of all dots: tiles as stored, of 16-bit types, of whole depth."""
    products = (*chain.inner, *chain.carried.values())
    loaded = [*(p.a for p in chain.inner), *(p.b for p in products)]
    units = target.wave_groups
    return (
        units is not None
        and (len(chain.walked) == 1 or why_not_marked(chain) is None)
        and bool(chain.carried)
        and chain.why_at_once is None
        and all(isinstance(x, Access) for x in loaded)
        and all(dtype(p.dtype).bytes == 2 for p in products)
        and all(x.extent % _depth(units) == 0 and x.extent & (x.extent - 1) == 0 for x in chain.depths)
    )


def _depth(units: WaveGroups) -> int:
    """Products of 16-bit operands that a dot adds up at once."""
    found = units.multiplying("float16")
    return found.k if found else 1


def specialization_rules(target: Target) -> tuple[Rule, ...]:
    """Requirements of the specialised kernel that a schedule asks for."""
    units, overlap = target.wave_groups, Rule(("specialize", "split", "overlap"), _why_not_overlapped)
    if units is None:
        return (overlap,)
    return (
        overlap,
        *(Rule(("specialize", knob), _why_by_pointers(knob)) for knob in ("rows_load", "walked_load")),
        Rule(("m", "c", "warps", "specialize"), lambda values: _why_no_groups(units, values)),
        Rule(("specialize", "d"), _why_in_parts),
        Rule(("specialize", "stages"), why_no_stages),
    )


def specialized_starts(chain: Chain, target: Target, decisions: Sequence[Decision]) -> Iterator[Values]:
    """Starts that fill the tensor cores while exponentials are computed."""
    units, knobs = target.wave_groups, {d.name: d.knob for d in decisions}
    if units is None or len(knobs["specialize"].values) == 1 or "descriptor" not in knobs["walked_load"].values:
        return
    longest = max(x.extent for x in chain.depths)
    starts = _SEVERAL_STARTS if chain.has_several else _STARTS
    for wanted in next((s for n, s in starts.items() if longest <= n), ()):
        values = Values({name: knobs[name].values[-1] for name in ("d", "direction", "rows_load", "walked_load")})
        values |= {
            "m": nearest(knobs["m"], 2 * units.rows),
            "group": nearest(knobs["group"], 8),
            "warps": 2 * units.waves,
        }
        width = _width(chain, units, wanted.c) if chain.has_several else wanted.c
        values |= {**dataclasses.asdict(wanted), "c": nearest(knobs["c"], width)}
        tiles = math.prod(x.extent for x in chain.outer) * values.tiling("m")[0]
        values["per_sm"] = min(wanted.per_sm, -(-tiles // target.num_sms))
        if len(chain.walked) > 1:
            values |= {"c": knobs["c"].values[-1], "overlap": False, "skip": True}
        yield start(decisions, values)


def _width(chain: Chain, units: WaveGroups, width: int) -> int:
    """So many columns, or the most that leave registers."""
    carried = sum(x.extent for p in chain.carried.values() for x in p.carried)
    least, rows, threads = _depth(units), units.rows, units.threads
    while width > least and rows * (width * len(chain.inner) + carried) // threads > _MOST_SUMS:
        width //= 2
    return width


def _why_not_overlapped(values: Values) -> str | None:
    if values.flag("overlap") and (values["specialize"] == "none" or values.integer("split") > 1):
        return "overlap is of the dots of a specialised kernel whose walk has iterations; needs specialize and split=1"
    return None


def _why_by_pointers(knob: str) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if values["specialize"] != "none" and values[knob] == "pointer":
            return f"specialize={values['specialize']} brings tiles by descriptor, not by pointers"
        return None

    return why


def _why_no_groups(units: WaveGroups, values: Values) -> str | None:
    kind, warps, rows = values["specialize"], values.integer("warps"), values.tile("m")
    if kind == "none":
        return None
    groups = warps // units.waves
    if warps % units.waves or rows % (units.rows * groups):
        return f"specialize={kind} needs warp groups with {units.rows} rows each, got {rows} rows for {warps} warps"
    if kind == "pingpong" and (reason := why_no_turns(units, warps)):
        return reason
    if values.tile("c") > units.widest:
        return f"specialize={kind} has dots of {units.widest} columns at most, got {values.tile('c')}"
    return None


def _why_in_parts(values: Values) -> str | None:
    if values["specialize"] != "none" and values.tiling("d")[0] > 1:
        return f"specialize={values['specialize']} holds all of what inner products sum up"
    return None
