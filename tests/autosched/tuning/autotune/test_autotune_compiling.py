"""Configurations that take the compiler long hold up no others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Timer

import pytest
import torch

import autosched
from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.trials.launching import MOST_THREADS, wait_for_most
from fake_kernels import SCALE, FakeKernel, records, scale, tensors, time_instantly

Compiler = Callable[[Configuration], Future[object]]


def ended() -> Future[object]:
    future: Future[object] = Future()
    future.set_result(None)
    return future


@pytest.fixture
def compile_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compiler], None]:
    time_instantly(monkeypatch)
    for patience in ("_PATIENCE_S", "_FIRST_PATIENCE_S"):
        monkeypatch.setattr(f"autosched.tuning.autotune.search.{patience}", 0.0)
    for cores in ("_CORES", "_AT_ONCE"):
        monkeypatch.setattr(f"autosched.tuning.autotune.search.{cores}", 2)

    def patch(compiler: Compiler) -> None:
        def begin(call: Call, some: Sequence[Configuration], pool: Executor) -> list[Future[object]]:
            return [compiler(configuration) for configuration in some]

        monkeypatch.setattr("autosched.tuning.autotune.trials.launching.begin_compiling", begin)

    return patch


def test_what_the_compiler_does_not_end_is_given_up_when_all_others_were_tried(
    tmp_path: Path, compile_by: Callable[[Compiler], None]
) -> None:
    compile_by(lambda c: Future() if c.keywords == {"BLOCK": 128, "num_warps": 2} else ended())
    kernel = FakeKernel(scale)
    autosched.autotune(space=SCALE, key=["n"], log=tmp_path / "own.jsonl")(kernel)[(1,)](*tensors())
    assert {"BLOCK": 128, "num_warps": 2} not in kernel.launched
    (late,) = (r for r in records(tmp_path / "own.jsonl") if not r.measurement.ok)
    assert late.measurement.status == "compile_timeout"
    assert "the compiler had not ended" in late.measurement.detail


def test_what_compiles_longer_than_the_others_is_tried_after_them(
    tmp_path: Path, compile_by: Callable[[Compiler], None]
) -> None:
    begun: list[Future[object]] = []

    def compiler(configuration: Configuration) -> Future[object]:
        if configuration.keywords["BLOCK"] != 128 or len(begun) == 1:
            if begun and not begun[0].done():
                begun[0].set_result(None)
            return ended()
        begun.append(Future())
        return begun[0]

    compile_by(compiler)
    autosched.autotune(space=SCALE, key=["n"], log=tmp_path / "own.jsonl")(FakeKernel(scale))[(1,)](*tensors())
    assert {r.measurement.status for r in records(tmp_path / "own.jsonl")} == {"ok"}
    assert len({r.schedule for r in records(tmp_path / "own.jsonl")}) == 8


def test_while_no_core_is_free_what_ends_first_is_tried_and_the_others_go_on(
    tmp_path: Path, compile_by: Callable[[Compiler], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("_PATIENCE_S", "_FIRST_PATIENCE_S"):
        monkeypatch.setattr(f"autosched.tuning.autotune.search.{patience}", 60.0)
    first, last = Future[object](), Future[object]()
    compile_by(lambda c: {2: first, 4: last}[c.keywords["num_warps"]] if c.keywords["BLOCK"] == 128 else ended())

    def ends_the_last(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
        scale(x, out, n, BLOCK, num_warps)
        if BLOCK == 128 and num_warps == 2 and not last.done():
            last.set_result(None)

    timer = Timer(0.1, first.set_result, [None])
    timer.start()
    tuned = autosched.autotune(space=SCALE, key=["n"], log=tmp_path / "own.jsonl")(FakeKernel(ends_the_last))
    tuned[(1,)](*tensors())
    timer.join()
    assert [r.measurement.status for r in records(tmp_path / "own.jsonl") if not r.measurement.ok] == []


@pytest.mark.parametrize("cores", [1, 2])
def test_compilers_that_never_end_on_every_core_are_given_up_and_the_others_tried(
    tmp_path: Path, compile_by: Callable[[Compiler], None], monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr("autosched.tuning.autotune.search._CORES", cores)
    monkeypatch.setattr("autosched.tuning.autotune.search._AT_ONCE", cores)
    compile_by(lambda c: Future() if c.keywords["BLOCK"] == 128 else ended())
    autosched.autotune(space=SCALE, key=["n"], log=tmp_path / "own.jsonl")(FakeKernel(scale))[(1,)](*tensors())
    statuses = {r.schedule: r.measurement.status for r in records(tmp_path / "own.jsonl")}
    assert Counter(statuses.values()) == {"ok": 6, "compile_timeout": 2}


def test_a_compiler_that_never_ends_holds_no_thread_that_another_needs() -> None:
    over, pool = Event(), ThreadPoolExecutor(MOST_THREADS)
    *_, quick = [*(pool.submit(over.wait) for _ in range(os.cpu_count() or 1)), pool.submit(str)]
    assert quick.result(60.0) == ""
    over.set()


def test_the_slower_half_is_waited_for_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("autosched.tuning.autotune.trials.launching.perf_counter", iter([10.0, 13.0]).__next__)
    monkeypatch.setattr("autosched.tuning.autotune.trials.launching.wait", lambda some, most_s: waited.append(most_s))
    some = [ended(), ended(), Future[object]()]
    wait_for_most(some, some, 60.0)
    assert waited == [3.0]


def test_the_faster_half_is_not_waited_for_without_end() -> None:
    some = [Future[object]()]
    wait_for_most(some, some, 0.01)
    assert not some[0].done()


def test_what_was_asked_for_before_counts_among_those_that_have_ended() -> None:
    asked = [Future[object]()]
    wait_for_most(asked, [*asked, ended()], 60.0)
    assert not asked[0].done()
