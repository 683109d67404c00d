"""The difference of two keys: the members that differ, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import autosched
from autosched.replaying.key_difference import key_difference, version_difference
from log_records import record
from search_spaces import Workload, ops, target_named
from tuning_logs import OwnKernel, TuningRecord

H200 = target_named("h200")
A, B = torch.randn(32, 48), torch.randn(48, 16)
OWN = OwnKernel("kernel", "0f", (("n", 64), ("causal", True)), (("x", "float32"),))


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def traced(*inputs: torch.Tensor, function: Callable[..., torch.Tensor] = product) -> Workload:
    (workload,) = autosched.trace(function, *inputs, numerics="eager").workloads
    return workload


def differing(wanted: Workload, there: Workload | None = None) -> tuple[str, ...]:
    return key_difference(record(workload=there or traced(A, B)), wanted, H200, "cold")


def test_the_same_key_differs_in_nothing_whatever_its_name() -> None:
    assert differing(ops.matmul(32, 16, 48)) == ()


def test_a_traced_workload_differs_in_shape() -> None:
    (shape,) = differing(traced(A, torch.randn(48, 24)))
    assert shape.startswith("shape: 32×16")
    assert ", wanted 32×24" in shape


@pytest.mark.parametrize(
    ("wanted", "member"),
    [
        (
            traced(A.bfloat16(), B.bfloat16()),
            "dtype: float32, float32 to float32, wanted bfloat16, bfloat16 to bfloat16",
        ),
        (traced(A, torch.randn(16, 48).T), "layout: "),
        (replace(traced(A, B), precision="tf32"), "accuracy: ieee, wanted tf32"),
        (traced(A, B, function=lambda a, b: (a @ b) * 2), "computation: "),
        (traced(A, function=lambda a: a.sum(1)), "operator: "),
    ],
    ids=["dtype", "layout", "accuracy", "computation", "operator"],
)
def test_another_member_of_a_traced_workload_is_told(wanted: Workload, member: str) -> None:
    (told,) = differing(wanted)
    assert told.startswith(member)


def test_constants_are_told() -> None:
    op = traced(A, B)
    constant = replace(op, inputs=tuple(replace(t, constant=n == 1) for n, t in enumerate(op.inputs)))
    assert differing(constant) == ("constants: none, wanted [1]",)


def test_another_device_and_policy_are_told() -> None:
    told = key_difference(record(), record().workload, target_named("a100"), "hot")
    assert [text.partition(":")[0] for text in told] == ["device", "compute capability", "timing"]


def test_a_kernel_of_the_users_own_differs_in_values_and_types() -> None:
    there = replace(record(), subject=OWN)
    wanted = replace(OWN, values=(("n", 32), ("causal", True)), types=(("x", "float16"),))
    assert key_difference(there, wanted, H200, "cold") == ("n: 64, wanted 32", "x: float32, wanted float16")


def test_versions_are_compared_where_both_are_told() -> None:
    made: TuningRecord = record(generator="g1")
    assert version_difference(made, "g2", {"python": "3.12", "driver": "580"}) == (
        "generator: g1, wanted g2",
        "python: 3.11, wanted 3.12",
    )
    assert version_difference(made, "g1", {"python": "3.11"}) == ()
