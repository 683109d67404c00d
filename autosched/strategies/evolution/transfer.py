"""Transfer of schedules from one search space to another: the nearest point, knob by knob."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from search_spaces import InputError, Schedule, SearchSpace
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import TuningRecord
from tuning_logs.shape_distance import shape_distance

# More than values of the same levels are ever apart: a loop that is not cut is unlike one that is.
_OTHER_LEVELS = 100.0


def transferred(space: SearchSpace, records: Sequence[TuningRecord], count: int) -> list[Schedule]:
    """At most `count` schedules of `space` for a warm start: the best of other workloads, targets and logs, adapted.

    The records are successful, most similar first. Latencies are compared within one workload, target and timing policy
    only. The best of the first group comes first, then its second and the best of the second group, then the next of
    all three …
    """
    groups: dict[tuple[str, str, str], list[TuningRecord]] = {}
    for record in records:
        groups.setdefault((*record.key, record.provenance.policy), []).append(record)
    ranked: list[tuple[int, Schedule]] = []
    for number, group in enumerate(groups.values()):
        fast_first = sorted(group, key=lambda r: r.measurement.undisturbed_s)
        schedules = dict.fromkeys(r.schedule for r in fast_first)
        ranked += [(number + place, schedule) for place, schedule in enumerate(schedules)]
    best = dict.fromkeys(schedule for _, schedule in sorted(ranked, key=lambda pair: pair[0])[:count])
    return list(dict.fromkeys(found for s in best if (found := adapted(space, s)) is not None))


def winners(space: SearchSpace, records: Iterable[TuningRecord], count: int) -> list[Schedule]:
    """The best schedule of each of the `count` workloads nearest in shape, nearest first, adapted to `space`."""
    best: dict[tuple[str, str], TuningRecord] = {}
    for record in (r for r in records if r.measurement.ok):
        known = best.setdefault(record.key, record)
        if record.measurement.undisturbed_s < known.measurement.undisturbed_s:
            best[record.key] = record
    nearest = sorted(best.values(), key=lambda r: shape_distance(r.subject, space.workload))[:count]
    return [found for r in nearest if (found := adapted(space, r.schedule)) is not None]


def adapted(space: SearchSpace, schedule: Schedule) -> Schedule | None:
    """The schedule of `space` most similar to `schedule`; None if the space lacks its sketch or no such point is legal.

    Values that the space has stay, and so does its backend. A tiling keeps its inner levels: a loop of another extent
    gets another outermost factor. Other numbers become the nearest value in ratio; a value without a nearest becomes
    the first.
    """
    try:
        sketch = space.sketch(schedule.sketch)
    except InputError:
        return None
    values = tuple((k.name, _nearest(schedule.knobs.get(k.name), k.values)) for k in sketch.knobs)
    try:
        backend = schedule.backend if schedule.backend in space.backends else ""
        found = space.bind(Schedule(sketch.name, values, backend=backend))
    except InputError:
        return None
    return found if space.why_illegal(found) is None else None


def _nearest(value: KnobValue | None, allowed: tuple[KnobValue, ...]) -> KnobValue:
    if value is None or value in allowed:
        return allowed[0] if value is None else value
    return min(allowed, key=lambda other: _distance(value, other))


def _distance(a: KnobValue, b: KnobValue) -> float:
    if isinstance(a, tuple) and isinstance(b, tuple):
        # Inner levels say more than the outermost, which follows from them and the size; how many there are says most.
        *inner, first = (_distance(x, y) for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1))
        return 0.01 * first + sum(inner) + _OTHER_LEVELS * (len(a) != len(b))
    if isinstance(a, int) and isinstance(b, int) and not isinstance(a, bool) and not isinstance(b, bool):
        return abs(math.log2((abs(a) + 1) / (abs(b) + 1)))
    return 0.0 if a == b else math.inf
