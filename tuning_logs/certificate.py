"""The certificate of a search's winner: the evidence that it won, and everything needed to repeat it elsewhere.

It is written once, by the machine that measured, and never changed. Unknown facts are null.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces import DataError
from search_spaces.parsed_json import array, members, number, text, truth, whole, word
from tuning_logs.device_state import DeviceState
from tuning_logs.intervals import Interval, paired_ratio, ratio_interval
from tuning_logs.times import LATEST_S, LONGEST_S, SHORTEST_S
from tuning_logs.versions import Versions, versions_from_json

# Neither of two kernels for one workload is a million times as fast as the other.
_MOST_TIMES = 1e6


@dataclass(frozen=True)
class Ratio:
    """The latency of another kernel by that of the winner: median over paired rounds, and its 95 % interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(other: Sequence[float], winner: Sequence[float]) -> Ratio | None:
        """From the seconds of both in every round; None with fewer than six rounds."""
        interval = ratio_interval(other, winner)
        return None if interval is None else Ratio(paired_ratio(other, winner), interval.low, interval.high)

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)

    def to_json(self) -> list[float]:
        return [float(f"{part:.5g}") for part in (self.value, self.low, self.high)]

    @staticmethod
    def from_json(data: Any, what: str) -> Ratio:
        """Raises DataError."""
        value, low, high = (number(part, what, 1 / _MOST_TIMES, _MOST_TIMES) for part in array(data, what, (3,)))
        if not low <= value <= high:
            raise DataError(f"{what}: {value:g} is not within {low:g} and {high:g}")
        return Ratio(value, low, high)


@dataclass(frozen=True)
class Pairs:
    """The winner and one other kernel, timed alternately, round by round.

    `other` is "library", "itself", or the source fingerprint of the runner-up or the calibration kernel. `winner_s` and
    `other_s` are medians of seconds; `first` is the ratio over the rounds in which the winner ran first, `second` over
    the others, each None where these were fewer than six.
    """

    other: str
    rounds: int
    winner_s: float
    other_s: float
    ratio: Ratio
    first: Ratio | None
    second: Ratio | None

    @staticmethod
    def of(name: str, winner: Sequence[float], other: Sequence[float], winner_first: Sequence[bool]) -> Pairs | None:
        """From the seconds of both in every round, and the order of each; None with fewer than six rounds."""
        ratio = Ratio.of(other, winner)
        if ratio is None:
            return None
        rounds = list(zip(winner, other, winner_first, strict=True))
        halves = [[(o, w) for w, o, first in rounds if first is order] for order in (True, False)]
        first, second = (Ratio.of([o for o, _ in half], [w for _, w in half]) for half in halves)
        return Pairs(name, len(rounds), statistics.median(winner), statistics.median(other), ratio, first, second)

    def to_json(self) -> dict[str, Any]:
        return {
            "other": self.other,
            "rounds": self.rounds,
            "winner_s": float(f"{self.winner_s:.6g}"),
            "other_s": float(f"{self.other_s:.6g}"),
            "ratio": self.ratio.to_json(),
            "winner_first": self.first and self.first.to_json(),
            "winner_second": self.second and self.second.to_json(),
        }

    @staticmethod
    def from_json(data: Any, what: str) -> Pairs:
        """Raises DataError."""
        names = ("other", "rounds", "winner_s", "other_s", "ratio", "winner_first", "winner_second")
        given = members(data, what, names)
        orders = [given["winner_first"], given["winner_second"]]
        first, second = (None if one is None else Ratio.from_json(one, f"{what}: order") for one in orders)
        return Pairs(
            other=text(given["other"], f"{what}: other"),
            rounds=whole(given["rounds"], f"{what}: rounds", 1),
            winner_s=number(given["winner_s"], f"{what}: winner_s", SHORTEST_S, LONGEST_S),
            other_s=number(given["other_s"], f"{what}: other_s", SHORTEST_S, LONGEST_S),
            ratio=Ratio.from_json(given["ratio"], f"{what}: ratio"),
            first=first,
            second=second,
        )


@dataclass(frozen=True)
class Results:
    """The check of a kernel's results against the reference in float64, on inputs drawn from `seed`.

    `inputs` are name, shape and element type of each. `max_error` is the largest error as a fraction of what is allowed
    at its element, `error` and `tolerance` that error and the allowed one as they are. `guard_band_bytes` on either
    side of every operand were left as they were. `runs` on the same inputs gave the same bits if `repeatable`, None
    where there was no memory to compare them.
    """

    seed: int
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    max_error: float
    error: float
    tolerance: float | None
    guard_band_bytes: int
    runs: int
    repeatable: bool | None

    def to_json(self) -> dict[str, Any]:
        inputs = [{"name": name, "shape": list(shape), "dtype": dtype} for name, shape, dtype in self.inputs]
        errors = {"max_error": self.max_error, "error": self.error, "tolerance": self.tolerance}
        rounded = {name: None if error is None else float(f"{error:.4g}") for name, error in errors.items()}
        return {**self.__dict__, "inputs": inputs, **rounded}

    @staticmethod
    def from_json(data: Any) -> Results:
        """Raises DataError."""
        names = ("seed", "inputs", "max_error", "error", "tolerance", "guard_band_bytes", "runs", "repeatable")
        given = members(data, "results", names)
        return Results(
            seed=whole(given["seed"], "seed"),
            inputs=tuple(map(_input, array(given["inputs"], "inputs"))),
            max_error=number(given["max_error"], "max_error"),
            error=number(given["error"], "error"),
            tolerance=None if given["tolerance"] is None else number(given["tolerance"], "tolerance"),
            guard_band_bytes=whole(given["guard_band_bytes"], "guard_band_bytes"),
            runs=whole(given["runs"], "runs", 1),
            repeatable=None if given["repeatable"] is None else truth(given["repeatable"], "repeatable"),
        )


