"""What trials of `autosched.autotune` leave behind: arguments as they were, and only right configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import autosched
from fake_kernels import SCALE, FakeKernel, ListedFake, records, tensors
from search_spaces import AutoschedError

pytestmark = pytest.mark.usefixtures("instant_timing")


def test_a_kernel_that_changes_its_arguments_is_applied_once(log: Path) -> None:
    def accumulate(x: torch.Tensor, total: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        total += x
        x *= 3

    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(accumulate))
    x, total, n = tensors()
    tuned[(1,)](x, total, n)
    assert torch.equal(x, torch.arange(256.0) * 3)
    assert torch.equal(total, torch.arange(256.0))
    assert {r.measurement.status for r in records(log)} == {"ok"}


def test_what_lies_beside_an_argument_in_memory_is_put_back_too(log: Path) -> None:
    def beyond(x: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        assert x._base is not None
        x._base.add_(1)

    whole = torch.zeros(64)
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(beyond))[(1,)](whole[16:32], 16)
    assert torch.equal(whole, torch.ones(64))


def test_tensors_in_tuples_are_put_back(log: Path) -> None:
    def of_several(them: tuple[torch.Tensor, ...], n: int, BLOCK: int, num_warps: int) -> None:
        for tensor in them:
            tensor += 1

    several = (torch.zeros(8), torch.zeros(8))
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(of_several))[(1,)](several, 8)
    assert all(torch.equal(t, torch.ones(8)) for t in several)


def test_only_named_arguments_are_put_back_where_some_are_named(log: Path) -> None:
    def both(x: torch.Tensor, y: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        x += 1
        y += 1

    x, y = torch.zeros(8), torch.zeros(8)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, restore_value=["x"])(FakeKernel(both))
    tuned[(1,)](x, y, 8)
    assert torch.equal(x, torch.ones(8))
    assert y.min() > 8


def test_arguments_to_reset_are_zero_before_every_trial_and_the_call(log: Path) -> None:
    def counted(x: torch.Tensor, count: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        assert int(count) == 0
        count += 1

    count = torch.ones(1, dtype=torch.int32)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, reset_to_zero=["count"])(FakeKernel(counted))
    tuned[(1,)](torch.zeros(4), count, 4)
    assert int(count) == 1
    assert {r.measurement.status for r in records(log)} == {"ok"}


def test_a_search_that_is_interrupted_puts_its_arguments_back_and_goes_on_later(log: Path) -> None:
    left = [3]

    def interrupted(x: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        x += 1
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    x = torch.zeros(8)
    for _ in range(2):
        tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(interrupted))
        if left[0] > 0:
            with pytest.raises(KeyboardInterrupt):
                tuned[(1,)](x, 8)
            assert not x.any()
        else:
            tuned[(1,)](x, 8)
    assert torch.equal(x, torch.ones(8))
    assert len({r.schedule for r in records(log)}) == 8


def test_a_configuration_that_fails_is_a_value(log: Path) -> None:
    def picky(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        if BLOCK > 32:
            raise RuntimeError("the block is too large")
        out[:n] = x[:n] * 2

    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(picky))[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    failed = [r.measurement for r in records(log) if not r.measurement.ok]
    assert len(failed) == 4
    assert failed[0].detail == "RuntimeError: the block is too large"


def test_a_configuration_that_computes_something_else_is_never_chosen(log: Path) -> None:
    def careless(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        out[: n - (BLOCK == 128)] = x[: n - (BLOCK == 128)] * 2

    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(careless))[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    assert {r.schedule.knobs["BLOCK"] for r in records(log) if r.measurement.status == "wrong_result"} == {128}


def test_the_majority_is_right_although_the_first_configuration_is_not(log: Path) -> None:
    def first_wrong(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        out[:n] = x[:n] * (3 if BLOCK == 16 else 2)

    configs = [ListedFake(BLOCK=block) for block in (16, 32, 64, 128)]
    x, out, n = tensors()
    tuned = autosched.autotune(configs, ["n"], log=log, seed=1)(FakeKernel(first_wrong, {"num_warps": 1}))
    tuned[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    last = {r.schedule.knobs["BLOCK"]: r.measurement.status for r in records(log)}
    assert last == {16: "wrong_result", 32: "ok", 64: "ok", 128: "ok"}


def test_only_the_named_outputs_are_compared(log: Path) -> None:
    def with_scratch(x: torch.Tensor, scratch: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        scratch.fill_(BLOCK)
        x += 1

    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, outputs=["x"])(FakeKernel(with_scratch))
    tuned[(1,)](torch.zeros(8), torch.zeros(8), 8)
    assert {r.measurement.status for r in records(log)} == {"ok"}


def test_a_configuration_that_broke_the_device_is_left_out_by_the_next_start(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[int] = []

    def fatal(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        if BLOCK == 16:
            broken.append(BLOCK)
            raise RuntimeError("an illegal memory access was encountered")
        out[:n] = x[:n] * 2

    def wait() -> None:
        if broken:
            raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr("autosched.tuning.autotune.trials.trials._wait", wait)
    x, out, n = tensors()
    space = {"BLOCK": [16], "num_warps": [1, 2]}
    with pytest.raises(AutoschedError, match=r"BLOCK=16 num_warps=\d broke the device for this process"):
        autosched.autotune(space=space, key=["n"], log=log)(FakeKernel(fatal))[(1,)](x, out, n)
    broken.clear()
    (lost,) = records(log)
    more = {"BLOCK": [16, 32], "num_warps": [lost.schedule.knobs.integer("num_warps")]}
    autosched.autotune(space=more, key=["n"], log=log)(FakeKernel(fatal))[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    assert not broken
