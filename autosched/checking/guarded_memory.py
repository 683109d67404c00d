"""Memory that reveals stray accesses of a kernel: poisoned outputs, copies of the inputs, and guard bands around all.

The patterns are signalling NaNs where the type has them. Arithmetic on one yields a quiet NaN (IEEE 754-2019, section
6.2; NVIDIA GPUs yield 0x7fffffff), and no calculation makes these bits: where they are found, nothing was written. Of
the NaNs of 8-bit floats conversions yield only 0x7f (PTX ISA, cvt), so the others serve. Integers have none. For 32 and
64 bits, an integer serves that is no float32 (nor float64), so that no conversion yields it, near the smallest integer,
which NaN becomes. It is further from 0 than the operands of `random_inputs`, and than sums of their products can be.
Every 8-bit integer may be computed; the one that serves is the furthest from 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from autosched.machine.element_types import torch_dtype
from search_spaces import Tensor as TensorSpec
from search_spaces import Workload
from search_spaces.workloads.strides import span


@dataclass(frozen=True)
class Patterns:
    """Bits that no kernel computes, as integers of the size of an element: for outputs (poison), and for guard bands.

    `computable`: the type has no such bits, and these are only rare.
    """

    integer: torch.dtype
    poison: int
    band: int
    computable: bool = False


PATTERNS: dict[torch.dtype, Patterns] = {
    torch.float32: Patterns(torch.int32, poison=0x7FA5A5A5, band=0x7F95A5A5),
    torch.float16: Patterns(torch.int16, poison=0x7D5A, band=0x7CA5),
    torch.bfloat16: Patterns(torch.int16, poison=0x7FA5, band=0x7F95),
    # The other of the two NaNs of this type: 0xff.
    torch.float8_e4m3fn: Patterns(torch.int8, poison=-1, band=-1),
    torch.float8_e5m2: Patterns(torch.int8, poison=0x7D, band=0x7E),
    torch.int8: Patterns(torch.int8, poison=-(2**7), band=-(2**7), computable=True),
    torch.uint8: Patterns(torch.int8, poison=-1, band=-1, computable=True),
    torch.int16: Patterns(torch.int16, poison=-(2**15), band=-(2**15), computable=True),
    # Between the smallest integer and the next float32, 2^7 from it; of 64 bits, the next float64, 2^10 from it.
    torch.int32: Patterns(torch.int32, poison=-(2**31) + 0x5B, band=-(2**31) + 0x5B),
    torch.int64: Patterns(torch.int64, poison=-(2**63) + 0x25B, band=-(2**63) + 0x25B),
    # Kernels write 0 and 1.
    torch.bool: Patterns(torch.int8, poison=0x5A, band=0x5A),
}
# Long enough to reveal any access beyond an end, short enough to compare after every trial; a multiple of a page, so
# that the tensor between the bands is aligned as one of its own would be.
BAND_BYTES = 2**16
PAGE_BYTES = 4096


class GuardedTensor:
    """A tensor between two guard bands: a write into them is found, a read from them spoils the result.

        [ band: NaN | tensor | band: NaN ]

    The gaps between the rows of a strided tensor are bands, too. Not found: writes beyond the bands, and reads that
    have no effect on the result or that hit another tensor.
    """

    def __init__(self, spec: TensorSpec, device: str | torch.device, shift: int = 0) -> None:
        """Its elements are not set. It begins `shift` bytes, a multiple of 64, after the beginning of a page."""
        dtype = torch_dtype(spec.dtype)
        size = spec.span * dtype.itemsize
        patterns = PATTERNS[dtype]
        storage = torch.empty(PAGE_BYTES + shift + size + 2 * BAND_BYTES, dtype=torch.uint8, device=device)
        begin = -storage.data_ptr() % PAGE_BYTES + shift + BAND_BYTES
        end = begin + size
        inside = storage[begin:end].view(dtype)
        self.tensor = inside.as_strided(spec.shape, spec.effective_strides, inside.storage_offset())
        before, after = storage[begin - BAND_BYTES : begin], storage[end : end + BAND_BYTES]
        bits = inside.view(patterns.integer)
        between = [
            bits.as_strided(shape, strides, bits.storage_offset() + offset)
            for shape, strides, offset in _gaps(spec.shape, spec.effective_strides)
        ]
        self.bands = (before.view(patterns.integer), after.view(patterns.integer), *between)
        self._band = patterns.band
        self.surround()

    def surround(self, zeros: bool = False) -> None:
        """Fill the bands with NaN, or with zeros, which spoil no sum."""
        for band in self.bands:
            band.fill_(0 if zeros else self._band)

    def why_damaged(self) -> str | None:
        """The band that was written to since it was filled with NaN, or None."""
        places = itertools.chain(("before it", "after it"), itertools.repeat("between its rows"))
        for where, band in zip(places, self.bands, strict=False):
            if damaged := int((band != self._band).sum()):
                return f"{where} ({damaged} elements of the guard band differ)"
        return None


class GuardedOutput(GuardedTensor):
    """An output that also shows which elements a kernel did not write."""

    def poison(self) -> None:
        self._bits.fill_(PATTERNS[self.tensor.dtype].poison)

    def unwritten(self) -> torch.Tensor:
        """Mask of elements that are still poison: booleans of the output's shape."""
        return self._bits == PATTERNS[self.tensor.dtype].poison

    @property
    def _bits(self) -> torch.Tensor:
        return self.tensor.view(PATTERNS[self.tensor.dtype].integer)


