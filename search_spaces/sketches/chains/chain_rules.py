"""What knobs of a chain may be together, rule by rule, each with the knobs that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.devices.target import Target
from search_spaces.devices.warps import MAX_REGISTERS, WARP
from search_spaces.schedules.knobs import Knob, Values
from search_spaces.schedules.rules import Rule
from search_spaces.structure.chains import Chain

# The order in which knobs are decided: from the tiles outward.
DECIDED_FIRST = (
    *("m", "c", "d", "warps", "split", "grid", "per_sm", "order", "group", "rows_load", "walked_load", "store"),
    *("max_registers", "stages"),
)


def chain_rules(chain: Chain, target: Target, knobs: Mapping[str, Knob]) -> tuple[Rule, ...]:
    """In the order in which they are told."""
    rules = _ChainRules(chain, target)
    return (
        Rule(("grid", "per_sm"), _why_not_walked),
        Rule(("m", "c", "warps"), rules.why_too_many_sums),
    )


@dataclass(frozen=True)
class _ChainRules:
    chain: Chain
    target: Target

    def why_too_many_sums(self, values: Values) -> str | None:
        """Sums and points stay in registers; what a compiler needs beside them its backend says."""
        threads = WARP * values.integer("warps")
        carried = sum(x.extent for p in self.chain.carried.values() for x in p.carried)
        need = values.tile("m") * (values.tile("c") * len(self.chain.inner) + carried) // threads
        if need < MAX_REGISTERS:
            return None
        return f"at least {need} registers per thread for sums; allowed are {MAX_REGISTERS}"


def _why_not_walked(values: Values) -> str | None:
    if values["grid"] == "tiles" and values["per_sm"] != 1:
        return "per_sm counts persistent programs; grid=tiles has one per tile"
    return None
