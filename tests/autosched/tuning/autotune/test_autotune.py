"""A user's own kernel under `autosched.autotune`: tuned where it is called, on its own arguments, once."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl

import autosched
from autosched.strategies.bayesian import BayesianSearch, History, plain_search
from fake_kernels import SCALE, FakeKernel, records, scale, tensors
from search_spaces import InputError, LogError
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import TuningLog, TuningRecord

pytestmark = pytest.mark.usefixtures("instant_timing")


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


def test_an_argument_of_the_key_may_be_given_by_its_name(log: Path) -> None:
    def wide(x: torch.Tensor, out: torch.Tensor, n: int, WIDTH: int, BLOCK: int, num_warps: int) -> None:
        out[:n] = x[:n] * 2

    tuned = autosched.autotune(space=SCALE, key=["n", "WIDTH"], log=log, trials=2)(FakeKernel(wide))
    x, out, n = tensors()
    for width in (16, 32, 16):
        tuned[(1,)](x, out, n=n, WIDTH=width)
    assert {r.subject.label for r in records(log)} == {f"wide n=256 WIDTH={width} float32" for width in (16, 32)}


def test_the_order_in_which_keywords_are_given_says_nothing(log: Path) -> None:
    tuned = autosched.autotune(space=SCALE, key=["n"], log=log, trials=2)(FakeKernel(scale))
    x, out, n = tensors()
    tuned[(1,)](x=x, out=out.half(), n=n)
    tuned[(1,)](n=n, out=out.half(), x=x)
    assert len({r.subject.key for r in records(log)}) == 1


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


def test_the_search_is_told_what_others_measured(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[History] = []

    def listening(space: PlainSpace, seed: int, history: Sequence[History]) -> BayesianSearch[Point]:
        told.extend(history)
        return plain_search(space, seed, history)

    monkeypatch.setattr("autosched.tuning.autotune.search.plain_search", listening)
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


def test_a_history_may_be_a_single_file(log: Path) -> None:
    with pytest.raises(LogError, match="no such file"):
        autosched.autotune(space=SCALE, history="no such file", log=log)(FakeKernel(scale))


def test_what_was_measured_before_ctrl_c_is_in_the_log(log: Path) -> None:
    tried: set[int] = set()

    def interrupted(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        tried.add(BLOCK * num_warps)
        if len(tried) > 2:
            raise KeyboardInterrupt
        scale(x, out, n, BLOCK, num_warps)

    space = {"BLOCK": [16, 64, 256, 1024], "num_warps": [1]}
    x, out, n = tensors()
    with pytest.raises(KeyboardInterrupt):
        autosched.autotune(space=space, key=["n"], log=log)(FakeKernel(interrupted))[(1,)](x, out, n)
    assert [r.measurement.status for r in records(log)] == ["ok", "ok"]
    assert torch.equal(out, torch.zeros(n))


def test_strict_takes_the_winner_of_a_log_and_neither_searches_nor_guesses(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out, n = tensors()
    strict = autosched.autotune(space=SCALE, key=["n"], log=log, strict=True)(FakeKernel(scale))
    with pytest.raises(InputError, match=rf"strict: scale n={n} .*{log.name}, which does not exist; no record is"):
        strict[(1,)](x, out, n)
    autosched.autotune(space=SCALE, key=["n"], log=log, trials=2)(FakeKernel(scale))[(1,)](x, out, n)
    with pytest.raises(InputError, match=r"has 2 of 8 trials, or no finals: its search was not finished"):
        strict[(1,)](x, out, n)
    autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(scale))[(1,)](x, out, n)
    before = len(records(log))
    strict[(1,)](x, out, n)
    assert strict.best_config.kwargs == {"BLOCK": 128}
    with pytest.raises(InputError, match=rf"the nearest record \(scale n={n} .*\) differs in n: {n}, wanted {n // 2}"):
        strict.warmup(x[: n // 2], out[: n // 2], n // 2, grid=(1,))
    by_environment = autosched.autotune(space=SCALE, key=["n"], log=log)(FakeKernel(scale))
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    with pytest.raises(InputError, match="without strict the call tunes it"):
        by_environment[(1,)](x[: n // 2], out[: n // 2], n // 2)
    assert len(records(log)) == before
