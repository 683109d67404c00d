"""Rules of tiles over several axes of a class: addressing by pointers, and a single loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from search_spaces.anchors.contractions.class_tiles import (
    BOX,
    CLASSES,
    FUSED,
    MOVED,
    RANGE,
    class_tiles,
    fits,
    why_not_ranged,
)
from search_spaces.anchors.contractions.rules.specialization import KINDS
from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.decisions.programs.persistence import STREAM_K
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction


def with_ranges(form: Contraction, rules: Sequence[Rule], knobs: Mapping[str, Knob]) -> tuple[Rule, ...]:
    """The rules of a contraction, and those of its decisions between boxes and ranges."""
    ranged = tuple(axes for axes in (f"{name}_axes" for name in CLASSES) if axes in knobs)
    return (*_range_rules(form, ranged, knobs), *(_with_axes(rule, ranged) for rule in rules))


def _with_axes(rule: Rule, ranged: Sequence[str]) -> Rule:
    """The rule with the axes of each tile whose size it reads."""
    axes = tuple(x for x in ranged if x.partition("_")[0] in rule.knobs and x not in rule.knobs)
    return Rule((*rule.knobs, *axes), rule.why_broken)


def _range_rules(form: Contraction, ranged: tuple[str, ...], knobs: Mapping[str, Knob]) -> Iterator[Rule]:
    """Rules of tiles over several axes of a class."""
    if ranged:
        yield Rule(ranged, lambda values: why_not_ranged(form, {x[0]: values[x] == RANGE for x in ranged}))
    for axes in ranged:
        yield Rule((axes, axes[0]), _why_too_long(form, knobs[axes[0]]))
        for moved in MOVED[axes[0]]:
            yield Rule((axes, moved), _why_no_descriptor(axes, moved))
    if "k_axes" in ranged:
        for knob, value, kinds in _NEEDED:
            yield Rule(("k_axes", knob), _why_other_loops(knob, value, kinds))
        yield Rule(("k", "k_axes", "split"), lambda values: _why_no_steps(form, values))


def _why_too_long(form: Contraction, knob: Knob) -> Callable[[Values], str | None]:
    name, least = knob.name, min(value[-1] for value in knob.values if isinstance(value, tuple))

    def why(values: Values) -> str | None:
        tiles = class_tiles(form, values, name)
        if tiles.ranged or fits(tiles.size, tiles.positions) or tiles.size == least:
            return None
        return f"{name}={tiles.size} is longer than {tiles.positions} positions by a smaller tile; {name}_axes=range"

    return why


def _why_no_descriptor(axes: str, moved: str) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if values[axes] == RANGE and not is_by_pointers(values[moved]):
            return f"{axes}=range runs along several dimensions, by pointers; expected {moved}=pointer"
        return None

    return why


# Decisions that need these kinds of loops over several reduced axes.
_NEEDED = (
    ("grid", STREAM_K, (FUSED, RANGE)),
    ("tail", "peeled", (RANGE,)),
    *(("specialize", kind, (BOX, RANGE)) for kind in KINDS[1:]),
)


def _why_other_loops(knob: str, value: KnobValue, kinds: Sequence[str]) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if values[knob] == value and values["k_axes"] not in kinds:
            return f"{knob}={value} is for k_axes={' or '.join(kinds)}, got {values['k_axes']}"
        return None

    return why


def _why_no_steps(form: Contraction, values: Values) -> str | None:
    steps, split = class_tiles(form, values, "k").count, values.integer("split")
    return f"split={split} leaves parts empty: k has {steps} tiles" if split > steps else None
