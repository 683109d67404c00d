"""Whether a kernel computed what it should: the tolerance, poisoned and guarded outputs, untouched inputs.

What is allowed at an element with exact value r and analysed standard error s (see `autosched.rounding`):

    8 s  +  epsilon(output type) |r|  +  smallest

8 standard deviations, because the largest of 2^31 normal errors lies at 6.2 and errors are not quite independent; one
unit in the last place of the output, because it is rounded once; and the smallest normal float32 (which processors may
flush to zero) or the smallest float16. In numbers, for standard normal data:

    matmul k=512  float32           6.9e-4 on results of size 22.6   (3.0e-5 of them)
    matmul k=4096 float32           5.5e-3 on results of size 64     (8.6e-5)
    matmul k=4096 float32 as tf32   0.71                             (1.1e-2; leaving out one of the 4096 steps: 1.6e-2)
    matmul k=4096 bfloat16          5.5e-3 + 7.8e-3 |r|
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from autosched.reference import torch_dtype
from autosched.rounding import rounding_error
from search_spaces import Workload
from search_spaces.dtypes import dtype

STANDARD_DEVIATIONS = 8.0

# Elements compared at once on a CPU: three float32 arrays of this length stay in a core's L2.
_CHUNK = 2**16


@dataclass(frozen=True)
class Expectation:
    """The reference rounded to float32, and the largest error allowed, at every element of the output."""

    values: torch.Tensor
    allowed: torch.Tensor


def expect(workload: Workload, inputs: Sequence[torch.Tensor]) -> Expectation:
    """What a correct kernel yields for these inputs, on their device.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    exact, error = rounding_error(workload, inputs)
    output = torch_dtype(workload.output.dtype)
    smallest = max(
        torch.finfo(torch.float32).smallest_normal, torch.finfo(output).smallest_normal * torch.finfo(output).eps
    )
    values = exact.to(torch.float32)
    allowed = (
        values.abs().mul_(dtype(workload.output.dtype).epsilon).add_(error, alpha=STANDARD_DEVIATIONS).add_(smallest)
    )
    # Where the analysis has no answer (0 times infinity) the reference itself is not finite, and compared as such.
    return Expectation(values.contiguous(), torch.nan_to_num(allowed, nan=smallest).contiguous())


def error_ratio(actual: torch.Tensor, expectation: Expectation) -> float:
    """The largest error as a fraction of what is allowed: correct up to 1, and infinite where a NaN was left.

    A value that is not finite is correct where the reference, rounded to the type of `actual`, is the same.
    """
    got, values, allowed = actual.reshape(-1), expectation.values.reshape(-1), expectation.allowed.reshape(-1)
    step = _CHUNK if actual.device.type == "cpu" else max(1, got.numel())
    worst = 0.0
    for begin in range(0, got.numel(), step):
        piece = slice(begin, begin + step)
        ratio = (got[piece] - values[piece]).abs_().div_(allowed[piece]).amax().item()
        if not math.isfinite(ratio):
            ratio = _ratios(got[piece], values[piece], allowed[piece]).amax().item()
        worst = max(worst, ratio)
    return worst


def why_wrong(actual: torch.Tensor, expectation: Expectation) -> str | None:
    """The first element outside the tolerance, and how many there are; None when all are within it."""
    ratios = _ratios(actual, expectation.values, expectation.allowed)
    wrong = (ratios > 1).nonzero()
    if not len(wrong):
        return None
    first = tuple(wrong[0].tolist())
    got, expected, allowed = (t[first].item() for t in (actual, expectation.values, expectation.allowed))
    what = "is unwritten or not a number" if math.isnan(got) else f"is {got:.6g}"
    return (
        f"{len(wrong)} of {actual.numel()} elements are wrong; the first, {list(first)}, {what}, "
        f"expected {expected:.6g} ± {allowed:.2g}"
    )


def _ratios(got: torch.Tensor, values: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    ratios = (got - values).abs() / allowed
    rounded = values.to(got.dtype)
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    return torch.where(same, 0.0, torch.nan_to_num(ratios, nan=math.inf, posinf=math.inf))


class GuardedOutput:
    """An output that shows what a kernel did not write, between two bands that show what it wrote beside it.

    [ band: pattern | output: NaN | band: pattern ]
    """

    # Long enough to show whatever runs on past an end, short enough to compare after every trial; a multiple of a page,
    # so that the output is aligned as a tensor of its own would be.
    _BAND_BYTES = 2**16
    _PATTERN = 0x5A

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device, shift: int = 0) -> None:
        """`shift`: how many bytes after the end of the first band the output begins."""
        size = math.prod(shape) * dtype.itemsize
        self._intact = torch.full((self._BAND_BYTES,), self._PATTERN, dtype=torch.uint8, device=device)
        self._storage = self._intact.new_full((shift + size + 2 * self._BAND_BYTES,), self._PATTERN)
        begin = shift + self._BAND_BYTES
        self.tensor = self._storage[begin : begin + size].view(dtype).view(shape)
        self._ends = begin, begin + size

    @staticmethod
    def of(workload: Workload, device: str | torch.device, shift: int = 0) -> GuardedOutput:
        output = workload.output
        return GuardedOutput(output.shape, torch_dtype(output.dtype), device, shift)

    def poison(self) -> None:
        """Fill the output with NaN and restore the bands."""
        for band in self._bands():
            band.fill_(self._PATTERN)
        self.tensor.fill_(math.nan)

    def why_damaged(self) -> str | None:
        """Which band was written to, or None."""
        for where, band in zip(("before", "after"), self._bands(), strict=True):
            if not torch.equal(band, self._intact):
                damaged = int((band != self._intact).sum())
                return f"the kernel wrote {where} its output ({damaged} bytes of the guard band differ)"
        return None

    def _bands(self) -> tuple[torch.Tensor, torch.Tensor]:
        begin, end = self._ends
        return self._storage[begin - self._BAND_BYTES : begin], self._storage[end : end + self._BAND_BYTES]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two dense tensors hold the same bytes, eight at a time: twice as fast as number by number."""
    x, y = (t.view(-1).view(torch.uint8) for t in (a, b))
    whole = x.numel() // 8 * 8
    same = torch.equal(x[:whole].view(torch.int64), y[:whole].view(torch.int64))
    return same and torch.equal(x[whole:], y[whole:])


class GuardedInputs:
    """Inputs with copies kept aside, so that a kernel that changes them is found out and does no harm to the next."""

    def __init__(self, workload: Workload, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        self._names = [t.name for t in workload.inputs]
        self._originals = [t.clone() for t in tensors]

    def changed(self) -> tuple[str, ...]:
        """The names of the inputs that differ from what they were; they are restored."""
        found = []
        for name, tensor, original in zip(self._names, self.tensors, self._originals, strict=True):
            if not _same_bits(tensor, original):
                tensor.copy_(original)
                found.append(name)
        return tuple(found)
