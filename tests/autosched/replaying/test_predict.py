"""Predictions for devices that are not here: what they are learnt from, how they rank, and what becomes of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import autosched
from autosched import ops
from autosched.backends import spaces
from autosched.cli.commands import app
from autosched.machine import devices
from autosched.measuring import RecordedMeasurer
from autosched.replaying.predicted_kernel import predicted_source
from autosched.replaying.prediction_file import PredictionFile
from autosched.replaying.predictions import Prediction, Predictions
from autosched.tuning import predict as predicting
from autosched.tuning.learning import Errors, Lessons, basis_text, lessons
from cost_models.corrected_estimate import CorrectedEstimate, HeldOut
from cost_models.roofline import latency_s
from search_spaces import (
    InputError,
    LogError,
    Schedule,
    SearchSpace,
    Target,
    TargetUnavailableError,
    Workload,
    target_named,
)
from tuning_logs import CompileFacts, Measurement, Provenance, TuningLog, TuningRecord

HERE = devices.cpu_target()
OTHER = dataclasses.replace(HERE, device="Another CPU", l2_bytes=4 * HERE.l2_bytes)
THIRD = dataclasses.replace(HERE, device="A third CPU", fp32_flops=2 * HERE.fp32_flops)
OP, SHELL_OP = ops.softmax(64, 256), ("softmax", "rows=64", "columns=256")
SHAPES = (ops.softmax(128, 512), ops.softmax(32, 1024), ops.softmax(256, 128))
A100, H100 = target_named("a100"), target_named("h100")


def truth(space: SearchSpace, schedule: Schedule) -> float:
    """What a schedule "takes": three times the estimate with one vector or eight, which the estimate does not know."""
    estimate = latency_s(space.lower(schedule), space.target, space.backends[schedule.backend])
    return estimate * (3.0 if schedule.knobs.get("vectors") in (1, 8) else 1.0)


def records_of(op: Workload, target: Target, count: int = 24, slower: float = 1.0) -> list[TuningRecord]:
    space, rng = spaces.build(op, target), np.random.default_rng(0)
    return [
        TuningRecord(op, target, s, Measurement("ok", (slower * truth(space, s),)), Provenance("g", "cold", 0.0, 0, n))
        for n, s in enumerate(dict.fromkeys(space.sample(rng) for _ in range(count)))
    ]


@pytest.fixture(autouse=True)
def nothing_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships is of an H200, and reading it takes a second."""
    monkeypatch.setattr(predicting, "shipped_logs", tuple)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to rank: describing a candidate takes milliseconds."""
    monkeypatch.setattr(predicting, "_BATCHES", 2)
    monkeypatch.setattr(predicting, "_BATCH", 16)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Another device's log of other shapes."""
    path = tmp_path / "others.jsonl"
    TuningLog(path).append(*(r for shape in SHAPES for r in records_of(shape, OTHER)))
    return path


def test_tuning_for_a_device_that_is_not_here_names_the_ways_on(log: Path) -> None:
    with pytest.raises(TargetUnavailableError) as refused:
        autosched.tune(OP, "v100", log=log)
    for way in ("Tesla V100", "a machine that has it", 'autosched.predict(op, target="v100")', "measurer=…"):
        assert way in str(refused.value)
    assert not log.exists()


def test_the_command_line_names_the_ways_on_too() -> None:
    shown = CliRunner().invoke(app, ["tune", "softmax", "rows=64", "columns=64", "--target", "v100"])
    assert shown.exit_code == 2
    assert "autosched predict" in shown.output


def test_a_measurer_that_reaches_the_device_is_asked_though_it_is_not_here(log: Path) -> None:
    with pytest.raises(InputError, match="no record of"):
        autosched.tune(OP, "v100", 4, log=log, measurer=RecordedMeasurer([]))


def test_what_another_device_measured_ranks_schedules_better_than_the_estimate() -> None:
    space, model = spaces.build(OP, HERE), CorrectedEstimate(0, spaces.build)
    schedules = [r.schedule for r in records_of(OP, HERE)]
    schedules = [space.bind(s) for s in schedules]
    taken = np.array([truth(space, s) for s in schedules])
    before = model.latencies_s(space, schedules)
    model.fit(space, [r for shape in SHAPES for r in records_of(shape, OTHER)])
    after = model.latencies_s(space, schedules)
    assert np.corrcoef(np.log(after), np.log(taken))[0, 1] > 0.9 > np.corrcoef(np.log(before), np.log(taken))[0, 1]
    assert taken[np.argmin(after)] < 1.1 * taken.min()


