"""Memory that shows what a kernel did to it: a poisoned output, copies of the inputs, and bands around all of them.

The patterns are signalling NaNs. Arithmetic that meets one yields a quiet NaN (IEEE 754-2019, section 6.2; NVIDIA GPUs
yield 0x7fffffff). No calculation makes these bits: where they are found, nobody wrote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from autosched.reference import torch_dtype
from search_spaces import Workload


@dataclass(frozen=True)
class NanPatterns:
    """Two signalling NaNs of one element type as integers of its size: all exponent bits set, the quiet bit clear."""

    integer: torch.dtype
    poison: int
    beside: int


PATTERNS: dict[torch.dtype, NanPatterns] = {
    torch.float32: NanPatterns(torch.int32, poison=0x7FA5A5A5, beside=0x7F95A5A5),
    torch.float16: NanPatterns(torch.int16, poison=0x7D5A, beside=0x7CA5),
    torch.bfloat16: NanPatterns(torch.int16, poison=0x7FA5, beside=0x7F95),
}
# Long enough to show whatever runs on past an end, short enough to compare after every trial; a multiple of a page, so
# that the tensor between is aligned as one of its own would be.
BAND_BYTES = 2**16
PAGE_BYTES = 4096


class GuardedTensor:
    """A tensor between two bands: what is written beside it shows, and what is read there spoils the result.

        [ band: NaN | tensor | band: NaN ]

    It shows neither writes beyond the bands, nor reads that have no effect on the result or that hit another tensor.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device, shift: int = 0) -> None:
        """Its elements are not set. It begins `shift` bytes, a multiple of 64, after the beginning of a page."""
        size = math.prod(shape) * dtype.itemsize
        patterns = PATTERNS[dtype]
        storage = torch.empty(PAGE_BYTES + shift + size + 2 * BAND_BYTES, dtype=torch.uint8, device=device)
        begin = -storage.data_ptr() % PAGE_BYTES + shift + BAND_BYTES
        end = begin + size
        self.tensor = storage[begin:end].view(dtype).view(shape)
        before, after = storage[begin - BAND_BYTES : begin], storage[end : end + BAND_BYTES]
        self.bands = (before.view(patterns.integer), after.view(patterns.integer))
        self._beside = patterns.beside
        self.surround()

    def surround(self, zeros: bool = False) -> None:
        """Fill the bands with NaN, or with zeros, which spoil no sum."""
        for band in self.bands:
            band.fill_(0 if zeros else self._beside)

    def why_damaged(self) -> str | None:
        """Which band was written to since it was filled with NaN, or None."""
        for where, band in zip(("before", "after"), self.bands, strict=True):
            if damaged := int((band != self._beside).sum()):
                return f"{where} it ({damaged} elements of the guard band differ)"
        return None


class GuardedOutput(GuardedTensor):
    """An output that also shows which elements a kernel did not write."""

    @staticmethod
    def of(workload: Workload, device: str | torch.device, shift: int = 0) -> GuardedOutput:
        output = workload.output
        return GuardedOutput(output.shape, torch_dtype(output.dtype), device, shift)

    def poison(self) -> None:
        self._bits.fill_(PATTERNS[self.tensor.dtype].poison)

    def unwritten(self) -> torch.Tensor:
        """Where the poison is as it was: booleans of the output's shape."""
        return self._bits == PATTERNS[self.tensor.dtype].poison

    @property
    def _bits(self) -> torch.Tensor:
        return self.tensor.view(PATTERNS[self.tensor.dtype].integer)


class GuardedInputs:
    """Copies of inputs for kernels to read; one that a kernel changes is found out and does no harm to the next."""

    def __init__(self, workload: Workload, originals: Sequence[torch.Tensor], shifts: Sequence[int] = ()) -> None:
        """`shifts`: how many bytes after the beginning of a page each begins."""
        self._names = [t.name for t in workload.inputs]
        self.originals = list(originals)
        self.guarded = [
            GuardedTensor(tuple(x.shape), x.dtype, x.device, shift)
            for x, shift in zip(originals, shifts or [0] * len(originals), strict=True)
        ]
        self.tensors = [guarded.tensor for guarded in self.guarded]
        for tensor, original in zip(self.tensors, originals, strict=True):
            tensor.copy_(original)

    def surround(self, zeros: bool = False) -> None:
        """Fill the bands around every input with NaN, or with zeros."""
        for guarded in self.guarded:
            guarded.surround(zeros)

    def changed(self) -> tuple[str, ...]:
        """The names of the inputs that differ from what they were; they are restored."""
        found = []
        for name, tensor, original in zip(self._names, self.tensors, self.originals, strict=True):
            if not _same_bits(tensor, original):
                tensor.copy_(original)
                found.append(name)
        return tuple(found)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two dense tensors hold the same bytes, eight at a time: twice as fast as number by number."""
    x, y = (t.view(-1).view(torch.uint8) for t in (a, b))
    whole = x.numel() // 8 * 8
    same = torch.equal(x[:whole].view(torch.int64), y[:whole].view(torch.int64))
    return same and torch.equal(x[whole:], y[whole:])
