"""Operands of trials, and the verdict on a candidate's results.

Of several errors, one is the status of the trial: the first of these, since it may explain the others.

    1. out_of_bounds_write  memory that belongs to no operand was written to
    2. changed_input        so the reference is that of other inputs
    3. unwritten_output     poison is left in an output, bit for bit
    4. not_finite           NaN or infinity where the reference, rounded to the output's type, is finite
    5. wrong_result         a number outside the tolerance

Of several wrong outputs, the status is that of the first; the detail names it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from autosched.checking.correctness import (
    Expectation,
    Worst,
    error_ratio,
    expect,
    is_right,
    why_not_finite,
    why_wrong,
    worst,
)
from autosched.checking.guarded_memory import PAGE_BYTES, PATTERNS, GuardedInputs, GuardedOutput, GuardedTensor
from autosched.checking.histograms import over, set_ends, timed_ends
from autosched.checking.random_inputs import random_ends, random_inputs, telling_seeds
from autosched.machine import memory
from autosched.machine.deadline import NEVER, Deadline
from autosched.machine.element_types import sum_of_bits
from autosched.machine.timing import Timer
from search_spaces import Workload
from tuning_logs import Status

_LINE_BYTES = 64


class Failed(Exception):
    """A candidate cannot be measured: the status and the detail of its measurement."""

    def __init__(self, status: Status, detail: str, max_error: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.max_error = max_error


@dataclass(frozen=True)
class Division:
    """Ends of segments, by the numbers of their inputs, and what is expected with them; no ends without segments."""

    ends: Mapping[int, torch.Tensor]
    expectations: tuple[Expectation, ...]


class TrialData:
    """The inputs of a batch, the outputs that every candidate writes, and their expected values.

    Kernels may be right for some ends of segments alone: the same inputs are divided in several ways, one at a time.
    """

    def __init__(
        self,
        workload: Workload,
        originals: Sequence[torch.Tensor],
        divisions: Sequence[Division],
        shifts: Sequence[int],
    ) -> None:
        """`shifts`: offsets of the inputs, then of the outputs, from the beginning of a page, in bytes."""
        expectations = divisions[0].expectations
        self.inputs = GuardedInputs(workload, originals, shifts[: len(originals)])
        self.outputs = tuple(
            GuardedOutput(t, e.values.device, shift)
            for t, e, shift in zip(workload.outputs, expectations, shifts[len(originals) :], strict=True)
        )
        self._workload = workload
        self._timed_ends = timed_ends(workload)
        self.divisions = tuple(divisions)
        self.divide(divisions[0])
        self._bands = [band for guarded in (*self.inputs.guarded, *self.outputs) for band in guarded.bands]
        self._surroundings = self._copy_bands()
        self._note()

    @staticmethod
    def drawn(workload: Workload, seed: int, device: torch.device, deadline: Deadline = NEVER) -> TrialData:
        """Fresh inputs and their reference, at addresses that depend on the seed, too.

        Of all divisions; with a deadline, of the first, and of those that time and memory are left for.

        Raises:
            RuntimeError: they do not fit in memory.
        """
        inputs = random_inputs(workload, seed, device)
        divisions = _divisions(workload, inputs, telling_seeds(workload, seed), deadline)
        return TrialData(workload, inputs, divisions, _shifts(len(inputs) + len(workload.outputs), seed, device))

    def moved(self, seed: int) -> TrialData:
        """The same data at other addresses."""
        originals, device = self.inputs.originals, self.outputs[0].tensor.device
        shifts = _shifts(len(originals) + len(self.outputs), seed, device)
        return TrialData(self._workload, originals, self.divisions, shifts)

    def complete_from(self, seed: int) -> None:
        """Add the divisions that are not there to those drawn from a seed.

        Raises:
            RuntimeError: they do not fit in memory.
        """
        seeds = telling_seeds(self._workload, seed)[len(self.divisions) :]
        try:
            self.divisions += tuple(_divisions(self._workload, self.inputs.originals, seeds, NEVER))
        finally:
            self.divide(self._division)
        self._note()

    def divide(self, division: Division) -> None:
        """Set the ends of segments, and what is expected."""
        self._division = division
        set_ends(self.inputs.originals, division.ends)
        set_ends(self.inputs.tensors, division.ends)

    @property
    def complete(self) -> bool:
        """True if all divisions are there."""
        return len(self.divisions) == len(telling_seeds(self._workload, 0))

    @property
    def timings(self) -> int:
        """Timed calls for one latency: with the ends of every histogram."""
        return max(1, len(self._timed_ends))

    @property
    def operands(self) -> list[torch.Tensor]:
        """The inputs in the order of the kernel, then the outputs."""
        tensors = self.inputs.tensors
        inputs = (tensors[n] for n in self._workload.canonical.inputs)
        return [*inputs, *(output.tensor for output in self.outputs)]

    @contextmanager
    def timed_by(self, timer: Timer) -> Iterator[Timer]:
        """Within the block, the timer that times with the ends of segments for timing, or the same without segments.

        What kernels compute meanwhile is not to be judged. After an error the inputs are to be restored.
        """
        yield over(self._timed_ends, self.inputs.tensors, timer)
        set_ends(self.inputs.tensors, self._division.ends)

    @property
    def intact(self) -> bool:
        """True if inputs and expectations are unchanged. A write far outside the operands may have hit them."""
        return self._fingerprint_now() == self._fingerprint

    def poison(self) -> None:
        """Fill the outputs with the poison pattern."""
        for output in self.outputs:
            output.poison()

    def max_error(self) -> float:
        """The largest error of any output as a fraction of what is allowed; infinite where it is not a number."""
        return max(error_ratio(o.tensor, e) for o, e in zip(self.outputs, self._expectations, strict=True))

    @property
    def _expectations(self) -> tuple[Expectation, ...]:
        return self._division.expectations

    def worst(self) -> Worst:
        """The largest error of any output."""
        found = [worst(o.tensor, e) for o, e in zip(self.outputs, self._expectations, strict=True)]
        return max(found, key=lambda one: one.ratio)

    def judge(self) -> float:
        """The largest error of any output, which is at most 1.

        Raises:
            Failed: an output is wrong; changed inputs are restored.
        """
        ratio = self.max_error()
        if ratio > 1.0 or self._hides_poison:
            self.judge_surroundings()
            self._judge_outputs(ratio if math.isfinite(ratio) else None)
        return ratio

    def judge_surroundings(self) -> None:
        """Raise Failed if anything but the outputs was written to; changed inputs are restored."""
        if not torch.equal(self._copy_bands(), self._surroundings):
            raise Failed("out_of_bounds_write", f"the kernel wrote {self._what_was_hit()}")
        if changed := self.inputs.changed():
            raise Failed("changed_input", f"the kernel changed its input {', '.join(changed)}")

    def _judge_outputs(self, max_error: float | None) -> None:
        several = len(self.outputs) > 1
        judged = zip(self._workload.output_names, self.outputs, self._expectations, strict=True)
        for name, output, expectation in judged:
            found = _why_bad(output, expectation)
            if found is not None:
                status, reason = found
                detail = f"output {name}: {reason}" if several else reason
                raise Failed(status, detail, max_error if status == "wrong_result" else None)

    def _what_was_hit(self) -> str:
        written = [("its output" if len(self.outputs) == 1 else f"its output {n}") for n in self._workload.output_names]
        names = (*written, *(t.name for t in self._workload.inputs))
        for name, guarded in zip(names, (*self.outputs, *self.inputs.guarded), strict=True):
            if damage := guarded.why_damaged():
                return f"outside {name}: {damage}"
        return "next to its operands"

    def _copy_bands(self) -> torch.Tensor:
        return torch.cat([band.contiguous().view(-1).view(torch.uint8) for band in self._bands])

    def _note(self) -> None:
        """Note what the data is, and if poison passes as right: the reference itself is NaN, or nothing is checked."""
        self._fingerprint = self._fingerprint_now()
        expected = (e for division in self.divisions for e in division.expectations)
        self._hides_poison = any(bool((e.values.isnan() | e.allowed.isinf()).any()) for e in expected)

    def _fingerprint_now(self) -> tuple[int, ...]:
        expected = (t for d in self.divisions for e in d.expectations for t in (e.values, e.allowed))
        ends = (t for d in self.divisions for t in d.ends.values())
        same = (t for n, t in enumerate(self.inputs.originals) if n not in self._division.ends)
        return tuple(int(sum_of_bits(t)) for t in (*same, *ends, *expected))


def _divisions(
    workload: Workload, inputs: Sequence[torch.Tensor], seeds: Sequence[int], deadline: Deadline
) -> Sequence[Division]:
    """The inputs with the ends of segments of each seed, and the reference with these; one at least."""
    found: list[Division] = []
    for each in seeds:
        if found and deadline.over:
            break
        ends = {n: given.to(inputs[n]) for n, given in random_ends(workload, each).items()}
        set_ends(inputs, ends)
        try:
            found.append(Division(ends, expect(workload, inputs)))
        except RuntimeError as error:
            if not found or deadline == NEVER or not memory.ran_out(error):
                raise
            break
    if inputs and inputs[0].device.type == "cuda":
        # The float64 intermediates are several times the size of what stays.
        torch.cuda.empty_cache()
    return found


def _why_bad(output: GuardedOutput, expectation: Expectation) -> tuple[Status, str] | None:
    """Status and description of an error in an output; None if it is right."""
    actual, unwritten = output.tensor, output.unwritten()
    if PATTERNS[actual.dtype].computable:
        unwritten &= ~is_right(actual, expectation)
    if count := int(unwritten.sum()):
        first = unwritten.nonzero()[0].tolist()
        return "unwritten_output", f"{count} of {actual.numel()} elements were not written; the first is {first}"
    if reason := why_not_finite(actual, expectation):
        return "not_finite", reason
    reason = why_wrong(actual, expectation)
    return None if reason is None else ("wrong_result", reason)


def placed(
    workload: Workload, originals: Sequence[torch.Tensor], seed: int, device: torch.device
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Copies of the inputs, and outputs, as `TrialData.moved` places them: for timing alone."""
    shifts = _shifts(len(originals) + len(workload.outputs), seed, device)
    inputs = GuardedInputs(workload, originals, shifts[: len(originals)])
    outputs = zip(workload.outputs, shifts[len(originals) :], strict=True)
    return inputs.tensors, [GuardedTensor(t, device, shift).tensor for t, shift in outputs]


def _shifts(count: int, seed: int, device: torch.device) -> list[int]:
    """Offset of each operand in its page, in bytes: a random cache line on a CPU, 0 on a GPU.

    Operands that happen to begin at the same line evict each other, which can cost a tenth; a kernel chosen for one
    placement would disappoint with the next.
    """
    if device.type == "cuda":
        return [0] * count
    random_lines = random.Random(seed)
    return [_LINE_BYTES * random_lines.randrange(PAGE_BYTES // _LINE_BYTES) for _ in range(count)]
