"""Rules between knobs of a chain, each with the knobs that it concerns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.anchors.chains.masked_loops import why_not_marked
from search_spaces.anchors.chains.specialized_loops import specialization_rules
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Knob, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.structure.chains.chain import Chain

# Split loops are for multiprocessors that would otherwise idle.
_PROGRAMS_PER_SM = 8
# The order in which knobs are decided: from the tiles outward.
DECIDED_FIRST = (
    *("m", "c", "e", "d", "warps", "split", "join", "grid", "per_sm", "direction", "group", "rows_load", "walked_load"),
    *("store", "specialize", "overlap", "skip", "max_registers", "stages"),
)


def chain_rules(chain: Chain, target: Target, knobs: Mapping[str, Knob], offers: Offers) -> tuple[Rule, ...]:
    """Rules of a chain, in the order in which they are reported."""
    rules = _ChainRules(chain, target, offers)
    tiles = ("m", "c", *(("e",) if "e" in knobs else ()), "warps")
    return (
        Rule(tiles, rules.why_too_many_registers),
        *(Rule((*tiles, *x), rules.why_too_many_kept) for x in ((), ("max_registers",)) if not offers.walks),
        Rule(("m", "c", "split"), rules.why_not_split),
        Rule(("split", "group"), _why_not_in_turn),
        Rule(("split", "store"), _why_not_stored),
        Rule(("split", "join"), _why_not_joined),
        *specialization_rules(target),
        *([Rule(("skip", "specialize", "overlap", "c"), rules.why_not_skipped)] if "skip" in knobs else []),
    )


@dataclass(frozen=True)
class _ChainRules:
    chain: Chain
    target: Target
    offers: Offers

    def why_too_many_registers(self, values: Values) -> str | None:
        """Sums and points stay in registers; a compiler's further needs are its backend's to report."""
        need, most = self._sums(values) // self._threads(values), self.target.features.registers_per_thread
        if need < most:
            return None
        return f"points and sums take at least {need} registers of every thread; expected less than {most}"

    def why_too_many_kept(self, values: Values) -> str | None:
        """The same where the other registers of a thread are known.

        Computed points are kept a second time as operands of the next product.
        """
        threads = self._threads(values)
        points = values.tile("m") * values.tile("c") // threads
        need = self.offers.least_beside(points) + self._sums(values) // threads + points * bool(self.chain.carried)
        allowed = values.integer("max_registers", 0) or self.target.features.registers_per_thread
        return f"at least {need} registers of every thread; expected at most {allowed}" if need > allowed else None

    def _threads(self, values: Values) -> int:
        return self.target.wave * values.integer("warps")

    def _sums(self, values: Values) -> int:
        # Carried products that are added to those in `Chain.beside` share their registers.
        products = self.chain.beside or tuple(self.chain.carried.values())
        carried = sum(values.tile("e") if "e" in values else x.extent for p in products for x in p.carried)
        return values.tile("m") * (values.tile("c") * len(self.chain.inner) + carried)

    def why_not_split(self, values: Values) -> str | None:
        split, around = values.integer("split"), self.chain.walked[:-1]
        iterations = around[0].extent if around else values.tiling("c")[0]
        if split == 1:
            return None
        if (split - 1) * -(-iterations // split) >= iterations:
            return f"split={split} of {iterations} iterations leaves some programs none; choose fewer"
        programs = values.tiling("m")[0] * math.prod(x.extent for x in self.chain.outer) * split
        if programs > _PROGRAMS_PER_SM * self.target.num_sms:
            return f"split={split} makes {programs} programs, more than {_PROGRAMS_PER_SM} for each multiprocessor"
        return None

    def why_not_skipped(self, values: Values) -> str | None:
        unknown = values["specialize"] != "none" and why_not_marked(self.chain)
        if values["skip"] and unknown:
            return f"skip needs specialize=none: {values['specialize']} has a warp that brings tiles, of {unknown}"
        if values["skip"] and values.flag("overlap"):
            return "skip may leave no iteration to begin with, which overlap needs"
        if values["specialize"] != "none" and values.tiling("c")[0] > 1 and len(self.chain.walked) > 1:
            return f"specialize={values['specialize']} has one loop; expected tiles with all columns of a block"
        return None


def _why_not_in_turn(values: Values) -> str | None:
    return "group orders whole walks; it needs split=1" if values["split"] != 1 and values["group"] != 1 else None


def _why_not_stored(values: Values) -> str | None:
    return "parts of a walk are stored by pointers" if values["split"] != 1 and values["store"] != "pointer" else None


def _why_not_joined(values: Values) -> str | None:
    return "join=ahead is of walks that programs share" if values["split"] == 1 and values["join"] != "after" else None
