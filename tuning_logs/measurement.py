"""The outcome of one trial: a status, and the figures that go with it. A failure is a value, never a big number."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import Any, Literal, get_args

from search_spaces import DataError
from search_spaces.parsed_json import array, members, number, text, whole
from search_spaces.plain_text import encodable
from tuning_logs.alternative import Alternative
from tuning_logs.certificate import Certificate
from tuning_logs.device_state import DeviceState
from tuning_logs.times import LONGEST_S, SHORTEST_S

Status = Literal[
    "ok",
    "compile_error",  # the printer or the compiler refused it
    "compile_timeout",  # the compiler did not end in time
    "compile_crash",  # the compile worker died
    "load_error",  # the device refused the binary: too much shared memory, too many registers
    "run_error",  # the launch failed, or the device reported an error
    "run_timeout",  # the kernel did not end in time
    "run_crash",  # the measuring worker died
    "wrong_result",  # outside the tolerance
    "not_finite",  # NaN or infinity where a number was expected
    "unwritten_output",  # part of the output was not written
    "out_of_bounds_read",  # right only while there are zeros around the inputs
    "out_of_bounds_write",  # memory before or after the output was written to
    "changed_input",  # an input was written to
    "out_of_memory",  # the compiler or the kernel asked for more memory than it may have
    "pruned",  # compiled, but its compile facts say that it cannot win: never run
]
STATUSES: tuple[Status, ...] = get_args(Status)
# Failures that the check of a kernel that ran can find.
CHECK_FAILURES: tuple[Status, ...] = (
    "wrong_result",
    "not_finite",
    "unwritten_output",
    "out_of_bounds_read",
    "out_of_bounds_write",
    "changed_input",
)

# Source of an "ok" trial's latencies: all repeats; two, as it is clearly slower than the best; or an earlier trial
# whose binary was the same, byte for byte.
Timing = Literal["full", "short", "shared"]
TIMINGS: tuple[Timing, ...] = get_args(Timing)


@dataclass(frozen=True)
class CompileFacts:
    """The compiler's facts about a binary, of the worst kernel of the program; None where unknown.

    `source` is the fingerprint of the compiled source (`autosched.backends.fingerprint`): another version of autosched
    with the same fingerprint for a schedule makes the same kernel of it. For a trial that failed in compiling, it may
    be the only fact, with no seconds.
    """

    seconds: float
    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if v is not None}

    @staticmethod
    def from_json(data: Any) -> CompileFacts:
        """Raises DataError."""
        given = members(data, "facts", ("seconds",), _FACTS)
        counts = {k: whole(v, f"facts: {k}") for k, v in given.items() if k not in ("seconds", "source")}
        source = text(given["source"], "facts: source") if "source" in given else None
        return CompileFacts(number(given["seconds"], "facts: seconds", most=LONGEST_S), source=source, **counts)


@dataclass(frozen=True)
class Measurement:
    """The outcome of one trial.

    `latencies_s` are the repeats, in order, and empty unless `status` is "ok"; `detail` is the reason of a failure in
    one line; `max_error` is the largest error as a fraction of the tolerance; `seconds` is the measuring worker's time
    for the trial, `load_s` and `timing_s` its parts for loading the binary and for timing it. `slowdown` is the
    device's slowdown during the repeats relative to its best (1: undisturbed): latencies are as measured, disturbed or
    not. `device` is the GPU's state at the time, from NVML. `library_s` are the vendor library's latencies in rounds
    with the winner of finals, and `beside_library_s` the winner's own; records of earlier versions have no such
    rounds, but the library's latencies in those of `latencies_s`. `by_histogram`: where segments of several
    histograms are timed, and latencies are geometric means over these, the trial's median of each by its name. `card`
    is the one of a fleet that measured: its UUID, or on CPUs the node.

    Alternatives within compiled models, each None where none was timed: `library`, a library's one call, timed against
    the kernel alone; `rival`, another kernel of the log, by the fingerprint of its source (its own in the record of a
    kernel that models launch in the place of the best one); `early`, its launch while the kernel before it runs.
    `cuts`, other kernels for whole functions, of whose fastest cut by the sum of its kernels this record has the first:
    one of each function, named by a digest of both cuts.

    `certificate`: of the winner of finals, everything needed to judge and repeat the claim that it won.
    """

    status: Status
    latencies_s: tuple[float, ...] = ()
    detail: str = ""
    facts: CompileFacts | None = None
    max_error: float | None = None
    seconds: float = 0.0
    slowdown: float = 1.0
    timing: Timing = "full"
    device: DeviceState | None = None
    load_s: float = 0.0
    timing_s: float = 0.0
    library_s: tuple[float, ...] = ()
    beside_library_s: tuple[float, ...] = ()
    library: Alternative | None = None
    rival: Alternative | None = None
    early: Alternative | None = None
    cuts: tuple[Alternative, ...] = ()
    by_histogram: tuple[tuple[str, float], ...] = ()
    card: str = ""
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        if (self.status == "ok") != bool(self.latencies_s):
            raise ValueError(f"status {self.status!r} with {len(self.latencies_s)} latencies; only 'ok' has latencies")

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def source(self) -> str | None:
        """The fingerprint of the source that was compiled, or would have been; None where unknown."""
        return self.facts.source if self.facts else None

    @property
    def latency_s(self) -> float:
        """The median of the repeats; ValueError for a failed trial."""
        if not self.latencies_s:
            raise ValueError(f"a trial with status {self.status!r} has no latency")
        return statistics.median(self.latencies_s)

    @property
    def paired_s(self) -> tuple[float, ...]:
        """The latencies in the rounds of `library_s`."""
        return self.beside_library_s or self.latencies_s

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Alternatives that were timed."""
        return tuple(alternative for _, alternative in self.named_alternatives)

    @property
    def named_alternatives(self) -> tuple[tuple[str, Alternative], ...]:
        """Alternatives that were timed, each with the name of its member, which is "cut" for all cuts."""
        found = ((name, getattr(self, name)) for name in ALTERNATIVES)
        return (*((name, one) for name, one in found if one is not None), *(("cut", cut) for cut in self.cuts))

    def with_cut(self, cut: Alternative) -> Measurement:
        """The same with a comparison of two cuts, in the place of an earlier one of these."""
        others = (other for other in self.cuts if other.name != cut.name)
        return dataclasses.replace(self, cuts=(*others, cut))

    @property
    def check_s(self) -> float:
        """The part of `seconds` for checking against the reference."""
        return max(0.0, self.seconds - self.load_s - self.timing_s)

    @property
    def undisturbed_s(self) -> float:
        """The latency corrected for the slowdown: an estimate, to rank trials with and not to report."""
        return self.latency_s / self.slowdown

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"status": self.status, "seconds": round(self.seconds, 6)}
        if self.latencies_s:
            data["latencies_s"] = [float(f"{t:.6g}") for t in self.latencies_s]
        if self.library_s:
            data["library_s"] = [float(f"{t:.6g}") for t in self.library_s]
        if self.beside_library_s:
            data["beside_library_s"] = [float(f"{t:.6g}") for t in self.beside_library_s]
        data |= {name: found.to_json() for name in ALTERNATIVES if (found := getattr(self, name)) is not None}
        if self.cuts:
            data["cuts"] = [cut.to_json() for cut in self.cuts]
        if self.by_histogram:
            data["by_histogram"] = {name: float(f"{seconds:.6g}") for name, seconds in self.by_histogram}
        if self.card:
            data["card"] = encodable(self.card)
        if self.certificate:
            data["certificate"] = self.certificate.to_json()
        if self.detail:
            data["detail"] = encodable(self.detail)
        if self.facts:
            data["facts"] = self.facts.to_json()
        if self.slowdown != 1.0:
            data["slowdown"] = round(self.slowdown, 3)
        if self.max_error is not None:
            data["max_error"] = float(f"{self.max_error:.4g}")
        if self.timing_s:
            data["timing_s"] = round(self.timing_s, 6)
        if self.load_s:
            data["load_s"] = round(self.load_s, 6)
        if self.timing != "full":
            data["timing"] = self.timing
        if self.device:
            data["device"] = self.device.to_json()
        return data

    @staticmethod
    def from_json(data: Any) -> Measurement:
        """Raises DataError; ValueError where status and latencies do not fit."""
        given = members(data, "measurement", ("status",))
        if given["status"] not in STATUSES:
            raise DataError(f"unknown status {given['status']!r} (allowed: {', '.join(STATUSES)})")
        if given.get("timing", "full") not in TIMINGS:
            raise DataError(f"unknown timing {given['timing']!r} (allowed: {', '.join(TIMINGS)})")
        return Measurement(
            status=given["status"],
            latencies_s=_latencies(given, "latencies_s"),
            detail=text(given.get("detail", ""), "detail"),
            facts=CompileFacts.from_json(given["facts"]) if "facts" in given else None,
            max_error=number(given["max_error"], "max_error") if given.get("max_error") is not None else None,
            seconds=number(given.get("seconds", 0.0), "seconds", most=LONGEST_S),
            slowdown=number(given.get("slowdown", 1.0), "slowdown", SHORTEST_S, LONGEST_S),
            load_s=number(given.get("load_s", 0.0), "load_s", most=LONGEST_S),
            timing_s=number(given.get("timing_s", 0.0), "timing_s", most=LONGEST_S),
            library_s=_latencies(given, "library_s"),
            beside_library_s=_latencies(given, "beside_library_s"),
            library=_alternative(given, "library"),
            rival=_alternative(given, "rival"),
            early=_alternative(given, "early"),
            cuts=_cuts(given),
            by_histogram=_by_histogram(given),
            card=text(given.get("card", ""), "card"),
            certificate=Certificate.from_json(given["certificate"]) if "certificate" in given else None,
            timing=given.get("timing", "full"),
            device=DeviceState.from_json(given["device"]) if "device" in given else None,
        )


# Members that have one alternative each.
ALTERNATIVES = ("library", "rival", "early")
_FACTS = tuple(field.name for field in dataclasses.fields(CompileFacts))


def _alternative(given: dict[str, Any], name: str) -> Alternative | None:
    return Alternative.from_json(given[name], name) if name in given else None


def _cuts(given: dict[str, Any]) -> tuple[Alternative, ...]:
    # Earlier versions noted one of them.
    found = [given["cut"]] if "cut" in given else array(given.get("cuts", []), "cuts")
    return tuple(Alternative.from_json(cut, "cuts") for cut in found)


def _by_histogram(given: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    found = members(given.get("by_histogram", {}), "by_histogram", ())
    taken = {name: number(seconds, "by_histogram", SHORTEST_S, LONGEST_S) for name, seconds in found.items()}
    return tuple(taken.items())


def _latencies(given: dict[str, Any], name: str) -> tuple[float, ...]:
    found = array(given[name], name) if name in given else ()
    if found and not ({*map(type, found)} <= {int, float} and min(found) >= SHORTEST_S and max(found) <= LONGEST_S):
        raise DataError(f"{name}: expected each to be a positive number of seconds")
    return tuple(map(float, found))