def _input(data: Any) -> tuple[str, tuple[int, ...], str]:
    given = members(data, "input", ("name", "shape", "dtype"))
    shape = tuple(whole(size, "size") for size in array(given["shape"], "shape"))
    return text(given["name"], "input"), shape, word(given["dtype"], "dtype")


@dataclass(frozen=True)
class Device:
    """The device itself: a card by its `uuid`, None for a CPU; the `cores` that a CPU's kernels ran on.

    `processor` is a digest of the CPU's name and instructions, which decide the binary; None for a GPU. `states` are
    those of a GPU before the first rounds and after each kind, as far as they can be read.
    """

    name: str
    uuid: str | None
    cores: tuple[int, ...] | None
    processor: str | None
    states: tuple[DeviceState, ...]

    def to_json(self) -> dict[str, Any]:
        cores = None if self.cores is None else list(self.cores)
        return {**self.__dict__, "cores": cores, "states": [state.to_json() for state in self.states]}

    @staticmethod
    def from_json(data: Any) -> Device:
        """Raises DataError."""
        given = members(data, "device", ("name", "uuid", "cores", "processor", "states"))
        cores = given["cores"]
        return Device(
            name=text(given["name"], "device"),
            uuid=_text_or_none(given["uuid"], "uuid"),
            cores=None if cores is None else tuple(whole(core, "core") for core in array(cores, "cores")),
            processor=_text_or_none(given["processor"], "processor"),
            states=tuple(map(DeviceState.from_json, array(given["states"], "states"))),
        )


@dataclass(frozen=True)
class Certificate:
    """The evidence for one kernel, of one moment and session.

    `workload` and `schedule` are their keys; `source` the fingerprint of the source, `binary` the SHA-256 of what was
    loaded; `policy` that of timing; `unix_s` the time. `library`, `runner_up` and `itself` (the same binary loaded
    twice: the ratio that the method finds where there is no difference) are None where there is no such kernel, or six
    rounds with it would have taken too long. So is `calibration`, with one small kernel that is the same for all
    certificates of a device; certificates of earlier versions have none.
    """

    workload: str
    schedule: str
    source: str | None
    binary: str
    policy: str
    unix_s: float
    library: Pairs | None
    runner_up: Pairs | None
    itself: Pairs | None
    results: Results
    device: Device
    versions: Versions
    calibration: Pairs | None = None

    @property
    def pairs(self) -> tuple[tuple[str, Pairs | None], ...]:
        """All pairs by the name of the other kernel."""
        return (
            ("library", self.library),
            ("runner-up", self.runner_up),
            ("itself", self.itself),
            ("calibration", self.calibration),
        )

    def to_json(self) -> dict[str, Any]:
        pairs = {name: found and found.to_json() for name in _PAIRS for found in [getattr(self, name)]}
        rest = {"results": self.results.to_json(), "device": self.device.to_json(), "versions": dict(self.versions)}
        return {**self.__dict__, **pairs, **rest}

    @staticmethod
    def from_json(data: Any) -> Certificate:
        """Members that this version does not know are left out. Raises DataError."""
        given = members(data, "certificate", _MEMBERS)
        library, runner_up, itself, calibration = (
            None if given.get(name) is None else Pairs.from_json(given[name], name) for name in _PAIRS
        )
        return Certificate(
            workload=text(given["workload"], "workload"),
            schedule=text(given["schedule"], "schedule"),
            source=_text_or_none(given["source"], "source"),
            binary=text(given["binary"], "binary"),
            policy=word(given["policy"], "policy"),
            unix_s=number(given["unix_s"], "unix_s", most=LATEST_S),
            library=library,
            runner_up=runner_up,
            itself=itself,
            results=Results.from_json(given["results"]),
            device=Device.from_json(given["device"]),
            versions=versions_from_json(given["versions"]),
            calibration=calibration,
        )


# Those that every certificate has.
_MEMBERS = tuple(field.name for field in dataclasses.fields(Certificate) if field.name != "calibration")
_PAIRS = ("library", "runner_up", "itself", "calibration")


def _text_or_none(value: object, what: str) -> str | None:
    return None if value is None else text(value, what)
