"""What CUDA C++ can make kernels of is told before anything is compiled: Volta's limits are rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autosched
from autosched import trace
from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.source import launched
from search_spaces import EmptySearchSpaceError, Target, Workload, ops, target_named
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.schedules.space import SearchSpace

CUDA, V100 = CudaBackend(), target_named("v100")


def space_of(workload: Workload, target: Target = V100) -> SearchSpace:
    return spaces.build(workload, target, [CUDA])


@pytest.mark.parametrize(
    ("dtype", "target", "reason"),
    [
        ("bfloat16", "v100", "v100 has no matrix instructions for bfloat16; expected float16 or float32"),
        ("bfloat16", "t4", "t4 has no matrix instructions for bfloat16"),
        ("tf32", "v100", "v100 has no matrix instructions for tf32; expected float32"),
        ("float8_e4m3fn", "a100", "a100 has no matrix instructions for float8_e4m3fn; expected float16"),
    ],
)
def test_a_type_that_dots_of_the_device_lack_is_refused_with_what_there_is(
    dtype: str, target: str, reason: str
) -> None:
    with pytest.raises(EmptySearchSpaceError, match=reason):
        space_of(ops.matmul(64, 64, 64, dtype=dtype), target_named(target))


def test_a_type_that_is_only_converted_needs_no_dots_of_it() -> None:
    assert space_of(ops.softmax(64, 100, dtype="bfloat16")).seeds()


def test_volta_has_neither_descriptors_nor_clusters_nor_producers() -> None:
    space, rng = space_of(ops.matmul(512, 512, 512, dtype="float16")), np.random.default_rng(0)
    for schedule in (space.sample(rng) for _ in range(40)):
        for kernel in schedule.program.kernels:
            moves = [s for s in statements(kernel.body) if isinstance(s, Load | Store)]
            assert {s.via for s in moves} == {"pointer"}
            assert (kernel.launch.num_ctas, kernel.launch.producer_warps) == (1, 0)


@pytest.mark.parametrize("target", ["v100", "t4", "a100"])
@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(512, 512, 512, dtype="float16"),
        ops.matmul(512, 512, 512, layout="tt"),
        ops.matmul(512, 512, 512, dtype="int8", epilogue="bias_relu", out_dtype="float16"),
    ],
    ids=lambda w: dict(w.arguments).get("dtype", ""),
)
def test_schedules_of_a_product_fit_into_the_shared_memory_of_a_block(workload: Workload, target: str) -> None:
    """96 KiB on a V100, by opt-in; 64 KiB on a T4."""
    device = target_named(target)
    space, rng = space_of(workload, device), np.random.default_rng(1)
    drawn = [*space.seeds(), *(space.sample(rng) for _ in range(12))]
    assert space.seeds()
    needed = [max(k.shared_bytes for k in launched(s.program, device)) for s in drawn]
    assert max(needed) <= device.shared_memory_bytes


def test_tuning_for_a_type_that_the_device_lacks_says_so_before_anything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autosched.machine.devices.resolve", lambda target: V100)
    with pytest.raises(EmptySearchSpaceError, match="no matrix instructions for bfloat16"):
        autosched.tune(ops.matmul(64, 64, 64, dtype="bfloat16"), "v100", 4)


def test_a_tile_multiplied_by_itself_along_one_axis_is_refused_with_the_reason() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q.permute(2, 1, 0)[:, :, None] @ k.mT, -1) @ k

    given = torch.empty(4, 2, 3, dtype=torch.float16), torch.empty(3, 2, 17, 4, dtype=torch.float16)
    target = target_named("h200")
    for workload in trace(attention, *given).for_target(target).workloads:
        space = spaces.build(workload, target)
        rng = np.random.default_rng(438)
        assert all(space.why_illegal(space.sample(rng)) is None for _ in range(8))