class GuardedInputs:
    """Copies of inputs for kernels to read; a changed one is detected and restored before the next kernel."""

    def __init__(self, workload: Workload, originals: Sequence[torch.Tensor], shifts: Sequence[int] = ()) -> None:
        """`shifts`: offset of each input from the beginning of a page, in bytes."""
        self._names = [t.name for t in workload.inputs]
        self.originals = list(originals)
        self.guarded = [
            GuardedTensor(t, x.device, shift)
            for t, x, shift in zip(workload.inputs, originals, shifts or [0] * len(originals), strict=True)
        ]
        self.tensors = [guarded.tensor for guarded in self.guarded]
        for tensor, original in zip(self.tensors, originals, strict=True):
            _distinct(tensor).copy_(_distinct(original))

    def surround(self, zeros: bool = False) -> None:
        """Fill the bands around every input with NaN, or with zeros."""
        for guarded in self.guarded:
            guarded.surround(zeros)

    def changed(self) -> tuple[str, ...]:
        """Names of the inputs that were changed; they are restored."""
        found = []
        for name, tensor, original in zip(self._names, self.tensors, self.originals, strict=True):
            if not same_bits(_distinct(tensor), _distinct(original)):
                _distinct(tensor).copy_(_distinct(original))
                found.append(name)
        return tuple(found)


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with one index of every broadcast dimension (stride 0)."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def _gaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Gaps between the elements of a tensor, as shapes, strides and offsets, in elements from its first.

    Rows of 5 elements, 8 apart, leave gaps of 3: all but the last row have one behind them.
    """
    dimensions = sorted(((s, n) for s, n in zip(strides, shape, strict=True) if s and n > 1), reverse=True)
    for level, (stride, size) in enumerate(dimensions):
        outer, inner = dimensions[:level], dimensions[level + 1 :]
        filled = span(tuple(n for _, n in inner), tuple(s for s, _ in inner))
        if filled < stride:
            yield (
                (*(n for _, n in outer), size - 1, stride - filled),
                (*(s for s, _ in outer), stride, 1),
                filled,
            )


def _in_a_row(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """All elements in one dimension, of stride 1; `order`: of the dimensions, so that few tensors are copied for it.

    PyTorch leaves a single element the stride that it had, which may be 0, and refuses to view it as bytes.
    """
    dense = tensor.permute(tuple(order)).contiguous()
    return dense.as_strided((dense.numel(),), (1,), dense.storage_offset())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors have the same bytes; compared eight at a time, which is twice as fast as number by number."""
    in_memory = sorted(range(a.dim()), key=a.stride, reverse=True)
    x, y = (_in_a_row(t, in_memory).view(torch.uint8) for t in (a, b))
    whole = x.numel() // 8 * 8
    same = torch.equal(x[:whole].view(torch.int64), y[:whole].view(torch.int64))
    return same and torch.equal(x[whole:], y[whole:])
