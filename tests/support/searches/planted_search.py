"""A search whose strategy proposes faults, each followed by a kernel that is right; and the faults of the fake backend.

For tests/autosched/measuring/test_faults.py, tests/autosched/measuring/test_gpu_faults.py and tests/figures/faults.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from autosched.measuring import LocalMeasurer
from autosched.tuning.searching.interruption import Interruption
from autosched.tuning.searching.loop import Alone, Loop
from autosched.tuning.searching.search import Search
from search_spaces import Schedule, SearchSpace, Target, Workload
from tuning_logs import Provenance, TuningLog, TuningRecord

# What a candidate of the fake backend does -> the status that it must get, and a part of the reason.
FAULTS = {
    "cannot be printed": ("compile_error", "CompileError: no such statement in this backend"),
    "compiler bug": ("compile_error", "KeyError: 'acc'"),
    "compiles forever": ("compile_timeout", "killed after 2."),
    "crashes the compiler": ("compile_crash", "SIGSEGV"),
    "aborts the compiler": ("compile_crash", "exit code 3: LLVM ERROR: out of patience"),
    "eats memory in the compiler": ("out_of_memory", "Unable to allocate 256. MiB"),
    "aborts for memory in the compiler": ("out_of_memory", "SIGABRT: terminate called after"),
    "does not fit": ("load_error", "needs 300 KiB of shared memory"),
    "cannot be launched": ("run_error", "RuntimeError: invalid argument"),
    "breaks the device": ("run_error", "index out of range"),
    "runs forever": ("run_timeout", "killed after 2."),
    "crashes": ("run_crash", "SIGSEGV"),
    "reads an illegal address": ("run_crash", "SIGSEGV"),
    "exits": ("run_crash", "exit code 7"),
    "eats memory": ("out_of_memory", "Unable to allocate 256. MiB"),
    "computes something else": ("wrong_result", "256 of 256 elements are wrong; the first, [0], is"),
    "is right the first time only": ("wrong_result", "256 of 256 elements are wrong"),
    "yields NaN": ("not_finite", "1 of 256 elements are NaN or infinite; the first, [255], is nan"),
    "yields infinity": ("not_finite", "1 of 256 elements are NaN or infinite; the first, [255], is inf"),
    "reads past its input": ("out_of_bounds_read", "right with zeros around the inputs: it reads outside them"),
    "leaves the end unwritten": ("unwritten_output", "3 of 256 elements were not written; the first is [253]"),
    "writes nothing the second time": ("unwritten_output", "256 of 256 elements were not written"),
    "writes past its output": ("out_of_bounds_write", "outside its output: after it (1 elements"),
    "writes before its output": ("out_of_bounds_write", "outside its output: before it (1 elements"),
    "writes past its input": ("out_of_bounds_write", "outside x: after it (1 elements"),
    "overwrites the reference": ("out_of_bounds_write", "far outside its operands"),
    "changes its input": ("changed_input", "changed its input x"),
}


@dataclass
class Planted:
    """Proposes given schedules in their order."""

    schedules: list[Schedule]
    told: list[TuningRecord] = field(default_factory=list)

    def ask(self, count: int) -> list[Schedule]:
        now, self.schedules = self.schedules[:count], self.schedules[count:]
        return now

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        if not elsewhere:
            self.told.extend(records)


@dataclass(frozen=True)
class _Space:
    """As much of a search space as a search needs."""

    workload: Workload
    target: Target
    schedules: dict[Schedule, Schedule]

    def bind(self, schedule: Schedule) -> Schedule:
        return self.schedules[schedule]


def planted_search(
    log: TuningLog, workload: Workload, target: Target, schedules: Sequence[Schedule], measurer: LocalMeasurer
) -> None:
    """Measure and log the schedules in their order."""
    space = cast(SearchSpace, _Space(workload, target, {s: s for s in schedules}))
    provenance = Provenance("planted", "cold", 0.0, 0, 0)
    search = Search(space, Planted(list(schedules)), log, provenance, len(schedules), [])
    interruption = Interruption()
    Loop(measurer, interruption, Alone(search)).run()
    search.finish(measurer, interruption)
