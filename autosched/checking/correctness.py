"""Tolerance of a kernel's result: the reference, the allowed distance from it, and reports of elements beyond.

The tolerance at an element with exact value r and analysed standard error s (see `checking.rounding.analysis`) is

    8 s  +  epsilon(output type) |r|  +  smallest

8 standard deviations, because the largest of 2^31 normal errors lies at 6.2 and errors are not quite independent; one
unit in the last place of the output, because it is rounded once; and the smallest normal float32 (which processors may
flush to zero) or the smallest float16. A value beyond the range of an 8-bit float is expected as its largest finite
value: conversions of GPUs saturate (PTX ISA, cvt.satfinite); an infinity of that sign, to which processors convert, is
as right. Integers and booleans are expected exactly, except where s says that the decision behind them is in doubt.
Where s is infinite, nothing is known and nothing checked. Infinities and NaN of the reference are expected as they are.
In numbers, for standard normal data:

    matmul k=512  float32           6.9e-4 on results of size 22.6   (3.0e-5 of them)
    matmul k=4096 float32           5.5e-3 on results of size 64     (8.6e-5)
    matmul k=4096 float32 as tf32   0.71                             (1.1e-2; leaving out one of the 4096 steps: 1.6e-2)
    matmul k=4096 bfloat16          5.5e-3 + 7.8e-3 |r|
    matmul k=4096 float8            0.28 + 7.8e-3 |r| in bfloat16; with fast_accum 3.8 + 7.8e-3 |r|
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from autosched.checking.operations import cut
from autosched.checking.rounding.analysis import rounding_error
from autosched.machine.element_types import torch_dtype
from search_spaces import Workload
from search_spaces.workloads.dtypes import FLOAT8, dtype, is_float

STANDARD_DEVIATIONS = 8.0
# A tolerance that two different integers always exceed.
_LESS_THAN_ONE = 0.5

# Elements compared at once. On a CPU three float32 arrays of this length fit in a core's L2; on a GPU they keep it busy
# for long enough, and take less than a gigabyte besides the candidate's own memory.
_CHUNKS = {"cpu": 2**16, "cuda": 2**26}


@dataclass(frozen=True)
class Expectation:
    """The reference rounded to float32 (integers: in int64), and the largest error allowed, at every element."""

    values: torch.Tensor
    allowed: torch.Tensor


def expect(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[Expectation, ...]:
    """Expected outputs of a correct kernel for these inputs, on their device, with tolerances.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    found = rounding_error(workload, inputs)
    return tuple(
        _expected(t.dtype, *exact_and_error) for t, exact_and_error in zip(workload.outputs, found, strict=True)
    )


def _expected(name: str, exact: torch.Tensor, error: torch.Tensor) -> Expectation:
    """Expectation of an output of this element type."""
    if not is_float(name):
        return _expect_exactly(name, exact, error)
    output = torch.finfo(torch_dtype(name))
    smallest = max(torch.finfo(torch.float32).smallest_normal, output.smallest_normal * output.eps)
    values = exact.to(torch.float32)
    if name in FLOAT8:
        values.clamp_(output.min, output.max)
    allowed = values.abs().mul_(dtype(name).epsilon).add_(error, alpha=STANDARD_DEVIATIONS).add_(smallest)
    # If the reference, or its rounding to float32, is not finite, it is compared as such.
    overflows = exact.isfinite() & ~values.isfinite()
    allowed.masked_fill_(~values.isfinite(), smallest).masked_fill_(error.isinf() & ~overflows, math.inf)
    return Expectation(values.contiguous(), allowed.contiguous())


def _expect_exactly(name: str, exact: torch.Tensor, error: torch.Tensor) -> Expectation:
    """Expectation of integers or booleans: anything where a decision is in doubt, or that is no such number."""
    if name == "bool":
        undecided = (exact.abs() <= STANDARD_DEVIATIONS * error) & (error > 0)
        values, allowed = (exact != 0).to(torch.float32), torch.where(undecided, math.inf, _LESS_THAN_ONE)
        return Expectation(values.contiguous(), allowed.contiguous())
    allowed = (error * STANDARD_DEVIATIONS).add_(_LESS_THAN_ONE).masked_fill_(~exact.isfinite(), math.inf)
    if exact.is_floating_point():
        allowed.masked_fill_(exact.abs() >= 2.0**63, math.inf)
        exact = cut(exact)
    return Expectation(exact.contiguous(), allowed.contiguous())


def error_ratio(actual: torch.Tensor, expectation: Expectation) -> float:
    """The largest error as a fraction of what is allowed: correct up to 1, and infinite where a NaN was left.

    A value that is not finite is correct where the reference, rounded to the type of `actual`, is the same.
    """
    return max((_largest(*piece) for piece in _pieces(actual, expectation)), default=0.0)


