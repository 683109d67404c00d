"""What travels between the process that tunes and its workers. Everything here pickles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from autosched.backends.backend import Artefact
from autosched.machine.policies import Policy
from search_spaces import Schedule, Target, TileProgram, Workload
from tuning_logs import Measurement

Role = Literal["compile", "measure"]


@dataclass(frozen=True)
class Setup:
    """The first message to a worker: what all its jobs have in common.

    `backend` is "module:function" of a function from a target to its backends; `cores` are the processor cores to stay
    on, empty for all; `threads` is how many threads PyTorch may use.
    """

    role: Role
    backend: str
    target: Target
    abandon_factor: float
    cores: tuple[int, ...] = ()
    threads: int = 1


@dataclass(frozen=True)
class Born:
    """The first message of a worker: its process id."""

    pid: int


@dataclass(frozen=True)
class Ready:
    """The answer to `Setup`, `Prepare` and `Release`: done.

    `library_s` is what the vendor's library takes with the inputs just drawn, None where it cannot do the workload.
    """

    library_s: float | None = None


@dataclass(frozen=True)
class Task:
    """What candidates compute, and how they are timed."""

    workload: Workload
    policy: Policy


@dataclass(frozen=True)
class Prepare:
    """To the measuring worker: draw inputs from `seed` and compute what is expected. Answered with `Ready`.

    The memory of another task is given back first; the trials and contests that follow are of this one.
    """

    task: Task
    seed: int


@dataclass(frozen=True)
class Release:
    """To the measuring worker: give back the memory of the task that was prepared. Answered with `Ready`."""


@dataclass(eq=False)
class Trial:
    """A candidate from submission to measurement: one row, filled from left to right, that both workers are sent.

    A compile worker answers with the `artefact`, or with a failure as the `measurement`; the measuring worker with an
    `Outcome`. A trial `afresh` owes nothing to earlier ones of the same binary. `best_s` is the latency to beat, when
    there is one; `thermal_repeats` counts the trials that were taken again since the device was too hot; `killed`: the
    worker that had it was killed by somebody else, so that it has a second try.
    """

    task: Task
    schedule: Schedule
    program: TileProgram
    afresh: bool = False
    artefact: Artefact | None = None
    best_s: float | None = None
    thermal_repeats: int = 0
    killed: bool = False
    measurement: Measurement | None = None

    @property
    def compiled(self) -> Artefact:
        assert self.artefact is not None, "it was not compiled"
        return self.artefact

    @cached_property
    def binary(self) -> tuple[Task, str]:
        """What runs, and on what: a hash of the binaries, what loads them, and how they are launched on which buffers.

        Equal ones are timed once.
        """
        artefact, program = self.compiled, self.program
        launched = [(kernel.name, kernel.grid) for kernel in program.kernels]
        loaded = (artefact.backend, artefact.launch, artefact.binaries)
        parts = (program.name, program.buffers, program.zeroed, launched, loaded)
        return self.task, hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    A worker is not `healthy` when its device reports an error that stays: it must be replaced.
    """

    measurement: Measurement
    healthy: bool = True


@dataclass(eq=False)
class Contest:
    """To the measuring worker: load candidates that came through a trial of the task, and time them interleaved.

    With `library`, the vendor's takes part. `killed` is as for a trial. Answered with `Standings`.
    """

    task: Task
    trials: Sequence[Trial]
    rounds: int
    library: bool = False
    killed: bool = False


@dataclass(frozen=True)
class Standings:
    """The latencies of a contest, in the order of its candidates; none, and why, when it could not be held.

    `library_s` are those of the vendor's library in the same rounds, where it has such an operator.
    """

    latencies_s: tuple[tuple[float, ...], ...]
    detail: str = ""
    healthy: bool = True
    library_s: tuple[float, ...] = ()


Job = Setup | Prepare | Release | Trial | Contest
Reply = Born | Ready | Artefact | Measurement | Outcome | Standings


def one_line(error: Exception) -> str:
    """An exception as the detail of a measurement: its type and message on one line of moderate length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
