"""Random inputs that are bounds of segments, and columns of blocks: what the workload means them for."""

from __future__ import annotations

import pytest

from autosched.checking.random_inputs import random_inputs
from search_spaces import Workload, ops

CUT: dict[str, tuple[Workload, int, int]] = {
    # The number of the input, and the positions that it cuts.
    "ends of rows": (ops.grouped_matmul(5, m=40, n=8, k=16), 2, 40),
    "ends of k": (ops.grouped_matmul(5, m=8, n=8, k=40, ragged="k"), 2, 40),
    "offsets": (ops.segment_sum(40, 8, 5), 1, 40),
    "rows of blocks": (ops.block_sparse_matmul(32, 8, 64, blocks=12, block=8), 1, 12),
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_sorted_and_cut_all_positions(name: str, seed: int) -> None:
    workload, number, positions = CUT[name]
    bounds = random_inputs(workload, seed)[number].tolist()
    assert bounds == sorted(bounds)
    assert bounds[0] >= 0
    assert bounds[-1] == positions


def test_columns_of_blocks_are_within_the_matrix() -> None:
    columns = random_inputs(ops.block_sparse_matmul(32, 8, 64, blocks=500, block=8), seed=0)[2]
    assert (int(columns.min()), int(columns.max())) == (0, 7)
