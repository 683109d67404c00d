"""Ways to load operands that starts have, by what their decision offers."""

from __future__ import annotations

from search_spaces.schedules.knobs import Knob, KnobValue


def fastest(loads: Knob) -> KnobValue:
    """The value to start from: by descriptor, if possible."""
    ways = ("im2col", "descriptor", "prepared_k", "prepared_k_pointer")
    return next((x for x in ways if x in loads.values), loads.values[-1])


def along_k(loads: Knob) -> KnobValue:
    """The value that lets the operand run along k, as dot units want it."""
    return next((way for way in ("transposed", "prepared_k") if way in loads.values), fastest(loads))


def by_pointers(loads: Knob) -> KnobValue:
    """The value that loads by pointers, of a prepared copy if there is one."""
    return "prepared_k_pointer" if "prepared_k_pointer" in loads.values else "pointer"
