"""Job of the measuring worker: load a candidate, check it against the reference, time it."""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from autosched.backends.backend import Backend, Launcher, load
from autosched.baselines.baselines import library_call, library_settings
from autosched.checking.random_inputs import empty
from autosched.checking.trial_data import Failed
from autosched.machine import memory
from autosched.machine.deadline import Deadline
from autosched.machine.mean_timer import MeanTimer
from autosched.machine.timing import Timer, activations_of, interleaved, timer_for
from autosched.measuring.local.jobs import (
    Contest,
    Examination,
    Job,
    Outcome,
    Prepare,
    Ready,
    Release,
    Reply,
    Setup,
    Standings,
    Task,
    Trial,
)
from autosched.measuring.local.kernel_check import KernelCheck, Run, failing_as
from search_spaces import TileProgram
from tuning_logs import Measurement, Timing
from tuning_logs.certificate import Results
from tuning_logs.intervals import LEAST_ROUNDS


@dataclass(frozen=True)
class Repeats:
    """Number of timed repeats: for about `budget_s`, between `least` and `most`."""

    least: int
    most: int
    budget_s: float

    def count(self, latency_s: float, calls: int = 1) -> int:
        """As many as are right for a latency of so many calls."""
        wanted = math.ceil(self.budget_s / max(latency_s * calls, 1e-9))
        return max(math.ceil(self.least / calls), min(self.most, wanted))


# A CPU's clock and neighbours are noisy; a GPU's kernels are short, and the L2 flushes between them are not.
REPEATS = {"cpu": Repeats(least=5, most=50, budget_s=10e-3), "gpu": Repeats(least=5, most=20, budget_s=5e-3)}

# Warm-up of a CPU kernel shorter than that: so many calls after the first one, as the check evicted it from caches and
# predictors; below some 40 µs the first two samples show it.
_SHORT_S = 1e-3
_WARM_UP = 2

# A candidate that takes so many times as long as the fastest one, and at least so long, is not called again.
_FAR, _FAR_S = 10.0, 0.25

# The library's name in a contest; candidates have numbers.
_LIBRARY = "library"
# A contest uses so many placements of the operands in memory.
_PLACEMENTS = 3
# Runs of an examination, and the time after which two of them suffice.
_EXAMINED_RUNS = 10
_EXAMINATION_S = 0.3


class TrialServer:
    """Serves `Prepare`, `Trial`, `Contest`, `Examination` and `Release`, of one task at a time."""

    def __init__(self, backends: Mapping[str, Backend], setup: Setup) -> None:
        self._backends = backends
        self._setup = setup
        self._workbench: Workbench | None = None
        if setup.target.kind == "gpu":
            # Creating the context takes a second: do it now, while the first candidates compile.
            torch.empty(1, device="cuda")

    def serve(self, job: Job) -> Reply:
        match job, self._workbench:
            case Prepare(task, seed), _:
                return Ready(self._workbench_for(task).prepare(seed))
            case Release(), _:
                self._release()
                return Ready()
            case Trial(), Workbench() as workbench:
                return workbench.trial(job)
            case Contest(), Workbench() as workbench:
                return workbench.contest(job)
            case Examination(), Workbench() as workbench:
                return workbench.examination(job)
            case _:
                raise AssertionError(f"a measuring worker has no use for {type(job).__name__}")

    def _workbench_for(self, task: Task) -> Workbench:
        if self._workbench is None or self._workbench.task != task:
            self._release()
            self._workbench = Workbench(self._backends, self._setup, task)
        return self._workbench

    def _release(self) -> None:
        """Free the memory of the task: that of two may not fit."""
        self._workbench = None
        # Tensors caught in reference cycles, through exceptions and their frames.
        gc.collect()
        if self._setup.target.kind == "gpu":
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class _Candidate:
    """A loaded kernel: called without arguments it computes, with everything that it prepares, on the present data."""

    launcher: Launcher
    program: TileProgram
    check: KernelCheck

    def __call__(self) -> None:
        self.launcher(self.check.data.operands)

    def prepared(self) -> Run:
        """The part that runs at every call, on the present operands, with constants prepared of them now."""
        if not self.program.prepared:
            return self
        addresses = [t.data_ptr() for t in self.check.data.operands]
        inputs = dict(zip((b.name for b in self.program.buffers), addresses, strict=False))
        memories = [self.launcher.prepare(n, inputs[read]) for n, (_, read) in enumerate(self.program.prepared)]
        self.check.synchronize()
        return lambda: self.launcher.launch(addresses, [m.data_ptr() for m in memories])


