"""Random arguments of traced functions that are bounds of segments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.tracing.callables.random_arguments import random_arguments
from autosched.tracing.operators.bounds import Bounds

X = torch.zeros(16, 4)
A, B = torch.zeros(16, 16, dtype=torch.bfloat16), torch.zeros(3, 16, 8, dtype=torch.bfloat16)
INDEX = torch.zeros(3, dtype=torch.int64)


def offsets_of(lengths: Tensor) -> Tensor:
    return F.pad(lengths.cumsum(0), (1, 0))


KNOWN: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, Bounds]] = {
    "ends": (lambda i: F.grouped_mm(A, B, offs=i), INDEX.int(), Bounds("ends", 16)),
    "ends in k, at whole vectors": (lambda i: F.grouped_mm(A, A, offs=i), INDEX.int(), Bounds("ends", 16, 8)),
    "of rows and of k": (
        lambda i: F.grouped_mm(A, B, offs=i)[:, 0] + F.grouped_mm(A, A, offs=i)[0, 0],
        INDEX.int(),
        Bounds("ends", 16, 8),
    ),
    "converted": (lambda i: F.grouped_mm(A, B, offs=i.int()), INDEX, Bounds("ends", 16)),
    "a part of offsets": (lambda i: F.grouped_mm(A, B, offs=i[1:]), torch.zeros(4).int(), Bounds("offsets", 16)),
    "summed lengths": (lambda i: F.grouped_mm(A, B, offs=i.cumsum(0).int()), INDEX, Bounds("lengths", 16)),
    "offsets of lengths": (
        lambda i: torch.segment_reduce(X, "sum", offsets=offsets_of(i)),
        INDEX,
        Bounds("lengths", 16),
    ),
    "lengths": (lambda i: torch.segment_reduce(X, "sum", lengths=i), INDEX, Bounds("lengths", 16)),
    "of every position": (lambda i: torch.bucketize(torch.arange(16), i, right=True), INDEX, Bounds("even", 16)),
    "in order": (lambda b: torch.bucketize(X, b), torch.zeros(5), Bounds("sorted")),
}


@pytest.mark.parametrize("name", KNOWN)
def test_bounds_are_known_by_what_reads_them(name: str) -> None:
    function, argument, wanted = KNOWN[name]
    traced = trace(function, argument)
    assert list(traced.bounds.values()) == [wanted]
    assert not traced.on_trust
    for seed in range(4):
        (made,) = random_arguments(traced, seed)
        assert made.dtype == argument.dtype
        sums = made.cumsum(0) if wanted.kind == "lengths" else made
        assert torch.equal(sums, sums.sort().values)
        if wanted.size is not None:
            assert int(sums[-1]) == wanted.size
            assert int(made.min()) >= 0
            assert not (made % wanted.step).any()


@pytest.mark.parametrize(
    "function",
    [
        lambda i: F.grouped_mm(A, B, offs=i * 2),
        lambda i: F.grouped_mm(A, B, offs=i.flip(0)),
        lambda i: torch.segment_reduce(X, "sum", lengths=i.cumsum(0)),
        lambda i: (F.grouped_mm(A, B, offs=i), torch.segment_reduce(X, "sum", lengths=i)),
    ],
    ids=["scaled", "turned", "summed lengths as lengths", "of two kinds"],
)
def test_what_is_computed_otherwise_is_taken_on_trust(function: Callable[[Tensor], Tensor]) -> None:
    assert trace(function, INDEX.int()).on_trust == {"i"}