def test_a_group_is_held_out_with_everything_that_resembles_it() -> None:
    slow, usual = records_of(SHAPES[0], OTHER, slower=100.0), records_of(SHAPES[1], THIRD)
    space, model = spaces.build(OP, HERE), CorrectedEstimate(0, spaces.build)
    alone = model.held_out(space, [*slow, *usual], lambda a, b: a == b, most=9)
    assert [h.workload for h in alone] == [SHAPES[0], SHAPES[1]]
    # Predicted from the other group alone, which was not slowed down.
    assert np.median(alone[0].measured_s / alone[0].predicted_s) > 30
    assert model.held_out(space, [*slow, *usual], lambda a, b: True, most=9) == []


def test_an_interval_is_that_of_the_first_choices_of_every_group_without_their_extremes() -> None:
    predicted = np.array([*[1.0] * 10, 60.0])
    fast = HeldOut(OP, OTHER, np.array([0.1, *[0.5] * 4, *[1.0] * 5, 1e3]), predicted)
    slow = HeldOut(OP, THIRD, np.array([*[1.0] * 5, *[2.0] * 4, 9.0, 1e3]), predicted)
    errors = Errors.of([fast, slow])
    assert (errors.low, errors.high, errors.groups) == pytest.approx((0.5, 2.0, 2))


@pytest.mark.parametrize(
    ("taught", "novelty"),
    [
        ([(SHAPES[0], OTHER), (SHAPES[1], OTHER)], "shape"),
        ([(SHAPES[0], OTHER), (SHAPES[1], THIRD)], "device"),
        ([(SHAPES[0], OTHER), (SHAPES[1], HERE)], "shape"),
        ([(ops.row_sum(64, 256), OTHER), (ops.matmul(64, 64, 64), OTHER)], "operator"),
    ],
)
def test_what_is_held_out_is_as_new_as_what_is_asked(
    log: Path, taught: list[tuple[Workload, Target]], novelty: str
) -> None:
    TuningLog(log).append(*(r for op, target in taught for r in records_of(op, target, 20)))
    found = lessons([log], OP, HERE, "cold")
    assert found.novelty == novelty
    assert not found.resemble(*found.groups)
    # Another shape of the same operator on the same device.
    assert found.resemble((SHAPES[1], OTHER), (SHAPES[0], OTHER)) == (novelty != "shape")


def test_a_device_of_another_kind_teaches_nothing(history: Path) -> None:
    assert lessons([history], OP, A100, "cold").records == ()
    assert len(lessons([history], OP, HERE, "cold").groups) == len(SHAPES)
    assert lessons([history], OP, HERE, "hot").records == ()


def test_a_prediction_says_what_it_was_learnt_from_and_what_its_interval_lacks(log: Path, history: Path) -> None:
    found = autosched.predict(OP, HERE, count=3, history=[history], log=log)
    text = str(found)
    assert "predicted, never measured" in text.splitlines()[0]
    assert "3 (device, shape) groups, all measured on Another CPU" in text
    assert f"their kernels: {sum(len(TuningLog(history).records(s, OTHER)) for s in SHAPES)} by llvm" in text
    assert "no other device could be held out" in text
    assert found.best.within_s is not None
    assert 0 < found.best.within_s[0] < found.best.within_s[1]
    knobs = [p.schedule.knobs["vectors"] for p in found.ranked]
    assert not {1, 8} & set(knobs)


def test_of_nothing_known_only_the_estimate_is_left(log: Path) -> None:
    found = autosched.predict(OP, HERE, count=2, log=log)
    assert found.best.within_s is None
    assert "the analytic estimate alone" in found.basis


def test_a_prediction_leaves_no_trace_in_the_log_and_is_no_log(log: Path, history: Path) -> None:
    found = autosched.predict(OP, HERE, count=2, history=[history], log=log)
    assert not log.exists()
    kept = PredictionFile(log)
    assert [p.predicted_s for p in next(iter(kept)).ranked] == pytest.approx(
        [p.predicted_s for p in found.ranked], rel=1e-3
    )
    with pytest.raises(LogError, match="not a tuning log"):
        autosched.replay(OP, "cpu", log=kept.path)


def test_a_predicted_kernel_is_checked_and_carries_what_its_trial_measured(log: Path, history: Path) -> None:
    found = autosched.predict(OP, HERE, count=2, history=[history], log=log)
    kernel = autosched.replay(OP, "cpu", log=log, predicted=True)
    x = torch.randn(64, 256)
    torch.testing.assert_close(kernel(x), torch.softmax(x, 1))
    assert kernel.schedule == found.best.schedule
    assert kernel.record.measurement.ok
    assert kernel.record.measurement.latency_s != found.best.predicted_s
    assert kernel.source == found.source
    shown = CliRunner().invoke(app, ["replay", *SHELL_OP, "--target", "cpu", "--log", str(log), "--predicted"])
    assert "predicted, not tuned; its trial here took" in shown.output
    assert "results agree" in shown.output