@dataclass
class _Timed:
    """A run that notes how long it took."""

    run: Run
    synchronize: Callable[[], None]
    seconds: float = 0.0

    def __call__(self) -> None:
        begin = time.perf_counter()
        self.run()
        self.synchronize()
        self.seconds = time.perf_counter() - begin


class Workbench:
    """The data and the timer of one task: candidates are loaded, checked and timed on it."""

    def __init__(self, backends: Mapping[str, Backend], setup: Setup, task: Task) -> None:
        self.task = task
        self._backends = backends
        self._setup = setup
        self._device = torch.device("cuda" if setup.target.kind == "gpu" else "cpu")
        self._timer = timer_for(
            setup.target, task.policy, products=bool(task.workload.contracted), activations=self._activations
        )
        self._repeats = REPEATS[setup.target.kind]
        self._check = KernelCheck(task.workload, self._device, memory.trial_bytes())

    def _activations(self) -> list[torch.Tensor]:
        return activations_of(self.task.workload.inputs, self._check.data.inputs.tensors)

    def prepare(self, seed: int) -> float | None:
        """Draw inputs and evaluate the reference; the library's latency, None where it lacks the operator.

        Raises:
            RuntimeError: they do not fit in memory.
        """
        self._check.prepare(seed)
        return self._library_latency()

    def trial(self, trial: Trial) -> Outcome:
        begin, load_s = time.perf_counter(), 0.0
        healthy = True
        try:
            with self._loaded(trial) as run, failing_as("run_error"):
                load_s = time.perf_counter() - begin
                found = self._measured(run, trial.best_s)
        except Failed as failure:
            found = Measurement(failure.status, detail=str(failure), max_error=failure.max_error)
            # A kernel that wrote outside its operands may have written anywhere in this process.
            healthy = failure.status != "out_of_bounds_write" and self._recover()
        seconds, facts = time.perf_counter() - begin, trial.compiled.facts
        return Outcome(dataclasses.replace(found, facts=facts, seconds=seconds, load_s=load_s), healthy)

    def _measured(self, run: _Candidate, best_s: float | None) -> Measurement:
        """The run checked and timed; once where it takes far longer than the best so far."""
        # Whole, with the preparation of constants, which timing leaves out.
        first = _Timed(run, self._check.synchronize)
        max_error = self._check.first(first)
        if best_s is not None and not run.program.prepared and first.seconds > max(_FAR * best_s, _FAR_S):
            return Measurement("ok", (first.seconds,), max_error=max_error, timing="short", timing_s=first.seconds)
        prepared = run.prepared()
        self._check.data.poison()
        start = time.perf_counter()
        with self._check.data.timed_by(self._timer) as timer:
            latencies, timing = self._latencies(prepared, best_s, timer)
        timing_s = time.perf_counter() - start
        by_histogram = timer.medians_s(prepared) if isinstance(timer, MeanTimer) else {}
        if by_histogram:
            self._check.run_poisoned(prepared)
        return Measurement(
            "ok",
            latencies,
            max_error=max(max_error, self._check.last()),
            slowdown=timer.slowdown,
            timing=timing,
            timing_s=timing_s,
            by_histogram=tuple(by_histogram.items()) if len(by_histogram) > 1 else (),
        )

    def _latencies(self, run: Run, best_s: float | None, timer: Timer) -> tuple[tuple[float, ...], Timing]:
        """The repeats; only two if both are hopelessly slower than the best so far."""
        hopeless = math.inf if best_s is None else best_s * self._setup.abandon_factor
        with self._check.memory_limit():
            latencies = self._first(run, timer)
            if latencies[0] > hopeless:
                latencies += timer.sample([run])
            # Disturbances of the core do not count against the candidate.
            if min(latencies) / timer.slowdown > hopeless:
                return tuple(latencies), "short"
            more = self._repeats.count(min(latencies), self._check.data.timings) - len(latencies)
            return (*latencies, *timer.sample([run] * more)), "full"

    def _first(self, run: Run, timer: Timer) -> list[float]:
        """A first latency; on a CPU a short call has run before."""
        latencies = timer.sample([run])
        if self._device.type == "cpu" and latencies[0] < _SHORT_S:
            return timer.sample([run] * _WARM_UP)[-1:]
        return latencies

    def contest(self, contest: Contest) -> Standings:
        """Interleaved rounds at several placements in memory, so that none wins by a lucky one."""
        rounds, deadline, placements = contest.rounds, Deadline.after(contest.seconds), self._placements(contest)
        begun_by: list[int] = []
        try:
            with ExitStack() as stack, failing_as("run_error"):
                runs = {str(n): stack.enter_context(self._loaded(c)) for n, c in enumerate(contest.trials)}
                stack.enter_context(library_settings(self.task.workload.precision, self._setup.target))
                stack.enter_context(torch.no_grad())
                taken: dict[str, list[float]] = {name: [] for name in (*runs, _LIBRARY)}
                for place in range(placements):
                    if placements > 1:
                        self._check.move(place)
                    placed = {name: run.prepared() for name, run in runs.items()}
                    share = rounds * (place + 1) // placements - rounds * place // placements
                    library = self._library() if contest.library else {}
                    least, part = min(share, LEAST_ROUNDS // placements), deadline.part(1 / (placements - place))
                    with self._check.data.timed_by(self._timer) as timer:
                        found = interleaved({**placed, **library}, share, timer, part, least)
                    begun_by += [number % len(found) for number in range(len(found["0"]))]
                    for name, latencies in found.items():
                        taken[name] += latencies
                library_s = tuple(taken.pop(_LIBRARY))
                return Standings(tuple(map(tuple, taken.values())), library_s=library_s, begun_by=tuple(begun_by))
        except Failed as failure:
            return Standings((), str(failure), healthy=self._recover())

    def _placements(self, contest: Contest) -> int:
        """As many as a contest has; the present one alone if moving to others would take half of its time."""
        limited = contest.seconds is not None and _PLACEMENTS * self._check.move_s > contest.seconds / 2
        return 1 if limited else _PLACEMENTS

    def examination(self, examination: Examination) -> Results | Outcome:
        """The kernel's results on the present inputs, checked, and compared over several runs."""
        try:
            with self._loaded(examination.trial) as run, failing_as("run_error"):
                return self._check.examine(run, _EXAMINED_RUNS, Deadline.after(_EXAMINATION_S))
        except Failed as failure:
            found = Measurement(failure.status, detail=str(failure), max_error=failure.max_error)
            facts = examination.trial.compiled.facts
            return Outcome(dataclasses.replace(found, facts=facts), healthy=self._recover())

    def _library_latency(self) -> float | None:
        """The library's latency, corrected for disturbances as trials are: an estimate to show next to theirs."""
        with library_settings(self.task.workload.precision, self._setup.target), torch.no_grad():
            call = self._library().get(_LIBRARY)
            if call is None:
                return None
            with self._check.data.timed_by(self._timer) as timer:
                self._first(call, timer)
                latency_s = statistics.median(timer.sample([call] * self._repeats.least))
            return latency_s / timer.slowdown

    def _library(self) -> dict[str, Run]:
        """The library's call on the data of the batch, by name; empty where it lacks the operator."""
        inputs = self._check.data.inputs.tensors
        # Separate outputs: the library's results are not checked.
        outs = [empty(t, self._device) for t in self.task.workload.outputs]
        call = library_call(self.task.workload, inputs, outs)
        if call is None:
            return {}
        try:
            call()
        except RuntimeError:
            # PyTorch's own, of many kinds: a dtype that the library has no kernel for, no memory.
            return {}
        return {_LIBRARY: call}

    @contextmanager
    def _loaded(self, trial: Trial) -> Iterator[_Candidate]:
        """The kernel of a trial on the data of the batch; one of another workload on data of its own."""
        with failing_as("load_error"), self._check.memory_limit():
            launcher = load(self._backends[trial.compiled.backend], trial.compiled, trial.program)
        try:
            yield _Candidate(launcher, trial.program, self._check_of(trial.task))
        finally:
            with failing_as("run_error"):
                launcher.unload()

    def _check_of(self, task: Task) -> KernelCheck:
        if task.workload == self.task.workload:
            return self._check
        check = KernelCheck(task.workload, self._device)
        check.prepare(0)
        return check

    def _recover(self) -> bool:
        """Restore the inputs after a failure; False if the device does not even allow that."""
        try:
            self._check.synchronize()
            self._check.data.inputs.changed()
            if self._device.type == "cuda":
                # Returns a candidate's allocations to the device, not to PyTorch's pool.
                torch.cuda.empty_cache()
        except RuntimeError:
            return False
        return True
