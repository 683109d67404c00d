"""CUDA kernels compile for every architecture without a GPU: a sample of `compile.py`."""

from __future__ import annotations

import itertools

import pytest

from autosched import ops
from chained_workloads import attention
from figures.compile import TARGETS, compiled, schedules
from scanned_workloads import SCANS
from search_spaces import Workload, target_named

# Without tensor cores one text is compiled for all: these structures in turn. Of dots every architecture has its own.
PLAIN = (
    ops.pointwise(100, 256, "bias_silu_residual", dtype="bfloat16"),
    ops.softmax(100, 3000, dtype="float16"),
    SCANS[0],
    ops.matmul(128, 64, 128),
)


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        *zip(itertools.cycle(PLAIN), TARGETS, strict=False),
        *((attention(2, 64, 128, 32), target) for target in TARGETS),
    ],
    ids=lambda given: given if isinstance(given, str) else given.name,
)
def test_a_structure_compiles(workload: Workload, target: str) -> None:
    device = target_named(target)
    made = compiled(next(schedules(workload, device, 1)), device)
    assert not made.refused
    assert 0 < made.registers <= 255


@pytest.mark.parametrize(("target", "unit"), [("v100", "HMMA.884"), ("t4", "HMMA"), ("a100", "HMMA"), ("l40s", "HMMA")])
def test_a_product_is_computed_by_the_tensor_cores_of_its_architecture(target: str, unit: str) -> None:
    device = target_named(target)
    assert compiled(next(schedules(ops.matmul(256, 256, 256, dtype="float16"), device, 1)), device).dots == unit


@pytest.mark.parametrize("target", ["t4", "a100", "h200"])
def test_a_product_of_bytes_is_computed_by_tensor_cores(target: str) -> None:
    device = target_named(target)
    made = compiled(next(schedules(ops.matmul(256, 256, 256, dtype="int8"), device, 1)), device)
    assert made.dots in ("IMMA", "wgmma")