def test_without_a_prediction_its_kernel_is_refused_with_the_call_that_makes_one(log: Path) -> None:
    with pytest.raises(InputError, match=r"no prediction of softmax .* make one with autosched\.predict\(op, \"cpu\""):
        autosched.replay(OP, "cpu", log=log, predicted=True)


def test_the_latest_prediction_counts_and_damaged_lines_do_not(log: Path) -> None:
    file = PredictionFile(log)
    schedule = spaces.build(OP, HERE).sample(np.random.default_rng(0))
    for expected in (2e-6, 1e-6):
        ranked = (Prediction(schedule, expected, (0.5 * expected, 2 * expected), CompileFacts(0.1, registers=3)),)
        file.add(Predictions(OP, HERE, "cold", ranked, "learnt from nothing"))
    with file.path.open("a") as out:
        out.write('{"predictions": 1, "torn')
    latest = file.latest(OP, HERE, "cold")
    assert latest is not None
    assert latest.best == Prediction(schedule, 1e-6, (5e-7, 2e-6), CompileFacts(0.1, registers=3))
    assert file.latest(OP, HERE, "hot") is None


def test_a_prediction_for_one_card_serves_the_others_of_its_family(log: Path) -> None:
    predicted, here, other = map(target_named, ("v100", "v100-pcie-32gb", "t4"))
    schedule = spaces.build(OP, predicted).sample(np.random.default_rng(0))
    file = PredictionFile(log)
    file.add(Predictions(OP, predicted, "cold", (Prediction(schedule, 1e-6, None, CompileFacts(0.1)),), ""))
    found = file.latest(OP, here, "cold")
    assert found is not None
    assert found.target == predicted
    assert file.latest(OP, other, "cold") is None
    assert schedule.one_line in predicted_source(OP, here, log, "cold")


