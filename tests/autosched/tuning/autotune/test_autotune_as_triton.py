"""What `triton.autotune` takes means the same to `autosched.autotune`; so do CUDA graphs and torch.compile."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import autosched
from fake_kernels import SCALE, FakeKernel, ListedFake, records, scale, tensors
from search_spaces import AutoschedError

pytestmark = pytest.mark.usefixtures("instant_timing")


def test_what_triton_takes_and_autosched_needs_not_is_accepted(log: Path) -> None:
    unused: dict[str, Any] = {"warmup": 5, "rep": 20, "use_cuda_graph": True, "cache_results": True}
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, **unused)(FakeKernel(scale))
    x, out, n = tensors()
    tuned[(1,)](x, out, n)
    assert torch.equal(out, x * 2)


def test_a_kernel_under_heuristics_is_tuned(log: Path) -> None:
    def wide(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, WIDTH: int, num_warps: int) -> None:
        assert WIDTH == 2 * BLOCK
        out[:n] = x[:n] * 2

    chosen = triton.heuristics({"WIDTH": lambda meta: 2 * meta["BLOCK"]})(FakeKernel(wide))
    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], log=log)(chosen)[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    assert {r.measurement.status for r in records(log)} == {"ok"}


def test_heuristics_above_a_tuned_kernel_are_asked_before_it(log: Path) -> None:
    def wide(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, WIDTH: int, num_warps: int) -> None:
        assert n == WIDTH
        out[:n] = x[:n] * 2

    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(wide))
    x, out, n = tensors()
    triton.heuristics({"WIDTH": lambda given: given["n"]})(tuned)[(1,)](x, out, n)
    assert torch.equal(out, x * 2)


def test_element_types_in_the_place_of_tensors_compile_the_winner_and_measure_nothing(log: Path) -> None:
    compiled: list[dict[str, Any]] = []

    class Compiled(FakeKernel):
        def run(self, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
            assert not any(isinstance(argument, torch.dtype) for argument in arguments)
            compiled.append(keywords)
            super().run(*arguments, grid=grid, warmup=warmup, **keywords)

    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(Compiled(scale))
    tuned[(1,)](*tensors())
    known = records(log)
    autosched.autotune(space=SCALE, key=["n"], log=log)(Compiled(scale)).warmup(
        torch.float32, torch.float32, 256, grid=(1,)
    )
    assert records(log) == known
    assert compiled[-1]["BLOCK"] == 128


def test_a_list_is_pruned_as_triton_does(log: Path) -> None:
    def early(configs: list[ListedFake], named: dict[str, Any], **keywords: Any) -> list[ListedFake]:
        assert named["n"] == 256
        return [c for c in configs if c.kwargs["BLOCK"] < 128]

    def model(BLOCK: int, n: int, **others: Any) -> float:
        return abs(BLOCK - 32)

    kernel = FakeKernel(scale, {"num_warps": 1})
    pruned = {"early_config_prune": early, "perf_model": model, "top_k": 2}
    configs = [ListedFake(BLOCK=b) for b in (16, 32, 64, 128)]
    autosched.autotune(configs, ["n"], pruned, log=log)(kernel)[(1,)](*tensors())
    assert {k["BLOCK"] for k in kernel.launched} == {16, 32}


def test_the_hook_of_a_configuration_is_called_before_each_of_its_launches(log: Path) -> None:
    def add(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int) -> None:
        out += x

    def zero(arguments: dict[str, Any]) -> None:
        arguments["out"].zero_()

    configs = [ListedFake(zero, BLOCK=16), ListedFake(zero, BLOCK=32)]
    tuned = autosched.autotune(configs, ["n"], log=log)(FakeKernel(add))
    x, out, n = tensors()
    for _ in range(2):
        tuned[(1,)](x, out, n)
        assert torch.equal(out, x)


def test_hooks_of_the_tuner_are_called_around_trials_and_never_around_calls(log: Path) -> None:
    called: list[object] = []

    def before(arguments: dict[str, Any], reset_only: bool) -> None:
        called.append("reset" if reset_only else arguments["BLOCK"])

    def after(arguments: dict[str, Any], exception: object) -> None:
        called.append(("after", arguments["BLOCK"]))

    kernel = FakeKernel(scale)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, trials=2, pre_hook=before, post_hook=after)(kernel)
    tuned[(1,)](*tensors())
    *trials, last = called
    assert last == "reset"
    assert [("after", block) for block in trials[::2]] == trials[1::2]
    tuned[(1,)](*tensors())
    assert called == [*trials, last]


def test_no_hook_is_called_before_a_call_that_does_not_come(log: Path) -> None:
    told: list[int] = []

    class Uncompiled(FakeKernel):
        def run(self, *arguments: Any, **keywords: Any) -> None:
            raise RuntimeError("no code for this")

    def before(arguments: dict[str, Any], reset_only: bool) -> None:
        told.append(arguments["BLOCK"])

    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, pre_hook=before)(Uncompiled(scale))
    with pytest.raises(AutoschedError, match=r"none of 8 configurations works .* RuntimeError: no code for this"):
        tuned[(1,)](*tensors())
    assert not told


def test_a_hook_after_a_failed_trial_is_told_the_error(log: Path) -> None:
    told: list[str] = []

    def picky(x: torch.Tensor, n: int, BLOCK: int) -> None:
        if BLOCK == 16:
            raise RuntimeError("too small")

    def after(arguments: dict[str, Any], exception: Exception | None) -> None:
        if exception is not None:
            told.append(f"{arguments['BLOCK']}: {exception}")

    tuned = autosched.autotune(space={"BLOCK": [16, 32]}, post_hook=after, log=log)(FakeKernel(picky))
    tuned[(1,)](torch.zeros(4), 4)
    assert told == ["16: too small"]


def test_a_way_of_timing_of_the_users_own_is_used(log: Path) -> None:
    def do_bench(call: Any, quantiles: Sequence[float]) -> list[float]:
        call()
        return [float(call.args[0].keywords["BLOCK"])] * 3

    kernel = FakeKernel(scale)
    autosched.autotune(space=SCALE, key=["n"], log=log, do_bench=do_bench)(kernel)[(1,)](*tensors())
    assert kernel.launched[-1]["BLOCK"] == 16
    assert math.isclose(min(r.measurement.latency_s for r in records(log)), 16e-3)


def test_compiled_code_calls_a_tuned_kernel(log: Path) -> None:
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(scale))

    def doubled(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        tuned[(1,)](x + 1, out, 8)
        return out * 2

    compiled = torch.compile(doubled, backend="eager")
    x = torch.arange(8.0)
    assert torch.equal(compiled(x), (x + 1) * 4)
    assert torch.equal(compiled(x), (x + 1) * 4)


def test_nothing_is_measured_while_a_graph_is_captured(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel(scale)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.warns(UserWarning, match="scale n=256 float32 is captured in a CUDA graph before it was tuned"):
        tuned[(1,)](*tensors())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned[(1,)](*tensors())
    assert kernel.launched == [{"BLOCK": 16, "num_warps": 2}] * 2
    assert not log.exists()


def test_a_captured_call_takes_what_the_nearest_key_has_found(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel(scale)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)
    tuned[(1,)](*tensors())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    x, out, _ = tensors()
    with pytest.warns(UserWarning, match="captured"):
        tuned[(1,)](x, out, 128)
    assert kernel.launched[-1]["BLOCK"] == 128


def test_a_captured_call_takes_the_first_configuration_that_compiles(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(FakeKernel):
        def run(self, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
            if keywords["BLOCK"] < 64:
                raise RuntimeError("too small")
            super().run(*arguments, grid=grid, warmup=warmup, **keywords)

    kernel = Picky(scale)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.warns(UserWarning, match="captured"):
        autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)[(1,)](*tensors())
    assert kernel.launched == [{"BLOCK": 64, "num_warps": 2}]
