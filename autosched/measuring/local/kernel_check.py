"""Check of a kernel: run on poisoned outputs, between guard bands, and compared with the reference.

A trial begins with it, and so does the first use of a kernel that this machine has not checked yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from autosched.backends.backend import Launcher
from autosched.checking.guarded_memory import BAND_BYTES, same_bits
from autosched.checking.trial_data import Failed, TrialData
from autosched.machine import memory
from autosched.machine.deadline import Deadline
from autosched.measuring.local.jobs import one_line
from search_spaces import Workload
from tuning_logs import Status
from tuning_logs.certificate import Results

Run = Callable[[], object]

# Time for further divisions into segments: for their references, and for running a candidate on them. Those that are
# left out come first with other seeds, and all are checked of winners of finals and before a first use.
_DIVISIONS_S = 0.3


class KernelCheck:
    """Checks kernels of one workload, one after the other, on its own data.

    A `run` calls a kernel on the present `data.operands`.
    """

    def __init__(self, workload: Workload, device: torch.device, memory_bytes: int | None = None) -> None:
        """`memory_bytes`: additional memory that a kernel on a CPU may take; None: no limit."""
        self._workload = workload
        self._device = device
        self._memory_bytes = memory_bytes
        self._prepared: TrialData | None = None
        self._seed = 0
        # Time of the last move.
        self.move_s = 0.0

    @property
    def data(self) -> TrialData:
        assert self._prepared is not None, "prepare comes before the first check"
        return self._prepared

    def prepare(self, seed: int, limit_s: float | None = _DIVISIONS_S) -> None:
        """Draw inputs and evaluate the reference; `limit_s`: for further divisions, None for all of them.

        Raises:
            RuntimeError: they do not fit in memory.
        """
        # Frees the former data first: two may not fit.
        self._prepared, self._seed = None, seed
        self._prepared = TrialData.drawn(self._workload, seed, self._device, Deadline.after(limit_s))

    def move(self, seed: int) -> None:
        """Place the same data at other addresses, where there is memory for both placements."""
        begin = time.perf_counter()
        try:
            self._prepared = self.data.moved(seed)
        except RuntimeError as error:
            if not memory.ran_out(error):
                raise
        self.move_s = time.perf_counter() - begin

    def first(self, run: Run, limit_s: float | None = _DIVISIONS_S) -> float:
        """Run once on poisoned outputs for each division; the largest error as a fraction of the tolerance.

        `limit_s`: for further divisions, None for all of them.

        Raises:
            Failed: the kernel is not right.
        """
        worst, deadline = 0.0, Deadline.after(limit_s)
        for number in range(len(self.data.divisions)):
            if number and deadline.over:
                break
            self.data.divide(self.data.divisions[number])
            worst = max(worst, self._on_division(run, number))
        self.data.divide(self.data.divisions[0])
        return worst

    def _on_division(self, run: Run, number: int) -> float:
        try:
            return self._attempt(run)
        except Failed as failure:
            if not self.data.intact:
                return self._on_new_data(run, number)
            if failure.status in ("not_finite", "wrong_result") and self._is_right_among_zeros(run):
                detail = f"{failure}; right with zeros around the inputs: it reads outside them"
                raise Failed("out_of_bounds_read", detail, failure.max_error) from failure
            raise

    def last(self) -> float:
        """The largest error after further runs, which may have written to nothing but the outputs.

        Raises:
            Failed: a kernel may be right the first time only.
        """
        ratio = self.data.judge()
        self.data.judge_surroundings()
        return ratio

    def examine(self, run: Run, most: int, deadline: Deadline) -> Results:
        """Results of up to `most` runs on the same inputs, of two after the deadline: checked and compared bit by bit.

        Raises:
            Failed: the kernel is not right.
        """
        if not self.data.intact:
            self.prepare(self._seed, None)
        if not self.data.complete:
            self.data.complete_from(self._seed)
        self.first(run, None)
        if len(self.data.divisions) > 1:
            # The outputs are those of the last division, the data that of the first again.
            self.run_poisoned(run)
        outputs = [output.tensor for output in self.data.outputs]
        copies, runs, repeatable = _copied(outputs), 1, True
        worst = self.data.worst()
        while runs < most and (runs < 2 or not deadline.over):
            self.run_poisoned(run)
            runs += 1
            if copies is None or not all(map(same_bits, outputs, copies)):
                repeatable = False
                self.data.judge()
                worst = max(worst, self.data.worst(), key=lambda one: one.ratio)
        self.data.judge_surroundings()
        return Results(
            seed=self._seed,
            inputs=tuple((t.name, t.shape, t.dtype) for t in self._workload.inputs),
            max_error=worst.ratio,
            error=worst.error,
            tolerance=worst.allowed,
            guard_band_bytes=BAND_BYTES,
            runs=runs,
            repeatable=None if copies is None else repeatable,
        )

    def run_poisoned(self, run: Run) -> None:
        """Run once on poisoned outputs, and wait for the end."""
        self.data.poison()
        with self.memory_limit():
            run()
            self.synchronize()

    def memory_limit(self) -> AbstractContextManager[None]:
        """Limit on the memory that a kernel on a CPU takes within the block."""
        if self._memory_bytes is None or self._device.type != "cpu":
            return nullcontext()
        return memory.limited(self._memory_bytes)

    def synchronize(self) -> None:
        """Wait for the device. Raises RuntimeError for its errors."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _on_new_data(self, run: Run, number: int) -> float:
        """Second attempt after the reference was overwritten: this kernel's fault if it happens again."""
        self.prepare(self._seed, None)
        self.data.divide(self.data.divisions[number])
        try:
            return self._attempt(run)
        except Failed as failure:
            if not self.data.intact:
                raise Failed("out_of_bounds_write", "the kernel wrote far outside its operands") from failure
            raise

    def _is_right_among_zeros(self, run: Run) -> bool:
        inputs = self.data.inputs
        inputs.surround(zeros=True)
        try:
            self.run_poisoned(run)
            return self.data.max_error() <= 1.0
        finally:
            inputs.surround()

    def _attempt(self, run: Run) -> float:
        self.run_poisoned(run)
        return self.data.judge()


def _copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Copies of tensors; None where there is no memory for them."""
    try:
        return [tensor.clone() for tensor in tensors]
    except RuntimeError as error:
        if memory.ran_out(error):
            return None
        raise


def check_once(workload: Workload, device: torch.device, launcher: Launcher, seed: int) -> float:
    """Check a loaded kernel in this process, on its own data; the largest error as a fraction of the tolerance.

    Raises:
        Failed: the kernel is not right, or did not run to its end.
        RuntimeError: the data does not fit in memory.
    """
    check = KernelCheck(workload, device)

    def run() -> None:
        launcher(check.data.operands)

    check.prepare(seed, None)
    with failing_as("run_error"):
        error = check.first(run, None)
        check.run_poisoned(run)
        return max(error, check.last())


@contextmanager
def failing_as(status: Status) -> Iterator[None]:
    """Make any exception of a candidate a failure of this status, for its record."""
    try:
        yield
    except Failed:
        raise
    except Exception as error:
        raise Failed("out_of_memory" if memory.ran_out(error) else status, one_line(error)) from error
