"""Compiled models that are tuned while they are used."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.torch_compile.tuning import tuning_process
from autosched.torch_compile.tuning.background import BackgroundTuning, TunedLater
from autosched.torch_compile.tuning.tuning_process import TuningWork
from search_spaces import InputError

NOTHING = TuningWork((), None, 1, None, None)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)


def function(x: Tensor) -> Tensor:
    return F.silu(x).softmax(-1)


def compiled(tuning: BackgroundTuning, log: Path) -> tuple[Callable[[Tensor], Tensor], list[GraphReport]]:
    torch.compiler.reset()
    reports: list[GraphReport] = []
    options = Options(log=str(log), trials=1, background=tuning)
    return torch.compile(function, backend=backend_of(options, reports.append)), reports


def test_a_model_answers_at_once_and_by_tuned_kernels_at_the_call_after_these_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "autosched.torch_compile")
    tuning, x = BackgroundTuning(), torch.randn(8, 32)
    called, reports = compiled(tuning, tmp_path / "log.jsonl")
    with torch.no_grad():
        torch.testing.assert_close(called(x), function(x))
        assert [r.by for r in reports] == ["eager"]
        assert tuning.wait(120), tuning
        torch.testing.assert_close(called(x), function(x))
        torch.testing.assert_close(called(x), function(x))
    (line,) = (record.message for record in caplog.records if record.message.startswith("tuned in the background"))
    tuned, before = map(float, re.findall(r"([0-9.]+) µs", line))
    # Both are rounded to 0.1 µs.
    assert [r.by for r in reports] == ["eager", *["autosched"] * (tuned < before)] or tuned == before
    assert "1 of 1 graphs tuned" in str(tuning)
    assert not tuning.failures


def test_kernels_that_cannot_be_tuned_are_told_of_once_and_break_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(work: TuningWork, show: Callable[[str], None]) -> str:
        return "no room"

    tuning, x = BackgroundTuning(fails), torch.randn(8, 32)
    for rows in (8, 9):
        x = torch.randn(rows, 32)
        called, reports = compiled(tuning, tmp_path / "log.jsonl")
        with torch.no_grad():
            called(x)
            assert tuning.wait(60)
            torch.testing.assert_close(called(x), function(x))
        assert [r.by for r in reports] == ["eager"]
    assert tuning.failures == ["no room"]
    assert caplog.text.count("no room") == 1
    assert str(tuning) == "2 of 2 graphs tuned; no room"


def test_works_are_done_one_after_the_other_and_an_error_in_one_leaves_the_next() -> None:
    done: list[str] = []

    def raises(work: TuningWork, show: Callable[[str], None]) -> str:
        done.append("tuned")
        raise OSError("no processes left")

    tuning = BackgroundTuning(raises)
    tuning.add(NOTHING, lambda: done.append("never"))
    tuning.add(NOTHING, lambda: done.append("never"))
    assert tuning.wait(10)
    assert done == ["tuned", "tuned"]
    assert tuning.failures == ["OSError: no processes left"]


def test_progress_is_shown_while_a_graph_is_tuned_and_a_wait_ends_in_time() -> None:
    go_on, shown = threading.Event(), threading.Event()

    def waits(work: TuningWork, show: Callable[[str], None]) -> str:
        show("softmax: 3 of 64 schedules")
        shown.set()
        go_on.wait(10)
        return ""

    tuning = BackgroundTuning(waits)
    tuning.add(NOTHING, lambda: None)
    assert shown.wait(10)
    assert not tuning.wait(0.01)
    assert str(tuning) == "0 of 1 graphs tuned; softmax: 3 of 64 schedules"
    go_on.set()
    assert tuning.wait(10)
    assert str(tuning) == "1 of 1 graphs tuned"


def test_a_stop_ends_the_process_and_changes_nothing(tmp_path: Path) -> None:
    tuning = BackgroundTuning()
    called, reports = compiled(tuning, tmp_path / "log.jsonl")
    x = torch.randn(8, 32)
    with torch.no_grad():
        called(x)
        tuning.stop()
        assert tuning.wait(0)
        torch.testing.assert_close(called(x), function(x))
    assert len(reports) == 1
    assert not tuning.failures


def test_the_process_that_tunes_ends_with_the_one_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork of this process, which has everything imported."""
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(read))
    pid = os.fork()
    if pid == 0:
        try:
            os.close(write)
            end = threading.Thread(target=tuning_process._end_with_the_input)
            end.start()
            end.join(20)
        finally:
            os._exit(0)
    time.sleep(0.1)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    sys.stdin.close()


def test_a_call_is_exchanged_once_by_one_thread_while_others_go_on() -> None:
    made: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def first(inputs: list[Any]) -> Sequence[Any]:
        return ["first"]

    def better() -> Callable[[list[Any]], Sequence[Any]]:
        made.append("better")
        inside.set()
        go_on.wait(10)
        return lambda inputs: ["second"]

    call = TunedLater(first)
    assert call([]) == ["first"]
    call.become(better)
    results: list[Any] = []
    other = threading.Thread(target=lambda: results.append(call([])))
    other.start()
    assert inside.wait(10)
    assert call([]) == ["first"]
    go_on.set()
    other.join()
    assert results == [["second"]]
    assert call([]) == ["second"]
    assert made == ["better"]


def test_modes_that_tune_first_are_not_tuned_in_the_background() -> None:
    with pytest.raises(InputError, match="tunes first; with background expected default"):
        Options.of("max-autotune", {"background": autosched.BackgroundTuning()})
    with pytest.raises(InputError, match="background=True is bool; expected BackgroundTuning"):
        Options.of(None, {"background": True})
