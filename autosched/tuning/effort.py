"""Cost of a search: candidates stopped by each rung of its ladder of cost, and its time by activity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass

from autosched.strategies import Stopped
from tuning_logs import CHECK_FAILURES, Status, TuningRecord
from tuning_logs.text import table_lines

# The rungs at which a trial can fail, cheapest first, by status.
_RUNGS: Mapping[str, tuple[Status, ...]] = {
    "compile": ("compile_error", "compile_timeout", "compile_crash"),
    "compile facts": ("pruned",),
    "load and run": ("load_error", "run_error", "run_timeout", "run_crash", "out_of_memory"),
    "check": CHECK_FAILURES,
}


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder of cost: the number of candidates that reached it, and that it stopped."""

    name: str
    came: int
    stopped: int


def ladder(proposing: Stopped, trials: Sequence[TuningRecord], finalists: int) -> tuple[Rung, ...]:
    """The rungs, cheapest first: those of proposing, those of the trials, the finals.

    The last rung stops none.
    """
    statuses = Counter(r.measurement.status for r in trials)
    timings = Counter(r.measurement.timing for r in trials if r.measurement.ok)
    before = {"legality": proposing.illegal, "predicted failure": proposing.infeasible}
    stopped = dict(before)
    stopped |= {name: sum(statuses[s] for s in failed) for name, failed in _RUNGS.items()}
    stopped |= {"same binary": timings["shared"], "short timing": timings["short"]}
    stopped |= {"full timing": max(0, timings["full"] - finalists), "finals": 0}
    left = sum(before.values()) + len(trials)
    rungs = []
    for name, count in stopped.items():
        rungs.append(Rung(name, left, count))
        left -= count
    return tuple(rungs)


@dataclass(frozen=True)
class WorkSeconds:
    """Seconds of work on trials by kind, summed over all processes: they overlap, and may exceed the wall time.

    `propose` is the search's own work (asking the strategy, fitting the cost model); `compile` that of the compile
    workers; `load`, `check` and `time` that of the measuring worker; `log` writing records, which records do not
    contain.
    """

    propose: float = 0.0
    compile: float = 0.0
    load: float = 0.0
    check: float = 0.0
    time: float = 0.0
    log: float = 0.0

    @staticmethod
    def of(trial: TuningRecord) -> WorkSeconds:
        """Seconds of one trial, from its record."""
        m = trial.measurement
        return WorkSeconds(
            trial.provenance.propose_s, m.facts.seconds if m.facts else 0.0, m.load_s, m.check_s, m.timing_s
        )

    def __add__(self, other: WorkSeconds) -> WorkSeconds:
        return WorkSeconds(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.1f}" for name, seconds in asdict(self).items())


def effort_lines(rungs: Sequence[Rung], work: WorkSeconds, wall_s: float, trials: int) -> Iterator[str]:
    """Both as a plain table."""
    yield "rungs that stopped candidates:"
    rows = [("", "came", "stopped"), *((r.name, str(r.came), str(r.stopped)) for r in rungs if r.came)]
    yield from (f"  {line}" for line in table_lines(rows, right=(1, 2)))
    measuring = (work.load + work.check + work.time) / max(wall_s, 1e-9)
    yield f"seconds of work, in parallel: {work}; the measuring worker was busy {100 * measuring:.0f} % of the time"
    yield f"wall time {wall_s:.1f} s, {trials / max(wall_s, 1e-9):.1f} trials/s"