def _pieces(
    actual: torch.Tensor, expectation: Expectation
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Pieces of an output, of the expected values, and of the errors allowed."""
    got, values, allowed = actual.reshape(-1), expectation.values.reshape(-1), expectation.allowed.reshape(-1)
    step = _CHUNKS[actual.device.type]
    for begin in range(0, got.numel(), step):
        piece = slice(begin, begin + step)
        yield got[piece], values[piece], allowed[piece]


def _largest(got: torch.Tensor, values: torch.Tensor, allowed: torch.Tensor) -> float:
    """The largest error as a fraction of what is allowed."""
    if values.is_floating_point():
        ratio = (_computable(got) - values).abs_().div_(allowed).amax().item()
        if math.isfinite(ratio):
            return ratio
    return _ratios(got, values, allowed).amax().item()


@dataclass(frozen=True)
class Worst:
    """The element with the largest error as a fraction of what is allowed: `ratio`, and what is allowed there.

    `allowed` is None where nothing is checked.
    """

    ratio: float
    allowed: float | None

    @property
    def error(self) -> float:
        """The distance from the reference."""
        return self.ratio * (self.allowed or 0.0)


def worst(actual: torch.Tensor, expectation: Expectation) -> Worst:
    """The worst element of a correct output; the first of several."""
    found = Worst(0.0, None)
    for got, values, allowed in _pieces(actual, expectation):
        if found.allowed is not None and _largest(got, values, allowed) <= found.ratio:
            continue
        ratios = _ratios(got, values, allowed).where(allowed.isfinite(), -1.0)
        place = int(ratios.argmax())
        if ratios[place] >= 0:
            found = Worst(float(ratios[place]), float(allowed[place]))
    return found


def why_wrong(actual: torch.Tensor, expectation: Expectation) -> str | None:
    """The first element outside the tolerance, and how many there are; None when all are within it."""
    return _first(~is_right(actual, expectation), "are wrong", actual, expectation)


def is_right(actual: torch.Tensor, expectation: Expectation) -> torch.Tensor:
    """Mask of the elements within the tolerance: booleans of the output's shape."""
    return _ratios(actual, expectation.values, expectation.allowed) <= 1


def why_not_finite(actual: torch.Tensor, expectation: Expectation) -> str | None:
    """The first NaN or infinity where the reference is finite in the type of `actual`, and how many there are."""
    if not actual.is_floating_point():
        return None
    wrong = ~_computable(actual).isfinite() & _computable(expectation.values.to(actual.dtype)).isfinite()
    wrong &= expectation.allowed.isfinite() & ~_is_beyond(actual, expectation.values)
    return _first(wrong, "are NaN or infinite", actual, expectation)


def _first(wrong: torch.Tensor, verb: str, actual: torch.Tensor, expectation: Expectation) -> str | None:
    found = wrong.nonzero()
    if not len(found):
        return None
    first = tuple(found[0].tolist())
    got, expected, allowed = (t[first].item() for t in (actual, expectation.values, expectation.allowed))
    shown = [str(n) if isinstance(n, int) else f"{n:.6g}" for n in (got, expected)]
    return (
        f"{len(found)} of {actual.numel()} elements {verb}; the first, {list(first)}, is {shown[0]}, "
        f"expected {shown[1]} ± {allowed:.2g}"
    )


def _computable(tensor: torch.Tensor) -> torch.Tensor:
    """The values in a type that PyTorch can compute with: 8-bit floats can only be converted."""
    return tensor.to(torch.float32) if tensor.dtype.itemsize == 1 else tensor


def _ratios(got: torch.Tensor, values: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    if not values.is_floating_point():
        # The difference of two integers may not fit, and in float64 they may be the same.
        apart = (got.to(torch.float64) - values.to(torch.float64)).abs().clamp_(min=1.0)
        return torch.where((got == values) | allowed.isinf(), 0.0, apart / allowed)
    beyond = _is_beyond(got, values)
    rounded, got = _computable(values.to(got.dtype)), _computable(got)
    ratios = (got - values).abs() / allowed
    same = (got == rounded) | (got.isnan() & rounded.isnan()) | allowed.isinf() | beyond
    return torch.where(same, 0.0, torch.nan_to_num(ratios, nan=math.inf, posinf=math.inf))


def _is_beyond(got: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Mask of 8-bit floats that are the infinity beyond the expected largest number."""
    if got.dtype.itemsize > 1 or not got.is_floating_point():
        return torch.zeros_like(got, dtype=torch.bool)
    number = _computable(got)
    return number.isinf() & (values == number.sign() * torch.finfo(got.dtype).max)
