"""Warp-specialised walks: one warp brings tiles, warp groups with equal parts of the rows compute. Which schedules can.

    cooperative    the warp groups go as they come: while one computes between dots, the dots of another may run
    pingpong       they issue their dots in turn, so that this is what happens
    overlap        the dots of a warp group run while it computes what follows on the last ones

(Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from search_spaces.devices.target import Target
from search_spaces.devices.warps import GROUP_ROWS, WARP_GROUP
from search_spaces.schedules.knobs import Knob, KnobValue, Values, nearest
from search_spaces.schedules.rules import Rule
from search_spaces.sketches.dots.specialization import CAPABILITY, MAX_COLUMNS
from search_spaces.structure.chains import Chain
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access

# Dots add up so many products of 16-bit operands at once, and rows of theirs are swizzled over as many bytes.
_DEPTH = 16
# (m, c, kind, overlap, warps, stages, registers, grid) to start from, for values of up to so many elements.
_STARTS: dict[int, tuple[tuple[int, int, str, bool, int, int, int, str], ...]] = {
    64: (
        (128, 64, "cooperative", False, 8, 2, 80, "tiles"),
        (128, 128, "pingpong", True, 8, 3, 0, "persistent"),
        (128, 128, "pingpong", False, 8, 2, 0, "persistent"),
        (128, 256, "pingpong", False, 8, 2, 0, "tiles"),
    ),
    128: (
        (128, 128, "cooperative", True, 8, 2, 0, "tiles"),
        (128, 128, "pingpong", True, 8, 2, 0, "tiles"),
        (128, 128, "pingpong", True, 8, 2, 0, "persistent"),
    ),
    256: ((128, 64, "cooperative", False, 8, 2, 0, "tiles"), (128, 32, "pingpong", True, 8, 2, 0, "tiles")),
}


def is_specialized(chain: Chain, target: Target) -> bool:
    """Whether the operands of all dots can be brought: tiles as they are stored, of 16-bit types, of whole depth."""
    products = (*chain.inner, *chain.carried.values())
    brought = [*(p.a for p in chain.inner), *(p.b for p in products)]
    return (
        target.capability == CAPABILITY
        and len(chain.walked) == 1
        and bool(chain.carried)
        and chain.why_held is None
        and all(isinstance(x, Access) for x in brought)
        and all(dtype(p.dtype).bytes == 2 for p in products)
        and all(x.extent % _DEPTH == 0 and x.extent & (x.extent - 1) == 0 for x in chain.depths)
    )


def specialization_rules() -> tuple[Rule, ...]:
    """What has to be so for the specialised kernel that a schedule asks for."""
    return (
        Rule(("specialize", "split", "overlap"), _why_not_overlapped),
        *(Rule(("specialize", knob), _why_by_pointers(knob)) for knob in ("rows_load", "walked_load")),
        Rule(("m", "c", "warps", "specialize"), _why_no_groups),
        Rule(("specialize", "d"), _why_in_parts),
        Rule(("specialize", "stages"), _why_no_stages),
    )


def specialized_seeds(chain: Chain, knobs: Mapping[str, Knob]) -> Iterator[Values]:
    """What fills the dot units while exponentials are computed."""
    if len(knobs["specialize"].values) == 1 or "descriptor" not in knobs["walked_load"].values:
        return
    longest = max(x.extent for x in chain.depths)
    for m, c, kind, overlap, warps, stages, registers, grid in next(
        (s for n, s in _STARTS.items() if longest <= n), ()
    ):
        values: dict[str, KnobValue] = {name: k.values[0] for name, k in knobs.items()}
        values |= {"m": nearest(knobs["m"], m), "c": nearest(knobs["c"], c), "d": knobs["d"].values[-1]}
        values |= {"specialize": kind, "overlap": overlap, "warps": warps, "stages": stages, "grid": grid}
        values |= {"max_registers": registers, "order": knobs["order"].values[-1], "group": nearest(knobs["group"], 8)}
        values |= {name: knobs[name].values[-1] for name in ("rows_load", "walked_load", "store")}
        yield Values(values)


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


def _why_no_groups(values: Values) -> str | None:
    kind, warps, rows = values["specialize"], values.integer("warps"), values.tile("m")
    if kind == "none":
        return None
    groups = warps // WARP_GROUP
    if warps % WARP_GROUP or rows % (GROUP_ROWS * groups):
        return f"specialize={kind} needs warp groups with {GROUP_ROWS} rows each, got {rows} rows for {warps} warps"
    if kind == "pingpong" and groups < 2:
        return f"specialize=pingpong needs {2 * WARP_GROUP} warps at least, got {warps}"
    if values.tile("c") > MAX_COLUMNS:
        return f"specialize={kind} has dots of {MAX_COLUMNS} columns at most, got {values.tile('c')}"
    return None


def _why_in_parts(values: Values) -> str | None:
    if values["specialize"] != "none" and values.tiling("d")[0] > 1:
        return f"specialize={values['specialize']} holds all of what inner products sum up"
    return None


def _why_no_stages(values: Values) -> str | None:
    if values["specialize"] != "none" and values.integer("stages") < 2:
        return f"specialize={values['specialize']} needs two stages at least, got {values['stages']}"
    return None
