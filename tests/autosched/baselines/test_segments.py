"""PyTorch's functions for operators on segments compute what these do."""

from __future__ import annotations

import pytest
import torch

from autosched.baselines.baselines import baseline
from autosched.checking.reference import evaluate
from search_spaces import ops

ENDS = torch.tensor([3, 3, 16], dtype=torch.int32)


@pytest.mark.parametrize("n", [8, 7])
@pytest.mark.parametrize("ragged", ["m", "k"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_a_grouped_product(layout: str, ragged: str, n: int) -> None:
    workload = ops.grouped_matmul(3, 16, n, 16, layout=layout, ragged=ragged)
    inputs = [torch.randn(t.shape).bfloat16() for t in workload.inputs[:2]] + [ENDS]
    known = baseline(workload)
    assert known is not None
    (expected,) = evaluate(workload, inputs)
    torch.testing.assert_close(known.eager(*inputs).double(), expected, rtol=1e-2, atol=1e-2)


def test_sums_of_segments() -> None:
    workload = ops.segment_sum(16, 5, 3, dtype="bfloat16")
    x, offsets = torch.randn(16, 5).bfloat16(), torch.tensor([0, 3, 3, 16])
    known = baseline(workload)
    assert known is not None
    (expected,) = evaluate(workload, [x, offsets])
    torch.testing.assert_close(known.eager(x, offsets).double(), expected, rtol=1e-5, atol=1e-5)
