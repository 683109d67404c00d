"""Folds that depend on each other share a walk: as right as walks of their own, whatever the values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import best_spaces
from autosched import Schedule, Target, Workload, ops, trace
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.machine.element_types import torch_dtype
from dependent_workloads import (
    IN_ONE_WALK,
    IN_SEVERAL,
    correlation,
    expected_under_softmax,
    log_sum_exp,
    place_of_extreme,
    variance,
)
from row_kinds import of_kind
from schedule_checks import HERE
from scheduled_tensors import interpreted, launched_on
from search_spaces import InputError, target_named
from search_spaces.anchors.rows.folds.running_folds import groups
from search_spaces.anchors.rows.row_parts import rows_on
from structured_workloads import normalised

H200 = target_named("h200")


def name_of(workload: Workload) -> str:
    return f"{workload.name}-{'x'.join(map(str, workload.inputs[0].shape))}"


def walks(workload: Workload, online: bool = True) -> int:
    return len(groups(rows_on(workload, H200), online))


def online(workload: Workload, target: Target, number: int, seed: int = 0) -> list[Schedule]:
    """So many schedules of every kind in which dependent folds can share a walk, where they do."""
    space, rng = best_spaces.build(workload, target), np.random.default_rng(seed)
    found: list[Schedule] = []
    for kind in ("streamed", "shared"):
        with suppress(InputError):
            part = of_kind(space, kind, online=(True,))
            found += list(dict.fromkeys(part.sample(rng) for _ in range(20 * number)))[:number]
    return found


def run(schedule: Schedule, workload: Workload, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """On this machine, compiled."""
    backend, program = LlvmBackend(), schedule.program
    launcher = backend.load(backend.compile(backend.render(program, "", HERE), program, HERE), program)
    out = [torch.full(t.shape, 77, dtype=torch_dtype(t.dtype)) for t in workload.outputs]
    launcher(launched_on(workload, inputs, *out))
    launcher.unload()
    return out


def by_numpy(schedule: Schedule, workload: Workload, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.from_numpy(v) for v in interpreted(workload, schedule.program, [x.double() for x in inputs])]


@pytest.mark.parametrize("workload", IN_ONE_WALK, ids=name_of)
def test_what_a_rule_moves_shares_a_walk(workload: Workload) -> None:
    assert walks(workload) == 1
    assert walks(workload, online=False) == 2


@pytest.mark.parametrize(("workload", "expected"), IN_SEVERAL)
def test_what_no_rule_moves_waits_for_a_walk_of_its_own(workload: Workload, expected: int) -> None:
    assert walks(workload) == expected


TRACED = {
    "log-sum-exp": lambda x: x.logsumexp(1),
    "log-softmax": lambda x: x.log_softmax(1),
    "entropy": lambda x: -(x.softmax(1) * x.log_softmax(1)).sum(1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (700,)),
    "standard deviation": lambda x: x.std(1),
    "variance written out": lambda x: ((x - x.mean(1, keepdim=True)) ** 2).mean(1),
    "maximum and its place": lambda x: x.max(1),
    "place of the minimum": lambda x: x.bfloat16().argmin(1),
}
# The logarithm of the sum is needed whole, within another sum.
WALKS = {"entropy": 2}


@pytest.mark.parametrize("name", TRACED)
def test_traced_functions_take_one_walk_as_pytorch_breaks_them_down(name: str) -> None:
    (workload,) = trace(TRACED[name], torch.randn(5, 700)).workloads
    assert walks(workload) == WALKS.get(name, 1)


def test_a_maximum_that_only_quotients_show_starts_from_a_finite_number() -> None:
    def start(function: Callable[[torch.Tensor], torch.Tensor]) -> float | None:
        (workload,) = trace(function, torch.randn(5, 700)).workloads
        return groups(rows_on(workload, H200), True)[0].folds[0].start

    lowest = torch.finfo(torch.float32).min
    assert start(lambda x: x.softmax(1)) == start(lambda x: x.log_softmax(1)) == lowest
    assert start(lambda x: x.logsumexp(1)) is None


@pytest.mark.parametrize("workload", IN_ONE_WALK, ids=name_of)
def test_programs_for_a_gpu_compute_the_reference(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=3)
    expected = expect(workload, inputs)
    for schedule in online(workload, H200, 2):
        for got, right in zip(by_numpy(schedule, workload, inputs), expected, strict=True):
            assert error_ratio(got, right) <= 1, str(schedule)


@pytest.mark.parametrize("workload", IN_ONE_WALK, ids=name_of)
def test_programs_for_a_cpu_compute_the_reference(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=3)
    expected = expect(workload, inputs)
    for schedule in online(workload, HERE, 4):
        for got, right in zip(run(schedule, workload, inputs), expected, strict=True):
            assert error_ratio(got, right) <= 1, str(schedule)


SMALL = (
    log_sum_exp(5, 300, finite=True),
    expected_under_softmax(3, 330),
    correlation(4, 200),
    variance({"c": 40, "r": 33}, "r", "c", "cr"),
    place_of_extreme(5, 300),
)


@pytest.mark.parametrize("workload", SMALL, ids=name_of)
def test_printed_kernels_agree_with_the_reference_under_tritons_interpreter(workload, triton_interpreter) -> None:
    inputs = random_inputs(workload, seed=3)
    expected = expect(workload, inputs)
    for schedule in online(workload, H200, 3):
        source = TritonBackend().render(schedule.program, "", H200)
        outputs = triton_interpreter.computed(source, workload, schedule.program, inputs)
        for got, right in zip(outputs, expected, strict=True):
            assert error_ratio(torch.from_numpy(got), right) <= 1, str(schedule)


def hostile(rows: int, columns: int) -> torch.Tensor:
    """Rows with infinities, NaN and huge values at either end, or all over."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    x[1, 0], x[2, -1], x[3, columns // 2], x[4, 3] = torch.inf, torch.nan, -torch.inf, torch.inf
    x[4, -2], x[7, : columns - 3], x[8, 5:] = -torch.inf, -torch.inf, -torch.inf
    x[5], x[6], x[9], x[10] = -torch.inf, torch.inf, torch.finfo(torch.float32).min, -1e30
    x[11, ::7], x[11, 1::2] = torch.finfo(torch.float32).min, -torch.inf
    return x


