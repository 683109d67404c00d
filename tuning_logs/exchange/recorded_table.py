"""A recorded table: one tuner's measurements of one kernel on one device, in any format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from search_spaces import Target
from search_spaces.plain_text import visible
from search_spaces.schedules.plain_space import PlainSpace, PlainValue, Point
from tuning_logs.exchange.fitting import Fitted, fitted
from tuning_logs.measurement import Status
from tuning_logs.record import Provenance, Subject


@dataclass(frozen=True)
class RecordedTrial:
    """The outcome of one configuration: seconds where `status` is "ok", None where it failed.

    `repeats_s` are the single measurements behind `seconds`, where they were kept; `compile_s`, `check_s`, `timing_s`
    and `search_s` the costs of the trial; `unix_s` its time, None where unknown. `source` is the fingerprint of the
    compiled source, "" where unknown.
    """

    point: Point
    seconds: float | None
    status: Status = "ok"
    repeats_s: tuple[float, ...] = ()
    compile_s: float = 0.0
    check_s: float = 0.0
    timing_s: float = 0.0
    search_s: float = 0.0
    unix_s: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if (self.status == "ok") != (self.seconds is not None):
            raise ValueError(f"status {self.status!r} with {self.seconds} seconds; only 'ok' has seconds")


@dataclass(frozen=True)
class Origin:
    """The origin of a table made from a tuning log: enough to make its records again.

    `orders` are the sketches with their knobs in order; a sketch that gained knobs has several.
    """

    subject: Subject
    target: Target
    provenance: Provenance
    orders: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class RecordedTable:
    """The trials of one kernel on one device, each configuration once. `kernel` and `device` are "" where unknown.

    `names` and `values` are the knobs and their allowed values, in the order of a point's values. `problem_size` is the
    tuner's problem size.
    """

    kernel: str
    device: str
    names: tuple[str, ...]
    values: tuple[Point, ...]
    trials: tuple[RecordedTrial, ...]
    problem_size: tuple[int | str, ...] = ()
    origin: Origin | None = None

    @property
    def label(self) -> str:
        return visible(" on ".join(part for part in (self.kernel, self.device) if part) or "a kernel without a name")

    @cached_property
    def space(self) -> PlainSpace:
        """The space of the recorded trials: its points are theirs."""
        knobs = dict(zip(self.names, self.values, strict=True))
        return PlainSpace(knobs, configurations=[trial.point for trial in self.trials])

    def fitted_to(self, space: PlainSpace) -> Fitted:
        """The measurements as history of a search of another space.

        Raises:
            InputError: it lacks a knob of the space.
        """
        return fitted(self.names, [t.point for t in self.trials], [t.seconds for t in self.trials], space)


def latest(trials: Iterable[RecordedTrial]) -> tuple[RecordedTrial, ...]:
    """Each configuration once: its last trial, in the order of the first ones."""
    return tuple({trial.point: trial for trial in trials}.values())


def values_of(trials: Sequence[RecordedTrial], knobs: int) -> tuple[Point, ...]:
    """The values of every knob: numbers sorted, unordered values in order of appearance."""
    return tuple(_sorted([trial.point[knob] for trial in trials]) for knob in range(knobs))


def _sorted(values: Iterable[PlainValue]) -> Point:
    found = list(dict.fromkeys(values))
    numbers = [v for v in found if isinstance(v, int | float)]
    return tuple(sorted(numbers)) if len(numbers) == len(found) else tuple(found)


def point_of(values: dict[str, PlainValue], names: Sequence[str]) -> Point:
    """The values of the knobs in order; None for a knob that has none."""
    return tuple([values.get(name) for name in names])


def names_in(rows: Iterable[dict[str, PlainValue]]) -> tuple[str, ...]:
    """The names in any row, in order of appearance."""
    return tuple(dict.fromkeys(name for row in rows for name in row))


def spread(name: str, value: PlainValue) -> dict[str, PlainValue]:
    """A knob value of several numbers as several knobs: `tile=(64, 32)` is `tile.0=64` and `tile.1=32`.

    Other tuners know scalars only, and models learn more from numbers than from tuples.
    """
    if isinstance(value, tuple):
        return {f"{name}.{place}": part for place, part in enumerate(value)}
    return {name: value}


def gathered(values: dict[str, PlainValue]) -> dict[str, PlainValue]:
    """The inverse of `spread`; knobs without a value are left out.

    Raises:
        ValueError: a knob has both a value and parts.
    """
    found: dict[str, PlainValue] = {}
    for name, value in values.items():
        whole, dot, place = name.rpartition(".")
        if value is None or not (dot and place.isdecimal()):
            found |= {} if value is None else {name: value}
            continue
        before = found.get(whole, ())
        if not isinstance(before, tuple) or isinstance(value, tuple):
            raise ValueError(f"knob {name}={value!r}: expected one number of {whole}, which is {before!r}")
        found[whole] = (*before, value)
    return found