def test_what_spills_or_does_not_compile_falls_behind(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    spilled, refused, fine = (
        CompileFacts(0.1, 255, 500),
        Measurement("compile_error", detail="no"),
        CompileFacts(0.1, 64, 0),
    )
    outcomes = itertools.chain([spilled, refused, fine, fine], itertools.repeat(refused))

    def compiled(op: Workload, target: Target, schedules: Sequence[Schedule]) -> list[CompileFacts | Measurement]:
        return [next(outcomes) for _ in schedules]

    monkeypatch.setattr(predicting, "compile_all", compiled)
    found = autosched.predict(ops.softmax(512, 1024), A100, count=4, log=log)
    assert [bool(p.drawback) for p in found.ranked] == [False, False, True, True]
    assert found.ranked[0].predicted_s >= found.ranked[2].predicted_s
    assert {p.drawback for p in found.ranked} >= {"", "spills 500 bytes per thread"}
    assert found.ranked[3].facts is None
    assert "(behind: compile_error: no)" in str(found)


def test_backends_of_which_kernels_were_measured_are_preferred(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    def compiled(op: Workload, target: Target, schedules: Sequence[Schedule]) -> list[CompileFacts | Measurement]:
        return [CompileFacts(0.1, 64, 0) for _ in schedules]

    monkeypatch.setattr(predicting, "compile_all", compiled)
    TuningLog(log).append(*(r for r in records_of(SHAPES[0], H100, 40) if r.backend == "triton"))
    for target, backend in ((A100, "triton"), (target_named("v100"), "cuda")):
        found = autosched.predict(OP, target, count=20, log=log)
        assert {p.schedule.backend for p in found.ranked} == {backend}


def test_what_was_measured_is_not_predicted(log: Path, history: Path) -> None:
    known = records_of(OP, HERE, 12)
    TuningLog(log).append(*known)
    found = autosched.predict(OP, HERE, count=8, history=[history], log=log)
    assert not {r.schedule for r in known} & {p.schedule for p in found.ranked}


def test_the_kernels_of_a_traced_function_are_predicted_and_replayed(log: Path) -> None:
    x = torch.randn(16, 64)
    traced = autosched.trace(lambda x: torch.softmax(x * 2.0, 1), x)
    found = autosched.predict(traced, "cpu", count=1, log=log)
    assert len(found.results) == len(traced.workloads)
    assert "predicted, never measured" in str(found)
    kernel = autosched.replay(traced, "cpu", log=log, predicted=True)
    torch.testing.assert_close(kernel(x), torch.softmax(x * 2.0, 1))


def test_a_gpu_that_is_not_here_is_predicted_for_with_the_compilers_figures(log: Path) -> None:
    arguments = ["softmax", "rows=512", "columns=1024", "--target", "v100", "--log", str(log)]
    shown = CliRunner().invoke(app, ["predict", *arguments, "--count", "1", "--json"])
    assert shown.exit_code == 0, shown.output
    data = json.loads(shown.output)
    assert data["measured"] is False
    assert data["target"]["capability"] == 70
    assert data["ranked"][0]["backend"] == "cuda"
    assert data["ranked"][0]["facts"]["registers"] > 0
    source = CliRunner().invoke(app, ["replay", *arguments, "--predicted", "--source"])
    assert "__global__" in source.output


def test_no_basis_claims_an_interval_that_nothing_was_held_out_for(log: Path) -> None:
    TuningLog(log).append(*records_of(SHAPES[0], OTHER))
    taught = lessons([log], OP, HERE, "cold")
    assert "no interval" in basis_text(taught, Errors.of([]), spaces.build(OP, HERE))


def test_a_backend_that_made_none_of_the_measured_kernels_is_named(log: Path) -> None:
    records = [r for shape in SHAPES for r in records_of(shape, OTHER, 20)]
    other = [dataclasses.replace(r, schedule=dataclasses.replace(r.schedule, backend="elsewhere")) for r in records]
    TuningLog(log).append(*other)
    taught = lessons([log], OP, HERE, "cold")
    text = basis_text(taught, Errors(0.5, 2.0, 3), spaces.build(OP, HERE))
    assert f"their kernels: {len(other)} by elsewhere" in text
    assert "no kernel by llvm was measured" in text


def test_kernels_of_the_same_backend_for_another_architecture_are_told_apart() -> None:
    """What was measured of a Hopper's kernels says little of Volta's, though one backend makes both."""
    made = [dataclasses.replace(r, target=target_named("h200")) for r in records_of(OP, OTHER, 2)]
    taught = Lessons(tuple(made), "shape")
    (backend,) = taught.backends
    assert taught.has_code(backend, target_named("h100"))
    assert not taught.has_code(backend, target_named("v100"))


@pytest.mark.parametrize("fused_s", [1e-6, 1e-3])
def test_the_cut_is_chosen_that_is_predicted_to_take_less(fused_s: float) -> None:
    x, a, b = torch.randn(16, 64), torch.randn(64, 32), torch.randn(32, 16)
    traced = autosched.trace(lambda x, a, b: torch.relu(x @ a) @ b, x, a, b)
    fused = next(cut for cut in traced.cuts if len(cut.launched) == 1)
    seconds = {w.key: 1e-5 for cut in traced.cuts for w in cut.workloads} | {fused.workloads[0].key: fused_s}
    by_key = {w.key: w for cut in traced.cuts for w in cut.workloads}
    results = tuple(
        Predictions(w, A100, "cold", (Prediction(Schedule("s", ()), seconds[key], None, None),), "")
        for key, w in by_key.items()
    )
    found = predicting.TracedPredictions(traced, results)
    assert (found.fastest.workloads == fused.workloads) == (fused_s < 1e-5)
    (chosen,) = (line for line in str(found).splitlines() if ", the fastest cut" in line)
    assert ("1 kernel: 1 µs predicted, never measured" in chosen) == (fused_s < 1e-5)


def test_a_prediction_is_exported_marked_as_such(tmp_path: Path, log: Path) -> None:
    arguments = ["softmax", "rows=512", "columns=1024", "--target", "v100", "--log", str(log)]
    file = tmp_path / "softmax.py"
    refused = CliRunner().invoke(app, ["export", *arguments, "--predicted", "--to", str(file)])
    assert refused.exit_code == 2
    assert "no prediction of softmax" in refused.output
    autosched.predict(ops.softmax(512, 1024), "v100", count=1, log=log)
    assert CliRunner().invoke(app, ["export", *arguments, "--predicted", "--to", str(file)]).exit_code == 0
    text = file.read_text()
    assert "# PREDICTED for Tesla V100-SXM2-16GB, never measured: " in text
    assert "predicted, never measured: " in text.rpartition("def ")[2]
    assert "tuned" not in text.lower().replace("autotuned", "")


def test_a_kernel_that_is_made_already_is_not_exported_as_predicted(log: Path, history: Path, tmp_path: Path) -> None:
    autosched.predict(OP, HERE, count=1, history=[history], log=log)
    kernel = autosched.replay(OP, HERE, log=log, predicted=True)
    with pytest.raises(InputError, match="predicted=True is for an operator or a traced function"):
        autosched.export(kernel, tmp_path / "kernel.py", predicted=True)