def with_schedule(schedule: Schedule, message: str) -> str:
    return f"{message}\n{schedule}"


def assert_like_eager(workload: Workload, inputs: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for schedule in online(workload, H200, 2):
        for got, right in zip(by_numpy(schedule, workload, inputs), expected, strict=True):
            torch.testing.assert_close(got.to(right), right, equal_nan=True, msg=partial(with_schedule, schedule))
    for schedule in online(workload, HERE, 3):
        for got, right in zip(run(schedule, workload, inputs), expected, strict=True):
            torch.testing.assert_close(got.to(right), right, equal_nan=True, msg=partial(with_schedule, schedule))


def test_what_is_not_finite_comes_out_of_a_log_sum_exp_as_in_pytorch() -> None:
    x = hostile(12, 2100)
    assert_like_eager(log_sum_exp(12, 2100, finite=True), [x], [x.logsumexp(1)])
    # Written out, a row of infinities is NaN.
    top = x.amax(1)
    assert_like_eager(log_sum_exp(12, 2100), [x], [(x - top[:, None]).exp().sum(1).log() + top])


def test_what_is_not_finite_comes_out_of_softmax_as_in_pytorch() -> None:
    x = hostile(12, 2100)
    assert_like_eager(ops.softmax(12, 2100), [x], [x.softmax(1)])


def test_places_and_softmax_of_what_is_not_finite_are_those_of_pytorch() -> None:
    x = hostile(12, 2100)
    expected = [x.argmax(1), x.amax(1), x.softmax(1)]
    assert_like_eager(place_of_extreme(12, 2100, softmax=True), [x], expected)
    assert_like_eager(place_of_extreme(12, 2100, "min"), [x], [x.argmin(1), x.amin(1)])


def test_the_first_of_equal_extremes_is_found() -> None:
    x = torch.randint(0, 4, (12, 2100), generator=torch.Generator().manual_seed(0)).float()
    assert_like_eager(place_of_extreme(12, 2100), [x], [torch.from_numpy(x.numpy().argmax(1)), x.amax(1)])


def test_a_variance_of_what_is_not_finite_is_nan() -> None:
    x = hostile(12, 2100)[:9]
    workload = variance({"r": 9, "c": 2100}, "r", "c", "rc")
    for schedule in online(workload, H200, 4):
        spread, _ = by_numpy(schedule, workload, [x])
        assert spread.isnan().tolist() == [False, *[True] * 8], str(schedule)


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float(((got.double() - exact).abs() / exact).max())


@pytest.mark.parametrize(("mean", "axes"), [(0.0, "rc"), (1e5, "rc"), (1e4, "cr")])
def test_a_variance_in_one_walk_is_as_right_as_in_two_however_far_the_mean_is_from_0(mean: float, axes: str) -> None:
    extents = {"r": 6, "c": 5000}
    workload = variance(extents, "r", "c", axes)
    shape = [extents[a] for a in axes]
    x = mean + torch.randn(shape, generator=torch.Generator().manual_seed(0))
    exact = x.double().var(axes.index("c"))
    for target, computed in ((H200, by_numpy), (HERE, run)):
        space = best_spaces.build(workload, target)
        for schedule in online(workload, target, 4, seed=1):
            apart = space.bind(replace(schedule, values=tuple({**dict(schedule.values), "online": False}.items())))
            ours, theirs = (relative_error(computed(s, workload, [x])[0], exact) for s in (schedule, apart))
            # That of a mean that is right to half a unit; and as sums in another order round otherwise.
            allowed = 4 * max(theirs, (mean * 2.0**-24) ** 2) + 32 * 2.0**-24
            assert ours <= allowed, f"{schedule} {ours} {theirs}"


def test_a_layer_norm_about_a_large_mean_is_right_in_one_walk() -> None:
    workload = normalised({"r": 5, "c": 2500}, "r", "c", "rc")
    x = 1e4 + torch.randn(5, 2500, generator=torch.Generator().manual_seed(0))
    exact = torch.nn.functional.layer_norm(x.double(), (2500,))
    for schedule in online(workload, H200, 4):
        out, mean, _ = by_numpy(schedule, workload, [x])
        # The mean is right to a few units of 2^-11, half a unit of 1e4, and the deviation is 1; the weight is 2.
        torch.testing.assert_close(out.double() / 2, exact, rtol=1e-4, atol=4 * 2.0**-11)
        torch.testing.assert_close(mean.double(), x.double().mean(1), rtol=2.0**-22, atol=0.0)


def test_programs_without_a_column_of_their_own_change_nothing() -> None:
    """Of 4 programs that share 5 pieces of a row, the last one has none."""
    x = 3.0 + torch.randn(2, 5 * 1024, generator=torch.Generator().manual_seed(0))
    for workload, right in (
        (variance({"r": 2, "c": 5120}, "r", "c", "rc"), x.var(1)),
        (log_sum_exp(2, 5120), x.logsumexp(1)),
        (place_of_extreme(2, 5120), x.argmax(1)),
    ):
        space = best_spaces.build(workload, H200)
        shared = of_kind(space, "shared", split=(4,), online=(True,), columns=((5, 1024),))
        schedule = shared.sample(np.random.default_rng(0))
        torch.testing.assert_close(by_numpy(schedule, workload, [x])[0].to(right), right)


@pytest.mark.parametrize("workload", [SMALL[1], SMALL[2], SMALL[4]], ids=name_of)
def test_kernels_compile_for_hopper(workload: Workload) -> None:
    backend = TritonBackend()
    for schedule in online(workload, H200, 1):
        assert backend.compile(backend.render(schedule.program, "", H200), schedule.program, H200)
