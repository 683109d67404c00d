"""Operators of any size: which size the tensors of a call have, and whose schedule a size takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import best_spaces
from autosched.kernels.adapted_kernel import in_order_for
from autosched.kernels.dynamic_operator import DynamicOperator, DynamicOperatorKernel, dynamic
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from schedule_checks import tried
from search_spaces import InputError, Schedule, Workload, ops
from untuned import untuned_kernel

CPU = devices.cpu_target()


def tokens(*points: int) -> DynamicOperator:
    return dynamic(lambda m: ops.matmul(m, 8, 4), points)


def test_the_next_larger_size_comes_first_and_smaller_ones_last() -> None:
    assert in_order_for(20, (1, 16, 64, 256)) == [64, 256, 16, 1]
    assert in_order_for(300, (1, 16, 64, 256)) == [256, 64, 16, 1]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_size_is_that_of_the_dimension_that_changes(size: int) -> None:
    assert tokens(4, 16).size_of([torch.empty(size, 4), torch.empty(4, 8)]) == size
    heads = dynamic(lambda m: ops.softmax(8 * m, 32), (2, 4))
    assert heads.size_of([torch.empty(8 * size, 32)]) == size


def test_dimensions_that_are_not_linear_tell_no_size() -> None:
    squares = dynamic(lambda m: ops.matmul(m * m, m, 4), (1, 2, 4))
    assert squares.size_of([torch.empty(49, 4), torch.empty(4, 7)]) == 7
    with pytest.raises(InputError, match="1 at 4, 2 at 8, 2 at 12; expected one that grows evenly"):
        dynamic(lambda m: ops.softmax(-(-m // 7), 4), (4, 8, 12))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([torch.empty(12, 32)], r"dimension 0 of x is 12; expected 8 · size \+ 0"),
        ([torch.empty(32)], r"expected 1 tensors, as x\[32, 32\] at 4"),
        ([], "expected 1 tensors"),
        ([torch.empty(0, 32)], "dimension 0 of x is 0"),
    ],
)
def test_tensors_of_no_size_are_refused(tensors: list[torch.Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dynamic(lambda m: ops.softmax(8 * m, 32), (2, 4)).size_of(tensors)


def powers(m: int) -> Workload:
    return ops.softmax(m * m, 32)


@pytest.mark.parametrize(
    ("of_size", "points", "message"),
    [
        (powers, (4,), "two sizes at least"),
        (powers, (4, 4), "two sizes at least"),
        (powers, (0, 4), "size 0; expected a number from 1"),
        (powers, (1, 2, 4), "1 at 1, 4 at 2, 16 at 4; expected one that grows evenly"),
        (lambda m: ops.softmax(4, 32), (1, 2), "no dimension of an input changes"),
        (lambda m: m, (1, 2), "returned 1; expected an operator"),
    ],
)
def test_what_has_no_size_is_refused(of_size: Any, points: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dynamic(of_size, points)


def test_sizes_between_the_points_belong_to_the_workloads() -> None:
    operator = tokens(4, 16).with_between([8])
    assert operator.sizes == (4, 8, 16)
    assert [w.outputs[0].shape[0] for w in operator.workloads] == [4, 8, 16]
    assert operator.latency_s({w.key: 1.0 for w in operator.workloads}) == 3.0


def layer(m: int) -> Workload:
    return ops.matmul(m, 24, 40, constant="b")


def chosen(m: int, prepares: bool, unlike: Sequence[Kernel] = ()) -> Kernel:
    """A kernel that prepares its constant or not; in other memory than that of others."""
    space = best_spaces.build(layer(m), CPU)
    known = [workspaces(kernel.schedule) for kernel in unlike]
    found = (s for s in tried(space, 400, 0) if bool(s.program.prepared) is prepares and workspaces(s) not in known)
    return untuned_kernel(next(found), layer(m), CPU)


def workspaces(schedule: Schedule) -> list[tuple[int, ...]]:
    """The shapes of what it prepares."""
    return [schedule.program.buffer(name).shape for name, _ in schedule.program.prepared]


def test_a_weight_is_prepared_for_the_kernels_of_all_sizes() -> None:
    """One of them reads it in a layout of its own, one where it lies, and one was not in the table at first."""
    kernels = {layer(m).key: chosen(m, m == 48) for m in (20, 48)}
    any_size = DynamicOperatorKernel(dynamic(layer, (20, 48)), kernels)
    weight = torch.randn(40, 24)
    ready, later = any_size.prepare(weight), chosen(33, True)
    for _ in range(2):
        x = torch.randn(33, 40)
        torch.testing.assert_close(later(x, ready.of(later)), x @ weight, rtol=1e-4, atol=1e-4)
        for m in (20, 48):
            x = torch.randn(m, 40)
            torch.testing.assert_close(any_size(x, ready), x @ weight, rtol=1e-4, atol=1e-4)
        weight.data.mul_(2)
        ready.update()


def test_kernels_that_read_one_layout_share_its_memory() -> None:
    """Two of the table do, and one of a size between them; the largest reads another layout."""
    first = chosen(20, True)
    kernels = {layer(20).key: first, layer(48).key: chosen(48, True), layer(64).key: chosen(64, True, [first])}
    any_size = DynamicOperatorKernel(dynamic(layer, (20, 48, 64)), kernels)
    weight = torch.randn(40, 24)
    ready = any_size.prepare(weight)
    for _ in range(2):
        for m in (64, 48, 33, 20):
            x = torch.randn(m, 40)
            torch.testing.assert_close(any_size(x, ready), x @ weight, rtol=1e-4, atol=1e-4)
        weight.data.mul_(2)
        ready.update()
    of_first, *shared, other = ([*ready.of(any_size.at(m)).memories.values()] for m in (20, 33, 48, 64))
    for memories in shared:
        assert all(a is b for a, b in zip(of_first, memories, strict=True))
    assert not any(a is b for a in of_first for b in other)


def test_a_weight_that_is_no_constant_is_not_prepared() -> None:
    kernels = {layer(m).key: chosen(m, False) for m in (20, 48)}
    with pytest.raises(InputError, match="the constant 'a'"):
        DynamicOperatorKernel(dynamic(layer, (20, 48)), kernels).prepare(torch.randn(20, 40), "a")
