"""Candidates on their way: through the compilers, past what their binaries tell, into the measuring worker.

    submit ─ compile pool ─ compile facts ─ same binary? ─ measuring worker ─ measurement
                  │              │               │                │
            compile_error…     pruned      timing "shared"   load_error, wrong_result, …

One thread drives it: it calls `step` whenever a worker has replied or something was submitted.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from autosched.measuring.local.compile_pool import Compiled, CompilePool
from autosched.measuring.local.jobs import Candidate, Contest, Standings, Task
from autosched.measuring.local.trial_runner import TrialRunner
from autosched.measuring.local.worker_process import WorkerProcess
from autosched.measuring.measurer import UnfitWorkloadError
from search_spaces import Schedule, Target
from tuning_logs import CompileFacts, DeviceState, Measurement

# Spilling a kibibyte for every thread is spilling more than the 255 registers that a thread can have: its accumulators
# live in memory, and with them goes the reason to tile.
_MOST_SPILLED_BYTES = 1024
# A trial taken while the device was too hot is taken again so often; then it stands, with the device's state beside it.
_THERMAL_REPEATS = 2
# Compiled candidates that are kept of every task, some 100 KB each: twice as many as compete in finals.
_MOST_KEPT = 32


# What comes out.
Result = Measurement | Standings | UnfitWorkloadError


@dataclass(frozen=True)
class _Submitted:
    task: Task
    schedule: Schedule


class TrialPipeline:
    """What was submitted and has not come out. Results come in the order in which they are ready.

    On a CPU nothing is timed while something compiles. `device_state` says how the device is doing.
    """

    def __init__(
        self,
        target: Target,
        pool: CompilePool,
        runner: TrialRunner,
        device_state: Callable[[], DeviceState | None],
    ) -> None:
        self._target = target
        self._pool = pool
        self._runner = runner
        self._time_alone = target.kind == "cpu"
        self._device_state = device_state
        self._held: list[tuple[int, Candidate]] = []
        # Candidates that were submitted to be timed again, to be found by `contest`.
        self._finalists: dict[int, Candidate | None] = {}
        self._running: dict[int, Candidate] = {}
        self._thermal_repeats: dict[int, int] = {}
        # Everything that has not come out.
        self._submitted: dict[int, _Submitted] = {}
        # The fastest of what came through a trial, with its latency: finals need not compile it again.
        self._fastest: dict[Task, dict[Schedule, tuple[float, Candidate]]] = {}
        # What came of a binary; while it is being timed, the candidates that wait for its result.
        self._measured: dict[tuple[Task, str], Measurement] = {}
        self._twins: dict[tuple[Task, str], list[tuple[int, Candidate]]] = {}

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        """The measuring worker, then the compile workers."""
        return self._runner.worker, *self._pool.workers

    def submit(self, number: int, task: Task, schedule: Schedule, again: bool = False) -> None:
        """Compile, check and time a schedule. Timed `again`, it owes nothing to earlier results, and may compete."""
        self._submitted[number] = _Submitted(task, schedule)
        if again:
            _, known = self._fastest.get(task, {}).get(schedule, (0.0, None))
            self._finalists[number] = known
            if known is not None:
                self._held.append((number, known))
                return
        self._pool.submit(number, schedule)

    def contest(self, number: int, task: Task, finalists: Sequence[int], rounds: int, library: bool) -> None:
        """Time candidates that were submitted `again`, and came through their trials, interleaved."""
        candidates = [self._finalists[finalist] for finalist in finalists]
        self._runner.contest(number, task, Contest(tuple(c for c in candidates if c is not None), rounds, library))

    def forget_finalists(self) -> None:
        self._finalists.clear()

    def forget(self) -> None:
        """What came of earlier candidates is not to be shared with later ones; the memory of their task is free."""
        self._measured.clear()
        self._fastest.clear()
        self._runner.forget()

    def cancel_waiting(self) -> list[int]:
        """Forget the schedules that no worker has begun to compile or to run: their numbers."""
        waiting = [number for number, _ in self._held]
        waiting += [number for twins in self._twins.values() for number, _ in twins]
        waiting += self._pool.cancel_waiting()
        waiting += self._runner.cancel_waiting()
        self._held.clear()
        for number in waiting:
            self._running.pop(number, None)
            self._submitted.pop(number)
        # Nobody may wait for the result of a binary that was given up.
        self._twins = {self._binary(number, candidate): [] for number, candidate in self._running.items()}
        return waiting

    def give_up(self) -> None:
        """Forget everything that was submitted; workers that are busy with some of it are replaced."""
        self._pool.give_up()
        self._runner.give_up()
        for open_ones in (self._submitted, self._held, self._running, self._twins, self._finalists):
            open_ones.clear()

    def step(self, ready: Container[object]) -> list[tuple[int, Result]]:
        """Move everything on; what came out. `ready` holds the connections with a reply.

        Raises:
            TargetUnavailableError: a worker does not start.
        """
        done: list[tuple[int, Result]] = []
        for compiled in self._pool.step(ready):
            done += self._compiled(compiled)
        for number, result in self._runner.collect(ready):
            done += self._ran(number, result) if isinstance(result, Measurement) else self._gone(number, result)
        if not (self._time_alone and self._pool.busy):
            for number, candidate in self._held:
                self._running[number] = candidate
                self._runner.submit(number, self._submitted[number].task, candidate)
            self._held.clear()
        for number, _ in done:
            self._submitted.pop(number, None)
        oldest = next(iter(self._submitted.values()), None)
        self._runner.start_next(oldest.task if oldest else None)
        return done

    def _gone(self, number: int, result: Standings | UnfitWorkloadError) -> list[tuple[int, Result]]:
        """A contest, or what cannot be run."""
        candidate = self._running.pop(number, None)
        if candidate is not None and number not in self._finalists:
            # Those that waited for this binary try themselves.
            self._held += self._twins.pop(self._binary(number, candidate), [])
        return [(number, result)]

    def _compiled(self, compiled: Compiled) -> list[tuple[int, Measurement]]:
        number, candidate = compiled.number, compiled.result
        if isinstance(candidate, Measurement):
            return [(number, candidate)]
        if number in self._finalists:
            self._finalists[number] = candidate
            self._held.append((number, candidate))
            return []
        facts = candidate.artefact.facts
        if reason := why_hopeless(facts, self._target):
            return [(number, Measurement("pruned", detail=reason, facts=facts))]
        binary = self._binary(number, candidate)
        if binary in self._measured:
            return [(number, _shared(self._measured[binary], candidate))]
        if binary in self._twins:
            self._twins[binary].append((number, candidate))
        else:
            self._twins[binary] = []
            self._held.append((number, candidate))
        return []

    def _ran(self, number: int, measurement: Measurement) -> list[tuple[int, Measurement]]:
        candidate = self._running.pop(number)
        state = self._device_state()
        repeats = self._thermal_repeats.get(number, 0)
        if measurement.ok and state is not None and state.thermal and repeats < _THERMAL_REPEATS:
            self._thermal_repeats[number] = repeats + 1
            self._held.append((number, candidate))
            return []
        measurement = dataclasses.replace(measurement, device=state)
        if measurement.ok:
            self._keep(self._submitted[number], measurement, candidate)
        return [(number, measurement), *self._share(candidate, measurement, number)]

    def _keep(self, submitted: _Submitted, measurement: Measurement, candidate: Candidate) -> None:
        fastest = self._fastest.setdefault(submitted.task, {})
        fastest[submitted.schedule] = measurement.undisturbed_s, candidate
        if len(fastest) > _MOST_KEPT:
            slowest, _ = max(fastest.items(), key=lambda kept: kept[1][0])
            del fastest[slowest]

    def _share(self, candidate: Candidate, measurement: Measurement, number: int) -> list[tuple[int, Measurement]]:
        """What the candidates get that waited for this binary; a failure is not shared, they try themselves."""
        if number in self._finalists:
            return []
        binary = self._binary(number, candidate)
        twins = self._twins.pop(binary, [])
        if measurement.ok:
            self._measured[binary] = measurement
            return [(twin, _shared(measurement, other)) for twin, other in twins]
        self._held += twins
        return []

    def _binary(self, number: int, candidate: Candidate) -> tuple[Task, str]:
        return self._submitted[number].task, binary_hash(candidate)


def binary_hash(candidate: Candidate) -> str:
    """A hash of everything that runs: the binaries, what loads them, and how they are launched on which buffers."""
    artefact, program = candidate.artefact, candidate.program
    launched = [(kernel.name, kernel.grid) for kernel in program.kernels]
    loaded = (artefact.backend, artefact.launch, artefact.binaries)
    parts = (program.name, program.buffers, program.zeroed, launched, loaded)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def why_hopeless(facts: CompileFacts, target: Target) -> str | None:
    """Why a binary need not be run, as its compile facts show; None when it should be."""
    if target.kind != "gpu":
        return None
    shared, spilled = facts.shared_memory_bytes or 0, facts.spill_bytes or 0
    if shared > target.shared_memory_bytes:
        return f"needs {shared} bytes of shared memory, {target.name} has {target.shared_memory_bytes}"
    if spilled > _MOST_SPILLED_BYTES:
        return f"spills {spilled} bytes per thread, more than its registers hold ({_MOST_SPILLED_BYTES})"
    return None


def _shared(measurement: Measurement, candidate: Candidate) -> Measurement:
    """The measurement of the same binary, for a candidate that was compiled later."""
    return dataclasses.replace(measurement, timing="shared", seconds=0.0, facts=candidate.artefact.facts)
