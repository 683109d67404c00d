"""The search space of one workload on one target: the sketches that match, their knobs, and their legality."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from search_spaces.devices.target import Target
from search_spaces.errors import EmptySearchSpaceError, InputError, unknown_name
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.limits import NO_BACKEND, Limits
from search_spaces.schedules.schedule import Schedule
from search_spaces.schedules.sketch import Sketch
from search_spaces.workloads.workload import Workload

# Tries before a random draw gives up; spaces here have at least one legal point in a few hundred.
_MAX_DRAWS = 5000
# Combinations that are checked to count a space: a second's work, and within a few per cent for a sample.
_MOST_COUNTED = 20_000

_Point = TypeVar("_Point")


@dataclass(frozen=True)
class SearchSpace:
    """Every schedule of `workload` on `target`. All randomness comes from the generators passed in.

    `backends` are those that may make a kernel of a schedule, by name and with the limits of each. If there are
    several, the backend is a choice like that of a knob.
    """

    workload: Workload
    target: Target
    sketches: tuple[Sketch, ...]
    backends: Mapping[str, Limits] = field(default_factory=lambda: NO_BACKEND)
    # Limits that values of resource knobs break, by backend and sketch: the answer takes lowering a schedule.
    _broken: dict[tuple[str, str, tuple[KnobValue | None, ...]], str | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    # Plain equivalents of values of the same knobs, for the same kernel.
    _plainer: dict[tuple[str, str, tuple[KnobValue | None, ...]], Mapping[str, KnobValue]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _rejected: Counter[str] = field(default_factory=Counter, compare=False, repr=False)

    @property
    def rejected(self) -> int:
        """Number of illegal candidates met while schedules were drawn, changed and enumerated."""
        return self._rejected.total()

    def sketch(self, name: str) -> Sketch:
        for sketch in self.sketches:
            if sketch.name == name:
                return sketch
        raise unknown_name("sketch", name, [s.name for s in self.sketches])

    def bind(self, schedule: Schedule) -> Schedule:
        """The same schedule, able to lower and print itself here; one that names no backend gets the first.

        Raises:
            InputError: its sketch, a knob, a value or its backend is not of this space.
        """
        sketch = self.sketch(schedule.sketch)
        backend = schedule.backend or next(iter(self.backends))
        if backend not in self.backends:
            raise unknown_name(f"backend of {self.workload.label} on {self.target.name}", backend, self.backends)
        values = sketch.completed(schedule.knobs)
        got, expected = list(values), [k.name for k in sketch.knobs]
        if got != expected:
            raise InputError(f"{sketch.name}: knobs {got}, expected {expected}")
        for knob in sketch.knobs:
            if values[knob.name] not in knob.values:
                raise InputError(f"{knob.name}={values[knob.name]} is not one of {list(knob.values)[:20]}")
        # A record may say true, or 1.0, where a knob has a 1, which prints otherwise.
        own = {k.name: k.values[k.values.index(values[k.name])] for k in sketch.knobs}
        return self._schedule(sketch, sketch.plainly(Values(own), backend), backend)

    def holds(self, schedule: Schedule) -> bool:
        """True if a schedule is of this space, and not, say, of a workload that computes the same in other loops."""
        try:
            self.bind(schedule)
        except InputError:
            return False
        return True

    def restricted(self, sketch: str, **allowed: Sequence[KnobValue]) -> SearchSpace:
        """The part of the space with one sketch, and with only the allowed values of the knobs named.

        Raises:
            InputError: no such sketch or knob, or none of a knob's values is allowed.
        """
        whole = self.sketch(sketch)
        for name in allowed:
            if name not in {k.name for k in whole.knobs}:
                raise unknown_name(f"knob of {sketch}", name, [k.name for k in whole.knobs])
        for knob in whole.knobs:
            if knob.name in allowed and not any(value in allowed[knob.name] for value in knob.values):
                got = list(allowed[knob.name])
                raise InputError(f"{knob.name}: none of {got} is a value; allowed are {list(knob.values)[:20]}")
        knobs = tuple(k.restricted(allowed[k.name]) if k.name in allowed else k for k in whole.knobs)
        part = replace(whole, knobs=knobs)
        part = replace(part, seeds=tuple(v for v in whole.seeds if part.has_start(v)))
        return SearchSpace(self.workload, self.target, (part,), self.backends)

    def lower(self, schedule: Schedule) -> TileProgram:
        """The tile program of a schedule, lowered anew on every call."""
        return self.sketch(schedule.sketch).lower(schedule.knobs)

    def why_illegal(self, schedule: Schedule) -> str | None:
        """The limit that the schedule breaks, or None when it may be compiled.

        Device resources for its backend are checked once for all schedules that agree in the resource knobs.
        """
        broken = self.sketch(schedule.sketch).why_illegal(schedule.knobs, schedule.backend)
        return broken if broken is not None else self._why_unfit(schedule)

    def _why_unfit(self, schedule: Schedule) -> str | None:
        """The limit of its backend that a schedule breaks; the schedule breaks no rule of its sketch."""
        ruling = self._ruling(schedule)
        if ruling not in self._broken:
            self._broken[ruling] = self.backends[schedule.backend].why_unfit(schedule, self.target)
        return self._broken[ruling]

    def _ruling(self, schedule: Schedule) -> tuple[str, str, tuple[KnobValue | None, ...]]:
        """The backend, sketch and knob values that decide the resources of a schedule's program."""
        sketch, knobs = self.sketch(schedule.sketch), schedule.knobs
        deciding = sketch.legality_knobs if sketch.resource_knobs is None else sketch.resource_knobs
        return schedule.backend, sketch.name, tuple([knobs.get(name) for name in deciding])

    def plainly(self, schedule: Schedule) -> Schedule:
        """The legal schedule of the same kernel, in values that its backend distinguishes."""
        # Programs differ in all that legality depends on, not in their resources alone.
        sketch, knobs = self.sketch(schedule.sketch), schedule.knobs
        ruling = (schedule.backend, sketch.name, tuple([knobs.get(name) for name in sketch.legality_knobs]))
        if ruling not in self._plainer:
            self._plainer[ruling] = self._said_plainly(schedule)
        return self._with(schedule, self._plainer[ruling]) if self._plainer[ruling] else schedule

    def _said_plainly(self, schedule: Schedule) -> Mapping[str, KnobValue]:
        """Values of idle decisions for the program in effect; of numbers the least that suffices."""
        backend = self.backends[schedule.backend]
        made = backend.distinguished(schedule, self.target)
        knobs = {k.name: k.values for k in self.sketch(schedule.sketch).knobs}
        found: dict[str, KnobValue] = {}
        for name, used in made.idle if made else ():
            value = _least_enough(knobs.get(name, ()), used)
            if value is None or value == schedule.knobs[name]:
                continue
            other = self._with(schedule, {**found, name: value})
            same = backend.distinguished(other, self.target) if self.why_illegal(other) is None else None
            if made and same and same.program == made.program:
                found[name] = value
        return found

    def _with(self, schedule: Schedule, changed: Mapping[str, KnobValue]) -> Schedule:
        values = Values({**schedule.knobs, **changed})
        return self._schedule(self.sketch(schedule.sketch), values, schedule.backend)

    def _accepts(self, schedule: Schedule) -> bool:
        """True if a candidate that breaks no rule is legal; illegal ones are counted."""
        legal = self._why_unfit(schedule) is None
        self._rejected[schedule.sketch] += not legal
        return legal

    def sample(self, rng: np.random.Generator) -> Schedule:
        """A legal schedule; sketches are equally likely, and so are the values that a knob may have, and backends."""
        reason: str | None = "rules of the sketch leave a knob no value"
        for _ in range(_MAX_DRAWS):
            sketch = self.sketches[int(rng.integers(len(self.sketches)))]
            backend = self._drawn_backend(rng)
            values = sketch.decisions(backend).drawn(rng)
            if values is None:
                self._rejected[sketch.name] += 1
                continue
            schedule = self._schedule(sketch, values, backend)
            if self._accepts(schedule):
                return self.plainly(schedule)
            reason = self.why_illegal(schedule)
        raise EmptySearchSpaceError(
            f"no legal schedule in {_MAX_DRAWS} draws for {self.workload.label} on {self.target.name}; "
            f"the last one: {reason}"
        )

    def mutate(self, schedule: Schedule, rng: np.random.Generator) -> Schedule:
        """A legal schedule that differs in one knob, or in its backend; the same schedule when none is found.

        Knobs that are decided later (of another backend any) also change if their values became illegal.
        """
        sketch = self.sketch(schedule.sketch)
        knobs = [k for k in sketch.knobs if len(k.values) > 1]
        choices = len(knobs) + (len(self.backends) > 1)
        for _ in range(32 if choices else 0):
            chosen = int(rng.integers(choices))
            if chosen < len(knobs):
                backend = schedule.backend
                values = sketch.decisions(backend).mutated(schedule.knobs, knobs[chosen].name, rng)
            else:
                others = self._other_backends(schedule)
                backend = others[int(rng.integers(len(others)))]
                values = sketch.decisions(backend).settled(schedule.knobs)
            if values is not None and self._accepts(found := self._schedule(sketch, values, backend)):
                found = self.plainly(found)
                if found != schedule:
                    return found
        return schedule

    def crossover(self, a: Schedule, b: Schedule, rng: np.random.Generator) -> Schedule:
        """A legal mix of two schedules of one sketch, knob by knob; `a` when the sketches differ or no mix is legal.

        The backend is that of `a`.
        """
        if a.sketch != b.sketch:
            return a
        sketch = self.sketch(a.sketch)
        for _ in range(8):
            values = sketch.decisions(a.backend).mixed(a.knobs, b.knobs, rng)
            found = self._schedule(sketch, values, a.backend) if values is not None else a
            if values is not None and self._accepts(found):
                return self.plainly(found)
        return a

    def seeds(self) -> list[Schedule]:
        """The legal ones of the points that sketches propose to try first.

        Points of sketches alternate. Points of the best backend alternate with points that only others can make, or
        only they as proposed; points that others can make too come last. So a short search with several backends finds
        about as much as one with the first backend alone.
        """
        proposed = [(sketch, values) for sketch in self.sketches for values in sketch.seeds if sketch.has_start(values)]
        legal: dict[str, dict[int, Schedule]] = {}
        for name in self.backends:
            found = {i: self._as_deep_as_fits(*point, name) for i, point in enumerate(proposed)}
            legal[name] = {i: self.plainly(s) for i, s in found.items() if self.why_illegal(s) is None}
        maker: dict[int, str] = {}
        for i, (sketch, values) in enumerate(proposed):
            able = [name for name in legal if i in legal[name]]
            maker |= {i: next((x for x in able if sketch.distinguishes(values, x)), able[0])} if able else {}
        order = list(_in_turn([[i for i in maker if proposed[i][0] is sketch] for sketch in self.sketches]))
        own = [[found[i] for i in order if maker[i] == name] for name, found in legal.items()]
        again = [found[i] for name, found in legal.items() for i in order if i in found and maker[i] != name]
        return list(dict.fromkeys([*_in_turn(own), *again]))

    def _as_deep_as_fits(self, sketch: Sketch, values: Values, backend: str) -> Schedule:
        """The start, or the deepest one below it that is legal; an illegal one if there is none."""
        values = sketch.plainly(values, backend)
        found = self._schedule(sketch, values, backend)
        for depth in sketch.depths(values):
            found = self._schedule(sketch, Values({**values, sketch.depth_knob: depth}), backend)
            if self.why_illegal(found) is None:
                break
        return found

    def neighbours(self, schedule: Schedule) -> Iterator[Schedule]:
        """Every legal schedule one step of one knob away, or made by another backend.

        Knobs that are decided later also change if their values became illegal.
        """
        sketch, own = self.sketch(schedule.sketch), schedule.backend
        near = ((v, own) for k in sketch.knobs for v in sketch.decisions(own).neighbours(schedule.knobs, k.name))
        others = ((sketch.decisions(x).settled(schedule.knobs), x) for x in self._other_backends(schedule))
        for values, backend in itertools.chain(near, others):
            if values is not None and self._accepts(found := self._schedule(sketch, values, backend)):
                found = self.plainly(found)
                if found != schedule:
                    yield found

    def __iter__(self) -> Iterator[Schedule]:
        """Every legal schedule, in a fixed order."""
        for name, sketch in itertools.product(self.backends, self.sketches):
            for values in sketch.decisions(name).all():
                found = self._schedule(sketch, values, name)
                if self._accepts(found) and self.plainly(found) == found:
                    yield found

    @property
    def size(self) -> int:
        """Number of legal schedules: counted over `legality_knobs`, or estimated from a sample of combinations."""
        return sum(self._legal_in(sketch, name) for name in self.backends for sketch in self.sketches)

    def _legal_in(self, sketch: Sketch, backend: str) -> int:
        ruled = [k for k in sketch.knobs if k.name in sketch.legality_knobs]
        free = [k for k in sketch.knobs if k.name not in sketch.legality_knobs]
        first = {k.name: k.values[0] for k in sketch.knobs}
        combinations = math.prod(len(k.values) for k in ruled)
        looked_at: Iterable[tuple[KnobValue, ...]] = itertools.product(*(k.values for k in ruled))
        if combinations > _MOST_COUNTED:
            rng = np.random.default_rng(0)
            looked_at = (tuple(k.sample(rng) for k in ruled) for _ in range(_MOST_COUNTED))
        legal = seen = 0
        for values in looked_at:
            chosen = Values({**first, **dict(zip((k.name for k in ruled), values, strict=True))})
            legal += self.why_illegal(self._schedule(sketch, chosen, backend)) is None
            seen += 1
        return round(legal / seen * combinations) * math.prod(len(k.values) for k in free)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Restrictions of the space for this workload, with reasons."""
        return tuple(dict.fromkeys(remark for sketch in self.sketches for remark in sketch.remarks))

    def _drawn_backend(self, rng: np.random.Generator) -> str:
        names = list(self.backends)
        return names[int(rng.integers(len(names)))] if len(names) > 1 else names[0]

    def _other_backends(self, schedule: Schedule) -> list[str]:
        return [name for name in self.backends if name != schedule.backend]

    def _schedule(self, sketch: Sketch, values: Values, backend: str) -> Schedule:
        return Schedule(sketch.name, tuple([(k.name, values[k.name]) for k in sketch.knobs]), self.lower, backend)


def _in_turn(some: Sequence[Sequence[_Point]]) -> Iterator[_Point]:
    """The first of each, then the second of each, and so on."""
    return (x for turn in itertools.zip_longest(*some) for x in turn if x is not None)


def _least_enough(values: Sequence[KnobValue], used: KnobValue) -> KnobValue | None:
    """The value itself if a knob has it, else the least number above it, or None."""
    if used in values or not isinstance(used, int):
        return used if used in values else None
    return min((v for v in values if isinstance(v, int) and v > used), default=None)
