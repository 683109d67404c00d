"""Kinds of reductions of rows, each as a space of its own: rows are resident in a tile, streamed, or shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search_spaces import InputError, Schedule, SearchSpace
from search_spaces.schedules.knobs import KnobValue

ANCHOR = "reduction"
KINDS = ("resident", "streamed", "shared")


def kind_of(schedule: Schedule) -> str:
    """The kind of a reduction of rows; "" of another anchor."""
    if schedule.sketch != ANCHOR:
        return ""
    if schedule.knobs.integer("split") > 1:
        return "shared"
    return "resident" if len(schedule.knobs.tiling("columns")) == 1 else "streamed"


def of_kind(space: SearchSpace, kind: str, **allowed: Sequence[KnobValue]) -> SearchSpace:
    """The part of a space with one kind, and with the allowed values; InputError where there is none."""
    values = {k.name: k.values for k in space.sketch(ANCHOR).knobs}
    cut = [v for v in values["columns"] if isinstance(v, tuple) and (len(v) > 1) == (kind != "resident")]
    split = [v for v in values["split"] if (v != 1) == (kind == "shared")]
    return space.restricted(ANCHOR, **{"columns": cut, "split": split, **allowed})


def parts(space: SearchSpace) -> Iterator[SearchSpace]:
    """Every anchor as a space of its own, and of reductions of rows every kind."""
    for sketch in space.sketches:
        if sketch.name != ANCHOR:
            yield space.restricted(sketch.name)
            continue
        for kind in KINDS:
            try:
                yield of_kind(space, kind)
            except InputError:
                continue


def first_start(space: SearchSpace, kind: str) -> Schedule:
    """The first starting point of a kind, or of another anchor by its name."""
    return next(s for s in space.seeds() if kind in (kind_of(s), s.sketch))
