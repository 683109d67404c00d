"""What the measuring worker does: load a candidate, check it against the reference, time it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from autosched.backends.backend import Backend
from autosched.correctness import Expectation, GuardedInputs, GuardedOutput, error_ratio, expect, why_wrong
from autosched.measuring.jobs import (
    Candidate,
    Contest,
    Job,
    Outcome,
    Prepare,
    Ready,
    Reply,
    Setup,
    Standings,
    Trial,
    one_line,
)
from autosched.reference import random_inputs
from autosched.timing import interleaved, timer_for
from tuning_logs import Measurement, Status

Run = Callable[[], None]


@dataclass(frozen=True)
class Repeats:
    """How often a candidate is timed: for about `budget_s`, between `least` and `most` times."""

    least: int
    most: int
    budget_s: float

    def count(self, latency_s: float) -> int:
        return max(self.least, min(self.most, math.ceil(self.budget_s / max(latency_s, 1e-9))))


# A CPU's clock and neighbours are noisy; a GPU's kernels are short, and the cache flushes between them are not.
REPEATS = {"cpu": Repeats(least=5, most=50, budget_s=10e-3), "gpu": Repeats(least=5, most=20, budget_s=5e-3)}


# A contest is held at so many placements of the operands in memory.
_PLACEMENTS = 3
_LINE_BYTES = 64
_PAGE_BYTES = 4096


class Failed(Exception):
    """The candidate in hand cannot be measured: the status and the detail of its measurement."""

    def __init__(self, status: Status, detail: str, max_error: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.max_error = max_error


@dataclass(frozen=True)
class Data:
    """The inputs of a batch, the output that every candidate writes, and what it should then hold."""

    inputs: GuardedInputs
    output: GuardedOutput
    expectation: Expectation

    def verify(self) -> float:
        """The largest error of the output as a fraction of what is allowed. Raises Failed when it is too large."""
        ratio = error_ratio(self.output.tensor, self.expectation)
        if ratio > 1.0:
            reason = self.why_damaged() or why_wrong(self.output.tensor, self.expectation)
            raise Failed("wrong_result", str(reason), ratio if math.isfinite(ratio) else None)
        return ratio

    def verify_surroundings(self) -> None:
        """Raise Failed when something else than the output was written to."""
        if damage := self.why_damaged():
            raise Failed("wrong_result", damage)

    def why_damaged(self) -> str | None:
        """What else than the output was written to, or None; changed inputs are restored."""
        if changed := self.inputs.changed():
            return f"the kernel changed its input {', '.join(changed)}"
        return self.output.why_damaged()


class Bench:
    """Serves `Prepare`, `Trial` and `Contest`."""

    def __init__(self, backend: Backend, setup: Setup) -> None:
        self._backend = backend
        self._setup = setup
        self._device = torch.device("cuda" if setup.target.kind == "gpu" else "cpu")
        self._timer = timer_for(setup.workload, setup.target, setup.policy)
        self._repeats = REPEATS[setup.target.kind]
        self._prepared: Data | None = None

    @property
    def _data(self) -> Data:
        assert self._prepared is not None, "Prepare comes before the first trial"
        return self._prepared

    def serve(self, job: Job) -> Reply:
        match job:
            case Prepare(seed):
                self._prepared = None
                self._prepared = self._prepare(seed)
                return Ready()
            case Trial(candidate, best_s):
                return self._trial(candidate, best_s)
            case Contest(candidates, rounds):
                return self._contest(candidates, rounds)
            case _:
                raise AssertionError(f"a measuring worker has no use for {type(job).__name__}")

    def _prepare(self, seed: int) -> Data:
        workload = self._setup.workload
        inputs = random_inputs(workload, seed, self._device)
        expectation = expect(workload, inputs)
        if self._device.type == "cuda":
            # The float64 intermediates are several times the size of what stays.
            torch.cuda.empty_cache()
        return self._placed(inputs, expectation, seed)

    def _placed(self, inputs: Sequence[torch.Tensor], expectation: Expectation, seed: int) -> Data:
        """The data at addresses of their own choice: on a CPU each begins at another line of its page.

        Operands that happen to begin at the same line evict each other, which can cost a tenth; a kernel chosen for
        one placement would disappoint with the next.
        """
        workload = self._setup.workload
        if self._device.type == "cuda":
            return Data(GuardedInputs(workload, inputs), GuardedOutput.of(workload, self._device), expectation)
        shifts = random.Random(seed)
        moved = [_moved(x, _LINE_BYTES * shifts.randrange(_PAGE_BYTES // _LINE_BYTES)) for x in inputs]
        output = GuardedOutput.of(workload, self._device, _LINE_BYTES * shifts.randrange(_PAGE_BYTES // _LINE_BYTES))
        return Data(GuardedInputs(workload, moved), output, expectation)

    def _trial(self, candidate: Candidate, best_s: float | None) -> Outcome:
        begin, timing_s, facts = time.perf_counter(), 0.0, candidate.artefact.facts
        try:
            with self._loaded(candidate) as run, _failing_as("run_error"):
                max_error = self._check(run)
                start = time.perf_counter()
                latencies = self._latencies(run, best_s)
                timing_s = time.perf_counter() - start
                # Once more: a kernel may be right the first time only.
                max_error = max(max_error, self._data.verify())
                self._data.verify_surroundings()
            seconds, slowdown = time.perf_counter() - begin, self._timer.slowdown
            result = Measurement("ok", latencies, "", facts, max_error, seconds, slowdown)
            return Outcome(result, timing_s)
        except Failed as failure:
            spent = time.perf_counter() - begin
            failed = Measurement(failure.status, (), str(failure), facts, failure.max_error, spent)
            return Outcome(failed, timing_s, healthy=self._recover())

    def _check(self, run: Run) -> float:
        """Run once on a poisoned output; the largest error as a fraction of what is allowed."""
        self._data.output.poison()
        run()
        self._synchronize()
        return self._data.verify()

    def _latencies(self, run: Run, best_s: float | None) -> tuple[float, ...]:
        """The repeats: two when both are hopelessly slower than the best so far, which spares the others."""
        hopeless = math.inf if best_s is None else best_s * self._setup.abandon_factor
        latencies = self._timer.sample([run])
        if latencies[0] > hopeless:
            latencies += self._timer.sample([run])
        if min(latencies) > hopeless:
            return tuple(latencies)
        more = self._repeats.count(min(latencies)) - len(latencies)
        return (*latencies, *self._timer.sample([run] * more))

    def _contest(self, candidates: tuple[Candidate, ...], rounds: int) -> Standings:
        try:
            with ExitStack() as loaded, _failing_as("run_error"):
                runs = {str(n): loaded.enter_context(self._loaded(c)) for n, c in enumerate(candidates)}
                taken: dict[str, list[float]] = {name: [] for name in runs}
                for place in range(_PLACEMENTS):
                    data = self._data
                    self._prepared = self._placed(data.inputs.tensors, data.expectation, place)
                    share = rounds * (place + 1) // _PLACEMENTS - rounds * place // _PLACEMENTS
                    for name, latencies in interleaved(runs, share, self._timer).items():
                        taken[name] += latencies
                return Standings(tuple(tuple(taken[name]) for name in runs))
        except Failed as failure:
            return Standings((), str(failure), healthy=self._recover())

    @contextmanager
    def _loaded(self, candidate: Candidate) -> Iterator[Run]:
        """A call without arguments that runs the candidate on the data of the batch."""
        with _failing_as("load_error"):
            launcher = self._backend.load(candidate.artefact, candidate.program)
        try:
            yield lambda: launcher([*self._data.inputs.tensors, self._data.output.tensor])
        finally:
            with _failing_as("run_error"):
                launcher.unload()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _recover(self) -> bool:
        """Put the inputs right after a failure; False when the device does not even allow that."""
        try:
            self._synchronize()
            self._data.inputs.changed()
        except RuntimeError:
            return False
        return True


def _moved(tensor: torch.Tensor, shift: int) -> torch.Tensor:
    """A copy that begins `shift` bytes after the beginning of a page."""
    storage = torch.empty(tensor.nbytes + 2 * _PAGE_BYTES, dtype=torch.uint8)
    begin = -storage.data_ptr() % _PAGE_BYTES + shift
    return storage[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)


@contextmanager
def _failing_as(status: Status) -> Iterator[None]:
    """Whatever a candidate raises, in a process kept for it, is its failure and goes into its record."""
    try:
        yield
    except Failed:
        raise
    except Exception as error:
        raise Failed(status, one_line(error)) from error
