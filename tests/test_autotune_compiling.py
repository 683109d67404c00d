"""Configurations that take the compiler long hold up no others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep

import pytest

sys.path.append(str(Path(__file__).parent))
from fake_kernels import SCALE, FakeKernel, records, scale, tensors, time_instantly

import autosched
from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.trials.compiling import Compiling, wait_for_most

Compiler = Callable[[Configuration], Future[object]]


def ended() -> Future[object]:
    future: Future[object] = Future()
    future.set_result(None)
    return future


@pytest.fixture
def compile_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compiler], None]:
    time_instantly(monkeypatch)
    monkeypatch.setattr("autosched.tuning.autotune.search._PATIENCE_S", 0.0)

    def patch(compiler: Compiler) -> None:
        def begin(call: Call, some: Sequence[Configuration], pool: Executor) -> list[Future[object]]:
            return [compiler(configuration) for configuration in some]

        monkeypatch.setattr("autosched.tuning.autotune.trials.compiling.begin_compiling", begin)

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


def test_the_slower_half_is_waited_for_as_long_again() -> None:
    with ThreadPoolExecutor(3) as pool:
        begin = perf_counter()
        some = [Compiling(Configuration({}), pool.submit(sleep, seconds)) for seconds in (0.1, 0.1, 0.5)]
        wait_for_most(some)
        assert perf_counter() - begin < 0.4
        assert [compiling.ended for compiling in some] == [True, True, False]
