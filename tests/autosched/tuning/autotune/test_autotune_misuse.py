"""Misuse of `autosched.autotune` is told before anything is tried; what fails throughout is told once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import autosched
import own_triton_kernels as own
from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.calls.call_checks import check_devices, check_known
from autosched.tuning.autotune.calls.jit_kernel import Parameters
from fake_kernels import SCALE, FakeKernel, ListedFake, scale, tensors
from search_spaces import AutoschedError, InputError
from search_spaces.errors import OutOfMemoryError
from tuning_logs import TuningLog

pytestmark = pytest.mark.usefixtures("instant_timing")


def counted(body: Callable[..., object]) -> tuple[Callable[..., object], list[int]]:
    """A kernel's function, and how often it ran."""
    ran: list[int] = []

    def counting(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        ran.append(BLOCK)
        body(x, out, n, BLOCK, num_warps)

    return counting, ran


@pytest.mark.parametrize(
    ("arguments", "keywords", "said"),
    [
        (tensors(), {"BLOCK": 64}, "BLOCK: given by the call, and a knob"),
        ((*tensors(), 64), {}, "BLOCK: given by the call, and a knob"),
        (tensors(), {"num_warps": 4}, "num_warps: given by the call, and a knob"),
        (tensors(), {"n": 4}, "n: given twice by the call"),
        (tensors()[:2], {}, "the call lacks n; expected of the kernel's arguments: x, out, n, BLOCK"),
        ((torch.zeros(4), torch.zeros(4), torch.zeros(1)), {}, "key names n, a tensor"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_tried(
    arguments: Any, keywords: dict[str, Any], said: str, log: Path
) -> None:
    kernel = FakeKernel(scale)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)
    with pytest.raises(InputError, match=said):
        tuned[(1,)](*arguments, **keywords)
    assert not kernel.launched
    assert not log.exists()


@pytest.mark.parametrize("what", ["restore_value", "reset_to_zero", "outputs"])
def test_what_is_put_back_or_compared_must_be_a_tensor(what: str, log: Path) -> None:
    named: dict[str, Any] = {what: ["n"]}
    tuned = autosched.autotune(space=SCALE, log=log, **named)(FakeKernel(scale))
    with pytest.raises(InputError, match=f"{what} names n, which is of type int in this call; expected a tensor"):
        tuned[(1,)](*tensors())


@pytest.mark.parametrize("x", [torch.zeros(4), 0])
def test_a_kernel_that_is_compiled_is_refused_where_there_is_no_gpu(
    x: object, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    tuned = autosched.autotune(space={"BLOCK": [64, 128]}, key=["n"], log=log)(own.scale_in_place_kernel)
    with pytest.raises(InputError, match="no GPU here, as far as PyTorch sees; set TRITON_INTERPRET=1"):
        tuned[(1,)](x, 2.0, 4)
    assert not log.exists()


def test_tensors_of_the_processor_are_refused_by_a_kernel_on_the_gpu() -> None:
    class Unpinned:
        is_cpu, is_cuda, device = True, False, torch.device("cpu")

        def is_pinned(self) -> bool:
            return False

    some: dict[str, Any] = {"x": Unpinned()}
    with pytest.raises(InputError, match="x is on cpu; expected tensors on cuda:0"):
        check_devices(some, torch.device("cuda:0"))


def test_tensors_of_another_gpu_than_the_current_one_are_refused() -> None:
    class Away:
        is_cpu, is_cuda, device = False, True, torch.device("cuda:1")

    some: dict[str, Any] = {"x": Away()}
    with pytest.raises(InputError, match=r"x is on cuda:1, and the kernel runs on cuda:0; call it under torch\.cuda"):
        check_devices(some, torch.device("cuda:0"))


def test_what_is_neither_a_parameter_nor_an_option_of_a_launch_is_refused() -> None:
    kernel = FakeKernel(scale)
    call, parameters = Call(kernel, tensors(), {"num_warps": 4, "flag": 1}, (1,)), Parameters.of(kernel)
    check_known(call, parameters, ["BLOCK"], ["num_warps", "flag"])
    with pytest.raises(InputError, match="the kernel has no parameter flag, BLOK; expected x, out, n, BLOCK, or what"):
        check_known(call, parameters, ["BLOK"], ["num_warps"])


def test_a_rule_that_reads_an_unknown_name_is_told_which_there_are(log: Path) -> None:
    tuned = autosched.autotune(space=SCALE, legal=lambda meta: meta["BLOK"] > 1, log=log)(FakeKernel(scale))
    with pytest.raises(InputError, match="legal= reads 'BLOK'; expected one of x, out, n, BLOCK, num_warps"):
        tuned[(1,)](*tensors())


def test_an_error_of_the_rules_own_stays_what_it_is(log: Path) -> None:
    none: dict[str, bool] = {}
    tuned = autosched.autotune(space=SCALE, legal=lambda meta: none["n"], log=log)(FakeKernel(scale))
    with pytest.raises(KeyError):
        tuned[(1,)](*tensors())


def test_a_rule_sees_the_defaults_of_arguments_that_the_call_leaves_out(log: Path) -> None:
    def halved(x: torch.Tensor, n: int, BLOCK: int, part: int = 2) -> None:
        x += 1

    kernel = FakeKernel(halved)
    space = {"BLOCK": [16, 32, 64]}
    autosched.autotune(space=space, legal=lambda meta: meta["BLOCK"] < 32 * meta["part"], log=log)(kernel)[(1,)](
        torch.zeros(4), 4
    )
    assert {k["BLOCK"] for k in kernel.launched} == {16, 32}


def test_autotune_without_arguments_says_how_it_is_written() -> None:
    kernel: Any = FakeKernel(scale)
    with pytest.raises(InputError, match=r"expected @autosched\.autotune\(space=\{…\}, key=\[…\]\) above a kernel"):
        autosched.autotune(kernel)


def test_two_autotuners_around_one_kernel_are_refused() -> None:
    once = autosched.autotune(space=SCALE)(FakeKernel(scale))
    theirs = triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=[])(own.scale_in_place_kernel)
    for kernel in (once, theirs):
        with pytest.raises(InputError, match="the kernel is under another autotune"):
            autosched.autotune(space={"BLOCK": [16]})(kernel)


def test_what_heuristics_compute_is_no_knob() -> None:
    kernel = triton.heuristics({"BLOCK": lambda meta: 64})(own.scale_in_place_kernel)
    with pytest.raises(InputError, match=r"BLOCK: computed by triton\.heuristics"):
        autosched.autotune(space={"BLOCK": [16, 32]})(kernel)


def test_pruning_of_a_list_is_refused_over_a_space() -> None:
    with pytest.raises(InputError, match="prune_configs_by= prunes configs="):
        autosched.autotune(space=SCALE, prune_configs_by={"top_k": 1})(FakeKernel(scale))


def test_a_kernel_that_never_works_raises_the_most_frequent_reason_and_leaves_its_arguments(log: Path) -> None:
    def broken(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        out.fill_(7)
        raise RuntimeError("odd" if BLOCK == 64 else f"no block of {BLOCK}")

    x, out, n = tensors()
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(broken))
    said = r"broken n=256 float32: none of 8 configurations works \(8 run_error\); the most frequent reason, 6 times"
    with pytest.raises(AutoschedError, match=said + r", as of .*: RuntimeError: no block of \d+$"):
        tuned[(1,)](x, out, n)
    assert not out.any()
    assert len(list(TuningLog(log))) == 8


def test_what_failed_throughout_is_tried_again_when_it_is_asked_for(log: Path) -> None:
    def failing(*arguments: object) -> None:
        raise RuntimeError("no")

    body, ran = counted(failing)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(body))
    for tries in (8, 8, 16):
        if tries == 16:
            tuned.forget_failures()
        with pytest.raises(AutoschedError, match="none of 8 configurations works"):
            tuned[(1,)](*tensors())
        assert len(ran) == tries


def test_another_key_is_tried_where_one_failed_throughout(log: Path) -> None:
    def small(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        if n > 128:
            raise RuntimeError("too many")
        out[:n] = x[:n] * 2

    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(small))
    x, out, n = tensors()
    with pytest.raises(AutoschedError, match="too many"):
        tuned[(1,)](x, out, n)
    tuned[(1,)](x, out, 128)
    assert torch.equal(out[:128], x[:128] * 2)


def test_a_lack_of_memory_is_no_reason_to_give_up(log: Path) -> None:
    left = [8]

    def greedy(x: torch.Tensor, out: torch.Tensor, n: int, *choice: int) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise torch.OutOfMemoryError("out of memory")
        out[:n] = x[:n] * 2

    body, _ = counted(greedy)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(body))
    x, out, n = tensors()
    with pytest.raises(OutOfMemoryError):
        tuned[(1,)](x, out, n)
    tuned[(1,)](x, out, n)
    assert torch.equal(out, x * 2)


def test_configurations_name_what_a_call_may_not_give(log: Path) -> None:
    tuned = autosched.autotune([ListedFake(BLOCK=16), ListedFake(BLOCK=32)], log=log)(FakeKernel(scale))
    with pytest.raises(InputError, match="BLOCK: given by the call, and a knob"):
        tuned[(1,)](*tensors(), BLOCK=16)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"space": SCALE, "key": ["m"]}, "key names 'm'"),
        ({"space": {"BLOK": [1]}}, "space names 'BLOK'"),
        ({"space": SCALE, "restore_value": ["y"]}, "restore_value names 'y'"),
        ({"space": SCALE, "outputs": ["y"]}, "outputs names 'y'"),
        ({"space": SCALE, "configs": [ListedFake(BLOCK=1)]}, "either space="),
        ({}, "either space="),
        ({"configs": []}, "at least one"),
        ({"configs": [ListedFake(BLOCK=1)], "legal": bool}, "a rule over space="),
        ({"space": SCALE, "legal": True}, "legal= is a function"),
        ({"configs": [{"BLOCK": 64}]}, r"expected a list of triton\.Config"),
        ({"space": {"BLOCK": 64}}, "expected the values of every knob"),
        ({"space": {"BLOCK": "64"}}, "expected the values of every knob"),
        ({"space": SCALE, "key": "n"}, r'key="n"; expected a list of names, such as \["n"\]'),
        ({"space": SCALE, "trials": 0}, "trials=0"),
        ({"space": {"BLOCK": []}}, "knob BLOCK"),
        ({"space": {}}, "expected the values of every knob"),
        ({"space": SCALE, "key": ["BLOCK"]}, "BLOCK: a knob of space="),
        ({"space": SCALE, "history": {"n": 1}}, "history=.*expected the path of a file"),
        ({"space": SCALE, "history": [1]}, "history=.*expected the path of a file"),
    ],
)
def test_misuse_is_refused_where_it_is_written(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        autosched.autotune(**given)(FakeKernel(scale))


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected a kernel: a function under @triton\.jit"):
        autosched.autotune(space=SCALE)(scale)
