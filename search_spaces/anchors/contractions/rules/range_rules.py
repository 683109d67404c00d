"""Rules of tiles over several axes of a class: the addressing of ranges and of boxes, and a single loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from search_spaces.anchors.contractions.class_tiles import (
    CLASSES,
    FUSED,
    INTERLEAVED,
    JOINED,
    MOVED,
    RANGE,
    UNROLLED,
    class_tiles,
    fits,
    why_not_ranged,
)
from search_spaces.anchors.contractions.dot_knobs import REDUCTION_BYTES
from search_spaces.anchors.contractions.joined_tiles import joined_depths
from search_spaces.anchors.contractions.operand_tiles import LOADS, moved_by
from search_spaces.anchors.contractions.windows import moves_one_dimension
from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.decisions.programs.persistence import STREAM_K
from search_spaces.decisions.tiles.class_axes import BOXES
from search_spaces.programs.boxes import why_no_box
from search_spaces.programs.lowering import slices_at
from search_spaces.programs.tiles import Slice
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine


def with_ranges(
    form: Contraction, rules: Sequence[Rule], knobs: Mapping[str, Knob], offers: Offers
) -> tuple[Rule, ...]:
    """The rules of a contraction, and those of its decisions between boxes and ranges."""
    ranged = tuple(axes for axes in (f"{name}_axes" for name in CLASSES) if axes in knobs)
    return (*_range_rules(form, ranged, knobs, offers), *(_with_axes(rule, ranged) for rule in rules))


def _with_axes(rule: Rule, ranged: Sequence[str]) -> Rule:
    """The rule with the axes of each tile whose size it reads."""
    axes = tuple(x for x in ranged if x.partition("_")[0] in rule.knobs and x not in rule.knobs)
    return Rule((*rule.knobs, *axes), rule.why_broken)


def _range_rules(
    form: Contraction, ranged: tuple[str, ...], knobs: Mapping[str, Knob], offers: Offers
) -> Iterator[Rule]:
    """Rules of tiles over several axes of a class."""
    if ranged:
        yield Rule(ranged, _why_not_sliced(form, ranged))
    for axes in ranged:
        yield Rule((axes, axes[0]), _why_too_long(form, knobs[axes[0]]))
        for moved in MOVED[axes[0]]:
            yield Rule((axes, moved, "specialize"), _why_no_descriptor(form, axes, moved, offers))
    sized = tuple(x for axes in ranged for x in (axes, axes[0]))
    if sized:
        for moved in ("a_load", "b_load", "store", "epilogue_load"):
            yield Rule((*sized, moved), _why_out_of_order(form, sized[::2], moved))
        for moved in LOADS:
            yield Rule((*sized, moved, "specialize"), _why_no_producer(form, sized[::2], moved))
    if "k_axes" in ranged:
        for knob, value, kinds in _NEEDED:
            yield Rule(("k_axes", knob), _why_other_loops(knob, value, kinds))
        yield Rule(("k", "k_axes", "split"), lambda values: _why_no_steps(form, values))


def _why_not_sliced(form: Contraction, ranged: Sequence[str]) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        boxed = [x[0] for x in ranged if values[x] in BOXES]
        return why_not_ranged(form, {x[0]: values[x] == RANGE for x in ranged}, boxed)

    return why


def _why_out_of_order(form: Contraction, classes: Sequence[str], moved: str) -> Callable[[Values], str | None]:
    """A descriptor moves the positions of a box in their order in memory."""

    def why(values: Values) -> str | None:
        tiles = [class_tiles(form, values, axes[0]) for axes in classes]
        if is_by_pointers(values[moved]) or not any(t.boxed for t in tiles):
            return None
        place = {x.name: Slice(Affine(), x.extent, x.name) for x in (form.m, form.n, form.k)}
        place |= {x: piece for t in tiles for x, piece in t.place(Affine()).items()}
        for access, strides in moved_by(form, moved, values.word(moved)):
            where = {v: place.get(v, Slice(Affine())) for i in access.index for v in i.axes}
            if any(sum(where[v].extent is not None for v in i.axes) > 1 for i in access.index):
                return f"{moved}={values[moved]} of {access.tensor}: a dimension moves along one axis at most"
            if reason := why_no_box(slices_at(access, where), strides):
                return f"{moved}={values[moved]} of {access.tensor}: {reason}"
        return None

    return why


def _why_no_producer(form: Contraction, classes: Sequence[str], moved: str) -> Callable[[Values], str | None]:
    """Boxes of several sides are loaded by a producer: see `dot_rules`."""

    def why(values: Values) -> str | None:
        if values["specialize"] != "none" or is_by_pointers(values[moved]):
            return None
        boxed = next((axes for axes in classes if class_tiles(form, values, axes[0]).boxed), None)
        return f"{moved}={values[moved]} of {boxed}={values[boxed]} is for a producer" if boxed else None

    return why


def _why_too_long(form: Contraction, knob: Knob) -> Callable[[Values], str | None]:
    name, least = knob.name, min(value[-1] for value in knob.values if isinstance(value, tuple))
    shortest = max(least, REDUCTION_BYTES[0] // dtype(form.dtype).bytes) if name == "k" else least

    def why(values: Values) -> str | None:
        tiles = class_tiles(form, values, name)
        if tiles.kind == JOINED:
            whole = [max(least, depth) for depth in joined_depths(form)]
            return None if tiles.size in whole else f"k={tiles.size} of k_axes=joined; expected one of {whole}"
        if tiles.boxed:
            return tiles.why_no_box()
        if tiles.ranged or fits(tiles.size, tiles.positions) or tiles.size <= shortest:
            return None
        return f"{name}={tiles.size} is longer than {tiles.positions} positions by a smaller tile; {name}_axes=range"

    return why


def _why_no_descriptor(form: Contraction, axes: str, moved: str, offers: Offers) -> Callable[[Values], str | None]:
    merged = offers.merges and moves_one_dimension(form, form.classes[axes[0]][0], moved)

    def why(values: Values) -> str | None:
        if values[axes] != RANGE or is_by_pointers(values[moved]) or values[moved] == "im2col":
            return None
        if merged and values[moved] == "descriptor" and values["specialize"] != "none":
            return None
        return f"{axes}=range runs along several dimensions, by pointers; expected {moved}=pointer"

    return why


# Decisions that need these kinds of loops over several reduced axes.
_NEEDED = (
    ("grid", STREAM_K, (FUSED, RANGE, JOINED, UNROLLED, INTERLEAVED)),
    ("tail", "peeled", (RANGE,)),
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
