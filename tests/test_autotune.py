"""A user's own kernel under `autosched.autotune`: tuned where it is called, on its own arguments, once."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

sys.path.append(str(Path(__file__).parent))
from fake_kernels import SCALE, FakeKernel, ListedFake, scale, tensors, time_instantly

import autosched
from autosched.strategies.engine import Engine, History, plain_engine
from search_spaces import AutoschedError, InputError, LogError
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import TuningLog, TuningRecord


@pytest.fixture(autouse=True)
def instant_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    time_instantly(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "own.jsonl"


def records(log: Path) -> list[TuningRecord]:
    return list(TuningLog(log))


def test_the_first_call_tunes_and_computes_what_the_kernel_does(log: Path) -> None:
    kernel = FakeKernel(scale)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)
    x, out, n = tensors()
    tuned[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    assert kernel.launched[-1]["BLOCK"] == 128
    assert tuned.best_config.kwargs == {"BLOCK": 128}
    assert len({r.schedule for r in records(log)}) == 8


def test_the_next_call_of_a_key_launches_once(log: Path) -> None:
    kernel = FakeKernel(scale)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)
    x, out, n = tensors()
    tuned[(1,)](x, out, n)
    before = len(kernel.launched)
    tuned[(1,)](x, out, n)
    assert len(kernel.launched) == before + 1


def test_the_next_start_measures_nothing(log: Path) -> None:
    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(scale))[(1,)](x, out, n)
    before, kernel = len(records(log)), FakeKernel(scale)
    autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)[(1,)](x, out, n)
    assert len(kernel.launched) == 1
    assert kernel.launched[0]["BLOCK"] == 128
    assert len(records(log)) == before


def test_a_winner_that_no_longer_compiles_gives_way_to_the_next_best(log: Path) -> None:
    class Refusing(FakeKernel):
        def run(self, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
            if keywords["BLOCK"] == 128:
                raise RuntimeError("no such instruction")
            super().run(*arguments, grid=grid, warmup=warmup, **keywords)

    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(scale))[(1,)](x, out, n)
    kernel = Refusing(scale)
    autosched.autotune(space=SCALE, key=["n"], log=log)(kernel)[(1,)](x, out, n)
    assert [launched["BLOCK"] for launched in kernel.launched] == [64]
    refused = [r for r in records(log) if r.measurement.status == "compile_error"]
    assert {r.schedule.knobs["BLOCK"] for r in refused} == {128}


def test_more_trials_than_the_log_knows_continue_the_search(log: Path) -> None:
    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], log=log, trials=3)(FakeKernel(scale))[(1,)](x, out, n)
    assert len({r.schedule for r in records(log)}) == 3
    autosched.autotune(space=SCALE, key=["n"], log=log, trials=8)(FakeKernel(scale))[(1,)](x, out, n)
    assert len({r.schedule for r in records(log)}) == 8


def test_an_edited_kernel_is_tuned_anew(log: Path) -> None:
    def other(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        out[:n] = x[:n] * 2 + 0

    x, out, n = tensors()
    for body in (scale, other):
        autosched.autotune(space=SCALE, key=["n"], log=log, trials=2)(FakeKernel(body))[(1,)](x, out, n)
    assert len({r.subject.key for r in records(log)}) == 2


def test_another_key_element_type_or_alignment_is_tuned_for_itself(log: Path) -> None:
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, trials=2)(FakeKernel(scale))
    x, out, n = tensors()
    for given in ((x, out, n), (x, out, 128), (x.half(), out, n), (x[1:], out, 128)):
        tuned[(1,)](*given)
    assert len({r.subject.key for r in records(log)}) == 4


def test_the_next_key_starts_where_the_last_one_ended(log: Path) -> None:
    space = {"BLOCK": [2**i for i in range(12)], "STEP": list(range(40)), "num_warps": [4]}

    def stepped(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, STEP: int, num_warps: int) -> None:
        out[:n] = x[:n] * 2

    tuned = autosched.autotune(space=space, key=["n"], log=log, trials=24)(FakeKernel(stepped))
    x, out, _ = tensors()
    tuned[(1,)](x, out, 256)
    first = len(records(log))
    tuned[(1,)](x, out, 128)
    assert 2048 in [r.schedule.knobs["BLOCK"] for r in records(log)[first : first + 8]]


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
        x._base.add_(1)  # type: ignore[union-attr]

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


def test_a_rule_sees_the_arguments_and_the_knobs(log: Path) -> None:
    def legal(meta: dict[str, Any]) -> bool:
        return bool(meta["BLOCK"] * 4 <= meta["n"])

    kernel = FakeKernel(scale)
    x, out, n = tensors()
    autosched.autotune(space=SCALE, key=["n"], legal=legal, log=log)(kernel)[(1,)](x, out, n)
    assert {k["BLOCK"] for k in kernel.launched} == {16, 32, 64}


def test_a_rule_that_allows_nothing_is_refused(log: Path) -> None:
    tuned = autosched.autotune(space=SCALE, key=["n"], legal=lambda meta: False, log=log)(FakeKernel(scale))
    with pytest.raises(InputError, match="no configuration is legal"):
        tuned[(1,)](*tensors())


def test_one_configuration_is_launched_without_a_trial(log: Path) -> None:
    kernel = FakeKernel(scale)
    autosched.autotune(space={"BLOCK": [64], "num_warps": [4]}, key=["n"], log=log)(kernel)[(1,)](*tensors())
    assert kernel.launched == [{"BLOCK": 64, "num_warps": 4}]
    assert not log.exists()


def test_a_space_of_a_million_million_points_is_searched(log: Path) -> None:
    space = {"BLOCK": [2**i for i in range(10)], "num_warps": [4], **{f"K{i}": list(range(10)) for i in range(11)}}

    def wide(x: torch.Tensor, n: int, num_warps: int, BLOCK: int, **others: int) -> None:
        x += 1

    kernel = FakeKernel(wide)
    kernel.arg_names = ["x", "n", *space]
    x = torch.zeros(4)
    autosched.autotune(space=space, key=["n"], log=log, trials=12)(kernel)[(1,)](x, 4)
    assert torch.equal(x, torch.ones(4))
    assert len({r.schedule for r in records(log)}) == 12


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


def test_values_of_a_knob_may_be_of_any_type(log: Path) -> None:
    given: list[object] = []

    def typed(x: torch.Tensor, n: int, KIND: object, num_warps: int) -> None:
        given.append(KIND)
        x += 1

    kinds = [np.int64(16), 32.5, "tf32", None, True, (1, 2), [3, 4], tl.float16, math.sin]
    tuned = autosched.autotune(space={"KIND": kinds, "num_warps": [2]}, log=log)(FakeKernel(typed))
    tuned[(1,)](x := torch.zeros(4), 4)
    assert torch.equal(x, torch.ones(4))
    assert all(any(kind is value for value in given) for kind in kinds)


def test_kernels_that_two_threads_call_are_tuned_one_after_the_other(log: Path) -> None:
    order: list[str] = []

    def named(name: str) -> FakeKernel:
        def body(x: torch.Tensor, n: int, BLOCK: int) -> None:
            order.append(name)
            time.sleep(1e-3)

        return FakeKernel(body)

    def call(name: str) -> None:
        autosched.autotune(space={"BLOCK": [16, 32]}, key=["n"], log=log)(named(name))[(1,)](torch.zeros(4), 4)

    threads = [threading.Thread(target=call, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The call itself, after the search, is not held up by another's.
    changes = [name for name, before in zip(order, [None, *order], strict=False) if name != before]
    assert len(changes) <= 3


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

    hooks = {"pre_hook": before, "post_hook": after}
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, trials=2, **hooks)(FakeKernel(scale))  # type: ignore[arg-type]
    tuned[(1,)](*tensors())
    *trials, last = called
    assert last == "reset"
    assert [("after", block) for block in trials[::2]] == trials[1::2]
    tuned[(1,)](*tensors())
    assert called == [*trials, last]


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


def test_the_search_is_told_what_others_measured(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[History] = []

    def listening(space: PlainSpace, seed: int, history: Sequence[History]) -> Engine[Point]:
        told.extend(history)
        return plain_engine(space, seed, history)

    monkeypatch.setattr("autosched.tuning.autotune.search.plain_engine", listening)
    timings = [[{"kwargs": {"BLOCK": 64}, "num_warps": 4}, [0.5]]]
    cache = tmp_path / "scale.autotune.json"
    cache.write_text(json.dumps({"key": [256], "configs_timings": timings}))
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, trials=2, history=[cache])(FakeKernel(scale))
    tuned[1,](*tensors())
    assert [(h.points, h.seconds) for h in told] == [(((64, 4),), (5e-4,))]


def test_a_log_that_cannot_be_written_costs_a_warning_and_not_the_kernel(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: TuningLog, *records: TuningRecord) -> None:
        raise LogError("the disk is full")

    monkeypatch.setattr(TuningLog, "append", full)
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(scale))
    x, out, n = tensors()
    with pytest.warns(UserWarning, match="is lost when the process ends: the disk is full"):
        tuned[(1,)](x, out, n)
    assert torch.equal(out, x * 2)


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
    ],
)
def test_misuse_is_refused_where_it_is_written(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        autosched.autotune(**given)(FakeKernel(scale))


def test_a_history_may_be_a_single_file(log: Path) -> None:
    with pytest.raises(LogError, match="no such file"):
        autosched.autotune(space=SCALE, history="no such file", log=log)(FakeKernel(scale))


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected a kernel: a function under @triton\.jit"):
        autosched.autotune(space=SCALE)(scale)


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
    more = {"BLOCK": [16, 32], "num_warps": [1]}
    (lost,) = records(log)
    more["num_warps"] = [lost.schedule.knobs["num_warps"]]  # type: ignore[list-item]
    autosched.autotune(space=more, key=["n"], log=log)(FakeKernel(fatal))[(1,)](x, out, n)
    assert torch.equal(out, x * 2)
    assert not broken
