"""Random workloads in CUDA C++: whatever schedule is drawn of them compiles, for any architecture."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import ops
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.cuda.backend import CudaBackend
from random_workloads import random_workload
from search_spaces import SearchSpace, Workload, target_named

CUDA = CudaBackend()
TARGETS = ("v100", "t4", "a100", "l4", "h200", "b200", "rtx5090")


def space_of(workload: Workload, target: str) -> SearchSpace:
    return spaces.build(workload, target_named(target), [CUDA])


def compile_one(space: SearchSpace, seed: int = 0) -> None:
    schedule = space.sample(np.random.default_rng(seed))
    build(schedule.program, schedule.one_line, space.target, CUDA)


@pytest.mark.parametrize("seed", range(7))
def test_what_is_drawn_of_a_random_workload_compiles(seed: int) -> None:
    compile_one(space_of(random_workload(seed), TARGETS[seed]), seed)


def test_sixteen_bytes_are_moved_at_once_beside_wider_types() -> None:
    """As many elements of what is wider would be no vector."""
    thin = ops.matmul(8, 4096, 1024, dtype="float8_e4m3fn", layout="tt", epilogue="residual")
    compile_one(space_of(thin, "h200").restricted("thin_contraction", wide=[(64, 64)], k=[(16, 64)]))
    compile_one(space_of(random_workload(32), "a100").restricted("pointwise", unrolled_columns=[8]))
