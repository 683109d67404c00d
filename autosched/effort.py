"""What a search spent: how many candidates each rung of its ladder stopped, and where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.text import table_lines
from tuning_logs import Status, TuningRecord

# The rungs that a trial can fail at, cheapest first, by the status that says so.
_RUNGS: Mapping[str, tuple[Status, ...]] = {
    "compile": ("compile_error", "compile_timeout", "compile_crash"),
    "compile facts": ("pruned",),
    "load and run": ("load_error", "run_error", "run_timeout", "run_crash", "out_of_memory"),
    "check": (
        "wrong_result",
        "not_finite",
        "unwritten_output",
        "out_of_bounds_read",
        "out_of_bounds_write",
        "changed_input",
    ),
}


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder of cost: how many candidates came to it, and how many it stopped."""

    name: str
    came: int
    stopped: int


def ladder(stopped_before: Mapping[str, int], trials: Sequence[TuningRecord], finalists: int) -> tuple[Rung, ...]:
    """The rungs, cheapest first.

    `stopped_before` is what was stopped before it became a trial, by rung, cheapest first. The last rung stops nobody.
    """
    statuses = Counter(r.measurement.status for r in trials)
    timings = Counter(r.measurement.timing for r in trials if r.measurement.ok)
    stopped = dict(stopped_before)
    stopped |= {name: sum(statuses[s] for s in failed) for name, failed in _RUNGS.items()}
    stopped |= {"same binary": timings["shared"], "short timing": timings["short"]}
    stopped |= {"full timing": max(0, timings["full"] - finalists), "finals": 0}
    left = sum(stopped_before.values()) + len(trials)
    rungs = []
    for name, count in stopped.items():
        rungs.append(Rung(name, left, count))
        left -= count
    return tuple(rungs)


@dataclass(frozen=True)
class WorkSeconds:
    """Seconds of work by kind, summed over all processes: they overlap, so their sum may exceed the wall time.

    `propose` is the search's own work (asking, telling, fitting the cost model), `log` writing records; `compile` that
    of the compile workers; `load`, `check` and `time` that of the measuring worker.
    """

    propose: float
    log: float
    compile: float
    load: float
    check: float
    time: float

    @staticmethod
    def of(trials: Sequence[TuningRecord], propose: float, log: float) -> WorkSeconds:
        measurements = [r.measurement for r in trials]
        return WorkSeconds(
            propose=propose,
            log=log,
            compile=sum(m.facts.seconds for m in measurements if m.facts),
            load=sum(m.load_s for m in measurements),
            check=sum(m.check_s for m in measurements),
            time=sum(m.timing_s for m in measurements),
        )


def effort_lines(rungs: Sequence[Rung], work: WorkSeconds, wall_s: float, trials: int) -> Iterator[str]:
    """Both as a plain table."""
    yield "rungs that stopped candidates:"
    rows = [("", "came", "stopped"), *((r.name, str(r.came), str(r.stopped)) for r in rungs if r.came)]
    yield from (f"  {line}" for line in table_lines(rows, right=(1, 2)))
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in work.__dict__.items())
    yield f"seconds of work, in parallel: {spent}; wall time {wall_s:.1f} s, {trials / max(wall_s, 1e-9):.1f} trials/s"
