"""Replay: the best record becomes the kernel that was tuned."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest
import torch

import autosched
from autosched import backends, ops
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.machine import devices
from autosched.replaying.replay import find_best, log_paths, why_wrong_now
from search_spaces import InputError, Workload
from tuning_logs import TuningLog, shipped_logs, user_log_path

OP = ops.matmul(48, 40, 56, epilogue="bias_relu")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[autosched.TuneResult, Path]:
    log = tmp_path_factory.mktemp("replay") / "tuning.jsonl"
    return autosched.tune(OP, "cpu", 8, strategy="random", log=log), log


def test_the_replayed_kernel_is_the_best_one_and_computes_the_operator(
    tuned: tuple[autosched.TuneResult, Path],
) -> None:
    result, log = tuned
    kernel = autosched.replay(OP, "cpu", log=log)
    assert result.best is not None
    assert kernel.schedule == result.best.schedule
    a, b, bias = torch.randn(48, 56), torch.randn(56, 40), torch.randn(40)
    torch.testing.assert_close(kernel(a, b, bias), torch.relu(a @ b + bias), rtol=1e-4, atol=1e-4)
    assert why_wrong_now(kernel, seed=5) is None


def test_replayed_source_is_byte_for_byte_what_was_tuned(tuned: tuple[autosched.TuneResult, Path]) -> None:
    result, log = tuned
    target = devices.resolve("cpu")
    space = spaces.build(OP, target)
    assert result.best is not None
    # As a compile worker sees it: the schedule and its program, pickled.
    tuned_schedule = space.bind(result.best.schedule)
    sent, program = pickle.loads(pickle.dumps((tuned_schedule, tuned_schedule.program)))
    received = dataclasses.replace(sent, lowering=lambda _: program)
    source = build(received.program, received.one_line, target, backends.named(received.backend)).source
    assert autosched.replay(OP, "cpu", log=log).source == source == result.kernel.source
    assert result.best.schedule.one_line in source


def test_an_operator_of_the_same_structure_finds_the_record_under_another_name(
    tuned: tuple[autosched.TuneResult, Path],
) -> None:
    renamed = Workload("mine", OP.inputs, OP.stages)
    assert autosched.replay(renamed, "cpu", log=tuned[1]).source == tuned[0].kernel.source


def test_another_shape_is_never_served(tuned: tuple[autosched.TuneResult, Path]) -> None:
    with pytest.raises(InputError, match="no successful record"):
        autosched.replay(ops.matmul(48, 40, 57, epilogue="bias_relu"), "cpu", log=tuned[1])


def test_another_number_of_threads_is_never_served(tuned: tuple[autosched.TuneResult, Path]) -> None:
    target = dataclasses.replace(devices.resolve("cpu"), threads=2, num_sms=2)
    here = r"2 threads, timed with cold caches; expected one in .*, got one on .*, 1 thread with cold caches; make one "
    with pytest.raises(InputError, match=here + r"with autosched\.tune\(…, autosched\.cpu_target\(2\), trials=100\)"):
        find_best(OP, target, [tuned[1]])


def test_a_stale_record_is_replayed_with_a_warning(tuned: tuple[autosched.TuneResult, Path], tmp_path: Path) -> None:
    stale = tmp_path / "stale.jsonl"
    for record in TuningLog(tuned[1]):
        old = dataclasses.replace(record.provenance, generator="0ld")
        assert record.measurement.facts is not None
        facts = dataclasses.replace(record.measurement.facts, source="0" * 16)
        measurement = dataclasses.replace(record.measurement, facts=facts)
        TuningLog(stale).append(dataclasses.replace(record, measurement=measurement, provenance=old))
    told = r"the record is stale: this version makes another kernel of its schedule; .*autosched\.tune\(…, .* again"
    with pytest.warns(autosched.StaleRecordWarning, match=told):
        kernel = autosched.replay(OP, "cpu", log=stale)
    assert kernel.source == tuned[0].kernel.source


def test_the_users_log_comes_before_those_that_come_with_the_package() -> None:
    assert log_paths(None) == (user_log_path(), *shipped_logs())
