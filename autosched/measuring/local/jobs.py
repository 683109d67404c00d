"""Messages between the tuning process and its workers. All of them pickle."""

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
from tuning_logs.certificate import Results

Role = Literal["compile", "measure"]


@dataclass(frozen=True)
class Setup:
    """First message to a worker: settings that all its jobs share.

    `backend` is "module:function" of a function from a target to its backends; `cores` are the processor cores to stay
    on, empty for all; `threads`: number of threads for PyTorch.
    """

    role: Role
    backend: str
    target: Target
    abandon_factor: float
    cores: tuple[int, ...] = ()
    threads: int = 1


@dataclass(frozen=True)
class Born:
    """First message of a worker: its process id."""

    pid: int


@dataclass(frozen=True)
class Ready:
    """Answer to `Setup`, `Prepare` and `Release`: done.

    `library_s`: latency of the vendor's library on the inputs just drawn, None where it lacks the operator.
    """

    library_s: float | None = None


@dataclass(frozen=True)
class Task:
    """Workload of candidates, and the timing policy."""

    workload: Workload
    policy: Policy


@dataclass(frozen=True)
class Prepare:
    """To the measuring worker: draw inputs from `seed` and evaluate the reference. Answered with `Ready`.

    Frees the memory of the former task first; the trials and contests that follow are of this one.
    """

    task: Task
    seed: int


@dataclass(frozen=True)
class Release:
    """To the measuring worker: free the memory of the prepared task. Answered with `Ready`."""


@dataclass(eq=False)
class Trial:
    """A candidate from submission to measurement: one row, filled from left to right, that both workers are sent.

    A compile worker answers with the `artefact`, or with a failure as the `measurement`; the measuring worker with an
    `Outcome`. An `afresh` trial shares no result with earlier ones of the same binary; a `compile_only` one ends with
    its artefact. `best_s` is the latency to beat, if there is one; `thermal_repeats` counts repetitions because the
    device was too hot (clock throttling); `killed`: something else killed its worker, so that it gets a second try.
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
    compile_only: bool = False

    @property
    def compiled(self) -> Artefact:
        assert self.artefact is not None, "it was not compiled"
        return self.artefact

    @cached_property
    def binary(self) -> tuple[Task, str]:
        """Key of the executable and its task: a hash of binaries, backend, launch configuration and buffers.

        Equal ones are timed once.
        """
        artefact, program = self.compiled, self.program
        launched = [(kernel.name, kernel.grid) for kernel in program.kernels]
        loaded = (artefact.backend, artefact.launch, artefact.binaries)
        parts = (program.name, program.buffers, program.zeroed, program.prepared, launched, loaded)
        return self.task, hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """Result of a trial.

    `healthy` is False if the device reports a persistent error: the worker must be replaced.
    """

    measurement: Measurement
    healthy: bool = True


@dataclass(eq=False)
class Contest:
    """To the measuring worker: load candidates that passed a trial of the task, and time them in interleaved rounds.

    A candidate of another workload, such as the calibration kernel, has data of its own, which stays where it is. With
    `library`, the vendor's library takes part. After `seconds` it ends, with six rounds at least. `killed` is as for a
    trial. Answered with `Standings`.
    """

    task: Task
    trials: Sequence[Trial]
    rounds: int
    library: bool = False
    seconds: float | None = None
    killed: bool = False


@dataclass(frozen=True)
class Standings:
    """The latencies of a contest, in the order of its candidates; none, with the reason in `detail`, if it failed.

    `library_s` are those of the vendor's library in the same rounds, where it has such an operator. `begun_by` has the
    number of the candidate that began each round; the library comes last.
    """

    latencies_s: tuple[tuple[float, ...], ...]
    detail: str = ""
    healthy: bool = True
    library_s: tuple[float, ...] = ()
    begun_by: tuple[int, ...] = ()


@dataclass(eq=False)
class Examination:
    """To the measuring worker: check a candidate that passed its trial once more, and run it again and again.

    Answered with its `Results`, or with an `Outcome` if it fails now. `killed` is as for a trial.
    """

    task: Task
    trial: Trial
    killed: bool = False


# Jobs on the inputs of a task.
TaskJob = Trial | Contest | Examination
Job = Setup | Prepare | Release | TaskJob
Reply = Born | Ready | Artefact | Measurement | Outcome | Standings | Results


def one_line(error: Exception) -> str:
    """An exception as the detail of a measurement: its type and message on one line of moderate length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
