"""What travels between the process that tunes and its workers. Everything here pickles."""

from __future__ import annotations

from dataclasses import dataclass
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
class CompileJob:
    """To a compile worker; answered with an `Artefact`, or with the compiler's words as a `CompileFailure`."""

    schedule: Schedule
    program: TileProgram


@dataclass(frozen=True)
class CompileFailure:
    detail: str
    status: Literal["compile_error", "out_of_memory"] = "compile_error"


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


@dataclass(frozen=True)
class Candidate:
    """A compiled schedule, ready to be loaded."""

    artefact: Artefact
    program: TileProgram


@dataclass(frozen=True)
class Trial:
    """To the measuring worker; answered with `Outcome`. `best_s` is the latency to beat, when there is one."""

    candidate: Candidate
    best_s: float | None


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    A worker is not `healthy` when its device reports an error that stays: it must be replaced.
    """

    measurement: Measurement
    healthy: bool = True


@dataclass(frozen=True)
class Contest:
    """To the measuring worker: load candidates that came through a trial, and time them interleaved.

    With `library`, the vendor's takes part.
    """

    candidates: tuple[Candidate, ...]
    rounds: int
    library: bool = False


@dataclass(frozen=True)
class Standings:
    """The latencies of a contest, in the order of its candidates; none, and why, when it could not be held.

    `library_s` are those of the vendor's library in the same rounds, where it has such an operator.
    """

    latencies_s: tuple[tuple[float, ...], ...]
    detail: str = ""
    healthy: bool = True
    library_s: tuple[float, ...] = ()


Job = Setup | CompileJob | Prepare | Release | Trial | Contest
Reply = Born | Ready | Artefact | CompileFailure | Outcome | Standings


def one_line(error: Exception) -> str:
    """An exception as the detail of a measurement: its type and message on one line of moderate length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
