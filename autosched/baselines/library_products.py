"""Matrix products by PyTorch and the vendor's libraries, for every element type and layout that kernels are tuned for.

Where a library does not support the operands, the `LibraryProduct` is what a user would call instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from autosched.machine.element_types import torch_dtype
from search_spaces import Workload
from search_spaces.workloads.dtypes import FLOAT8, is_integer

# cuBLASLt's requirements for 8-bit operands: k and n are multiples of 16 (float8) or of 8 (int8), and int8 has more
# than 16 rows (the checks of torch._scaled_mm and torch._int_mm).
_FLOAT8_MULTIPLE = 16
_INT8_MULTIPLE = 8
_INT8_LEAST_ROWS = 17

# Matrices or batches of them, m x k and k x n, in any layout; then the inputs of the absorbed links; then an
# output, a new one if that is None.
Multiply = Callable[[Tensor, Tensor, Sequence[Tensor], Tensor | None], Tensor]


@dataclass(frozen=True)
class LibraryProduct:
    """A library's product of two matrices. `called` names the function.

    The call includes the first `absorbed` links of the epilogue, with an input each. Its output is of type `made`;
    `writes`: the library writes to a given one.
    """

    called: str
    made: torch.dtype
    multiply: Multiply
    writes: bool = True
    absorbed: int = 0


def product(workload: Workload, links: Sequence[str]) -> LibraryProduct:
    """The library's product for the operands of a matmul and the first links of its epilogue."""
    operand, (made_by_kernel,) = workload.contracted[0], workload.outputs
    output = made_by_kernel.dtype
    # Epilogues are not computed in 8 bits.
    made = torch.bfloat16 if links and output in FLOAT8 else torch_dtype(output)
    *outer, m, n = made_by_kernel.shape
    k = workload.stages[0].points // (m * n * math.prod(outer))
    batched = bool(outer)
    if operand in FLOAT8:
        if operand != "float8_e5m2" and n % _FLOAT8_MULTIPLE == k % _FLOAT8_MULTIPLE == 0:
            return _scaled(made, links, workload.precision == "fast", batched)
        return _converted(torch.bfloat16, made)
    if is_integer(operand):
        if n % _INT8_MULTIPLE == k % _INT8_MULTIPLE == 0 and m >= _INT8_LEAST_ROWS:
            return _of_integers(batched)
        return _converted(torch.float32, torch.int32)
    if links[:1] == ("bias",) and not batched and torch_dtype(operand) == made:
        return _with_bias(made)
    # An output narrower than the operands is converted after the product.
    return _widening(made) if made == torch.float32 != torch_dtype(operand) else _plain(torch_dtype(operand))


def _plain(made: torch.dtype) -> LibraryProduct:
    def multiply(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        return torch.matmul(a, b, out=out)

    return LibraryProduct("torch.matmul", made, multiply)


def _with_bias(made: torch.dtype) -> LibraryProduct:
    def multiply(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        return torch.addmm(extra[0], a, b, out=out)

    return LibraryProduct("torch.addmm", made, multiply, absorbed=1)


def _widening(made: torch.dtype) -> LibraryProduct:
    """16-bit operands and their product in float32, which PyTorch has on GPUs only."""

    def multiply(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        if a.device.type != "cuda":
            return torch.matmul(a.to(made), b.to(made), out=out)
        return (torch.mm if a.ndim == 2 else torch.bmm)(a, b, out_dtype=made, out=out)

    return LibraryProduct("torch.mm(out_dtype=float32)", made, multiply)


def _scaled(made: torch.dtype, links: Sequence[str], fast: bool, batched: bool) -> LibraryProduct:
    """torch._scaled_mm, with scales by row and column if the epilogue begins with them, and with a bias if one follows.

    It takes a by rows and b by columns; operands in other layouts are copied.
    """
    # The kernels that scale rows and columns write bfloat16 only.
    by_rows = tuple(links[:2]) == ("rowscale", "colscale") and made == torch.bfloat16
    absorbed = 2 if by_rows else 0
    biased = links[absorbed : absorbed + 1] == ("bias",) and made in (torch.bfloat16, torch.float16)

    def scales(a: Tensor, extra: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return (extra[0][:, None], extra[1][None, :]) if by_rows else (_one(a.device), _one(a.device))

    def multiply(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        bias = extra[absorbed] if biased else None
        return torch._scaled_mm(
            _by_rows(a), _by_rows(b.mT).mT, *scales(a, extra), bias, out_dtype=made, use_fast_accum=fast, out=out
        )

    return _each("torch._scaled_mm", made, multiply, absorbed + biased, batched)


def _of_integers(batched: bool) -> LibraryProduct:
    def multiply(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        return torch._int_mm(a, b, out=out)

    return _each("torch._int_mm", torch.int32, multiply, 0, batched)


def _converted(computed: torch.dtype, made: torch.dtype) -> LibraryProduct:
    """The fallback for operands that the library does not support: copies of them in a wider type."""

    def multiply(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        return torch.matmul(a.to(computed), b.to(computed)).to(made)

    called = f"torch.matmul of copies in {str(computed).removeprefix('torch.')}"
    return LibraryProduct(called, made, multiply, writes=False)


def _each(called: str, made: torch.dtype, multiply: Multiply, absorbed: int, batched: bool) -> LibraryProduct:
    """The product; for a batch one call each, where the library multiplies no batches of this type."""
    if not batched:
        return LibraryProduct(called, made, multiply, absorbed=absorbed)

    def multiply_each(a: Tensor, b: Tensor, extra: Sequence[Tensor], out: Tensor | None) -> Tensor:
        if out is None:
            return torch.stack([multiply(x, y, extra, None) for x, y in zip(a, b, strict=True)])
        for x, y, z in zip(a, b, out, strict=True):
            multiply(x, y, extra, z)
        return out

    return LibraryProduct(f"{called} for each of the batch", made, multiply_each, absorbed=absorbed)


def _by_rows(matrix: Tensor) -> Tensor:
    return matrix if matrix.stride(-1) == 1 else matrix.contiguous()


@lru_cache(maxsize=16)
def _one(device: torch.device) -> Tensor:
    """A scale of 1, sent to each device once."""
    return torch.ones((), device=device)
