"""What candidates run on, and the verdict on what one of them made of it.

Of several things that are wrong, one is the status of the trial: the first of these, since it may explain the others.

    1. out_of_bounds_write  memory that belongs to no operand was written to
    2. changed_input        so the reference is that of other inputs
    3. unwritten_output     poison is left in the output, bit for bit
    4. not_finite           NaN or infinity where the reference, rounded to the output's type, is finite
    5. wrong_result         a number outside the tolerance
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch

from autosched.checking.correctness import Expectation, error_ratio, expect, is_right, why_not_finite, why_wrong
from autosched.checking.guarded_memory import PAGE_BYTES, PATTERNS, GuardedInputs, GuardedOutput
from autosched.checking.reference import random_inputs
from search_spaces import Workload
from tuning_logs import Status

_LINE_BYTES = 64
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Failed(Exception):
    """The candidate in hand cannot be measured: the status and the detail of its measurement."""

    def __init__(self, status: Status, detail: str, max_error: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.max_error = max_error


class TrialData:
    """The inputs of a batch, the output that every candidate writes, and what it should then hold."""

    def __init__(
        self, workload: Workload, originals: Sequence[torch.Tensor], expectation: Expectation, shifts: Sequence[int]
    ) -> None:
        """`shifts`: how many bytes after the beginning of a page each input, and then the output, begins."""
        *input_shifts, output_shift = shifts
        self.inputs = GuardedInputs(workload, originals, input_shifts)
        self.output = GuardedOutput.of(workload, expectation.values.device, output_shift)
        self._workload = workload
        self._expectation = expectation
        self._bands = [band for guarded in (*self.inputs.guarded, self.output) for band in guarded.bands]
        self._surroundings = self._copy_bands()
        self._fingerprint = self._fingerprint_now()
        # Where the reference itself is not a number, or nothing is checked, poison looks as it should.
        self._hides_poison = bool((expectation.values.isnan() | expectation.allowed.isinf()).any())

    @staticmethod
    def drawn(workload: Workload, seed: int, device: torch.device) -> TrialData:
        """Fresh inputs and their reference, at addresses that depend on the seed too.

        Raises:
            RuntimeError: they do not fit in memory.
        """
        inputs = random_inputs(workload, seed, device)
        expectation = expect(workload, inputs)
        if device.type == "cuda":
            # The float64 intermediates are several times the size of what stays.
            torch.cuda.empty_cache()
        return TrialData(workload, inputs, expectation, _shifts(len(inputs) + 1, seed, device))

    def moved(self, seed: int) -> TrialData:
        """The same data at other addresses."""
        originals, expectation = self.inputs.originals, self._expectation
        shifts = _shifts(len(originals) + 1, seed, expectation.values.device)
        return TrialData(self._workload, originals, expectation, shifts)

    @property
    def operands(self) -> list[torch.Tensor]:
        """The inputs in order, then the output."""
        return [*self.inputs.tensors, self.output.tensor]

    @property
    def intact(self) -> bool:
        """Whether what verdicts rest on is as it was drawn. A write far outside the operands may have hit it."""
        return self._fingerprint_now() == self._fingerprint

    def max_error(self) -> float:
        """The largest error of the output as a fraction of what is allowed; infinite where it is not a number."""
        return error_ratio(self.output.tensor, self._expectation)

    def judge(self) -> float:
        """The largest error of the output, which is at most 1.

        Raises:
            Failed: the output is wrong; changed inputs are restored.
        """
        ratio = self.max_error()
        if ratio > 1.0 or self._hides_poison:
            self.judge_surroundings()
            self._judge_output(ratio if math.isfinite(ratio) else None)
        return ratio

    def judge_surroundings(self) -> None:
        """Raise Failed when something else than the output was written to; changed inputs are restored."""
        if not torch.equal(self._copy_bands(), self._surroundings):
            raise Failed("out_of_bounds_write", f"the kernel wrote {self._what_was_hit()}")
        if changed := self.inputs.changed():
            raise Failed("changed_input", f"the kernel changed its input {', '.join(changed)}")

    def _judge_output(self, max_error: float | None) -> None:
        actual, unwritten = self.output.tensor, self.output.unwritten()
        if PATTERNS[actual.dtype].computable:
            unwritten &= ~is_right(actual, self._expectation)
        if count := int(unwritten.sum()):
            first = unwritten.nonzero()[0].tolist()
            detail = f"{count} of {actual.numel()} elements were not written; the first is {first}"
            raise Failed("unwritten_output", detail)
        if reason := why_not_finite(actual, self._expectation):
            raise Failed("not_finite", reason)
        if reason := why_wrong(actual, self._expectation):
            raise Failed("wrong_result", reason, max_error)

    def _what_was_hit(self) -> str:
        named = [(t.name, guarded) for t, guarded in zip(self._workload.inputs, self.inputs.guarded, strict=True)]
        for name, guarded in (("its output", self.output), *named):
            if damage := guarded.why_damaged():
                return f"outside {name}: {damage}"
        return "beside its operands"

    def _copy_bands(self) -> torch.Tensor:
        return torch.cat([band.contiguous().view(-1).view(torch.uint8) for band in self._bands])

    def _fingerprint_now(self) -> tuple[int, ...]:
        kept = (*self.inputs.originals, self._expectation.values, self._expectation.allowed)
        return tuple(int(_as_integers(tensor).sum(dtype=torch.int64)) for tensor in kept)


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_INTEGERS[tensor.dtype.itemsize])


def _shifts(count: int, seed: int, device: torch.device) -> list[int]:
    """Where in a page each of so many operands begins: on a CPU at a line of its own choice, on a GPU at the first.

    Operands that happen to begin at the same line evict each other, which can cost a tenth; a kernel chosen for one
    placement would disappoint with the next.
    """
    if device.type == "cuda":
        return [0] * count
    random_lines = random.Random(seed)
    return [_LINE_BYTES * random_lines.randrange(PAGE_BYTES // _LINE_BYTES) for _ in range(count)]
