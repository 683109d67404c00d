"""Backends by name and by target, and searches in which several take part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import autosched
import interpreting_backend
from autosched import backends
from autosched.backends import LoadError, spaces
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.reproduction import Reproduction
from autosched.kernels.kernel import load_kernel
from autosched.machine.devices import cpu_target
from autosched.measuring import LocalMeasurer, TrialLimits, failures, repro
from autosched.measuring.local.compile_server import CompileServer
from autosched.measuring.local.jobs import Task, Trial
from autosched.tuning.results import TuneResult
from interpreting_backend import MOST_TILES
from search_spaces import (
    AutoschedError,
    EmptySearchSpaceError,
    InputError,
    SearchSpace,
    Target,
    TargetUnavailableError,
    TileProgram,
    ops,
    target_named,
)
from tuning_logs import Measurement, TuningLog, TuningRecord
from untuned import untuned_record

CPU, H200 = cpu_target(), target_named("h200")
OP = ops.row_sum(32, 40)
BOTH = {"llvm", "interpreter"}


@pytest.fixture
def foreign() -> TuningRecord:
    """A record of a backend that is not here."""
    record = untuned_record(spaces.build(OP, CPU).sample(np.random.default_rng(0)), OP, CPU)
    return dataclasses.replace(record, schedule=dataclasses.replace(record.schedule, backend="metal"))


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second backend for CPUs is installed, as that of another package is."""
    package = tmp_path / "site" / "interpreting_backend-1.0.dist-info"
    package.mkdir(parents=True)
    package.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: interpreting-backend\nVersion: 1.0\n")
    package.joinpath("entry_points.txt").write_text(
        f"[autosched.backends]\ninterpreter = {interpreting_backend.CLASS}\nllvm = {interpreting_backend.CLASS}\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    backends._installed.cache_clear()
    yield
    backends._installed.cache_clear()


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (CPU, {"llvm"}),
        (H200, {"triton", "cuda"}),
        (target_named("a100"), {"triton", "cuda"}),
        (target_named("t4"), {"cuda"}),
        (target_named("v100"), {"cuda"}),
    ],
    ids=lambda x: x.name if isinstance(x, Target) else "",
)
def test_a_target_is_served_by_the_backends_for_its_kind(target: Target, names: set[str]) -> None:
    assert {backend.name for backend in backends.for_target(target)} == names
    space, rng = spaces.build(OP, target), np.random.default_rng(0)
    assert {space.sample(rng).backend for _ in range(30)} == names


@pytest.mark.usefixtures("second")
def test_a_backend_of_another_package_comes_after_those_of_autosched_and_takes_the_name_of_none() -> None:
    assert [backend.name for backend in backends.for_target(CPU)] == ["llvm", "interpreter"]
    assert [backend.name for backend in backends.for_target(H200)] == ["triton", "cuda"]


class WithoutLaunch:
    """The launcher of a backend that searches can time, and kernels cannot launch."""

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None: ...

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor: ...

    def unload(self) -> None: ...


@pytest.mark.usefixtures("second")
def test_a_backend_whose_kernels_would_not_replay_is_refused_before_it_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interpreting_backend, "InterpretedProgram", lambda _: WithoutLaunch())
    program = next(iter(spaces.build(OP, CPU))).program
    backend = interpreting_backend.InterpretingBackend()
    with pytest.raises(LoadError, match=r"WithoutLaunch.*'interpreter' has no launch\(addresses, prepared\)$"):
        backends.load(backend, backend.compile(backend.render(program, "", CPU), program, CPU), program)
    monkeypatch.delattr(interpreting_backend.InterpretingBackend, "why_unavailable")
    with pytest.raises(InputError, match=r"InterpretingBackend has no why_unavailable\(target\)$"):
        backends.named("interpreter")


# What is not installed


def test_a_device_that_no_backend_makes_kernels_for_is_told_by_its_compute_capability() -> None:
    pascal = dataclasses.replace(target_named("v100"), name="p100", device="Tesla P100-PCIE-16GB", capability=60)
    with pytest.raises(EmptySearchSpaceError, match=r"no backend that is installed makes .*, sm_60"):
        spaces.build(ops.softmax(8, 16), pascal)


def test_backends_that_refuse_for_different_reasons_are_named() -> None:
    with pytest.raises(
        EmptySearchSpaceError, match=r"on a100: triton: .* conversions of float8_e5m2; cuda: .* matrix instructions for"
    ):
        spaces.build(ops.matmul(64, 64, 64, dtype="float8_e5m2"), target_named("a100"))


def test_a_backend_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"backend 'metal' is not installed; expected one of cuda, llvm, triton"):
        backends.named("metal")


def test_a_kernel_of_a_backend_that_is_not_installed_is_not_built_by_another(foreign: TuningRecord) -> None:
    with pytest.raises(InputError, match="backend 'metal' is not installed"):
        load_kernel(foreign)
    assert "backend 'metal' is not installed" in str(Reproduction().why_stale(foreign))


def test_replaying_a_log_of_a_backend_that_is_not_installed_names_it(foreign: TuningRecord, tmp_path: Path) -> None:
    TuningLog(tmp_path / "log.jsonl").append(foreign)
    with pytest.raises(InputError, match="backend 'metal' is not installed"):
        autosched.replay(OP, CPU, log=tmp_path / "log.jsonl")


def test_a_failed_trial_of_a_backend_that_is_not_installed_cannot_be_repeated(
    foreign: TuningRecord, tmp_path: Path
) -> None:
    failed = dataclasses.replace(foreign, measurement=Measurement("run_error", detail="made up"))
    bound = spaces.build(OP, CPU).bind(dataclasses.replace(foreign.schedule, backend="llvm"))
    folder = failures.keep(tmp_path / "log.jsonl", failed, bound)
    assert folder is not None
    with pytest.raises(InputError, match="backend 'metal'"):
        repro.repeat(folder)


def test_a_schedule_of_a_backend_that_the_workers_do_not_have_fails_by_its_name(foreign: TuningRecord) -> None:
    schedule = foreign.schedule
    trial = Trial(Task(ops.softmax(16, 32), "cold"), schedule, TileProgram("none", (), ()))
    reply = CompileServer({"llvm": LlvmBackend()}, CPU, 2**33).serve(trial)
    assert isinstance(reply, Measurement)
    assert "unknown backend of the workers 'metal' (allowed: llvm)" in reply.detail


# What is installed and lacks something


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend for CPUs cannot compile here."""
    monkeypatch.setattr(LlvmBackend, "why_unavailable", lambda self, target: "no LLVM; expected it: pip install llvm")


def test_a_search_leaves_out_a_backend_that_cannot_compile_here(second: None, lacking: None) -> None:
    assert [backend.name for backend in backends.usable(CPU)] == ["interpreter"]
    assert [backend.name for backend in backends.for_target(CPU)] == ["llvm", "interpreter"]


@pytest.mark.parametrize("asked", [None, "llvm"])
def test_a_search_that_nothing_compiles_for_ends_with_what_to_install(
    lacking: None, asked: str | None, tmp_path: Path
) -> None:
    with pytest.raises(TargetUnavailableError, match=r"backend 'llvm': no LLVM; expected it: pip install llvm$"):
        autosched.tune(OP, CPU, 8, log=tmp_path / "log.jsonl", backend=asked)
    assert not list(tmp_path.iterdir())


def test_a_record_of_a_backend_that_cannot_compile_here_is_replayed_by_no_other(
    tmp_path: Path, second: None, lacking: None
) -> None:
    schedule = spaces.build(OP, CPU, [LlvmBackend()]).sample(np.random.default_rng(0))
    TuningLog(tmp_path / "log.jsonl").append(untuned_record(schedule, OP, CPU))
    with pytest.raises(AutoschedError, match=r"is of the backend 'llvm': no LLVM; expected it: pip install llvm"):
        autosched.replay(OP, CPU, log=tmp_path / "log.jsonl")


# The backend that is asked for


def test_a_search_by_one_backend_tries_no_other(second: None, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with LocalMeasurer(CPU, limits=TrialLimits(compile_workers=1), backend=interpreting_backend.LOCATION) as measurer:
        result = autosched.tune(OP, CPU, 4, log=log, measurer=measurer, backend="interpreter")
    assert result.backends == ("interpreter",)
    assert {r.backend for r in TuningLog(log)} == {"interpreter"}


def test_a_backend_that_makes_no_kernels_for_the_target_is_refused_with_those_that_do() -> None:
    with pytest.raises(InputError, match=r"backend 'triton' makes no kernels for .*; expected 'llvm'"):
        autosched.tune(OP, CPU, 8, backend="triton")
    with pytest.raises(InputError, match=r"backend 'metal' is not installed; expected one of "):
        autosched.tune(OP, CPU, 8, backend="metal")


# One space of several backends


@pytest.fixture
def space(second: None) -> SearchSpace:
    return spaces.build(OP, CPU)


def test_each_backend_has_its_own_limits(space: SearchSpace) -> None:
    schedule = next(s for s in space if s.program.kernels[0].grid.tiles > MOST_TILES)
    assert schedule.backend == "llvm"
    other = dataclasses.replace(schedule, backend="interpreter")
    assert f"tiles; the interpreter takes {MOST_TILES}" in str(space.why_illegal(other))


def test_what_one_backend_cannot_compute_at_all_is_left_to_the_others(space: SearchSpace) -> None:
    assert set(space.backends) == BOTH
    assert set(spaces.build(ops.matmul(32, 32, 32, dtype="float16"), CPU).backends) == {"llvm"}


def test_a_space_has_the_schedules_of_every_backend(space: SearchSpace) -> None:
    alone = {name: dataclasses.replace(space, backends={name: space.backends[name]}) for name in BOTH}
    assert space.size == len(list(space)) == sum(one.size for one in alone.values())


def test_a_search_starts_from_points_of_every_backend_those_of_the_best_first(second: None) -> None:
    op = ops.matmul(32, 32, 32)
    starts = spaces.build(op, CPU).seeds()
    assert {s.backend for s in starts} == BOTH
    alone = spaces.build(op, CPU, [LlvmBackend()]).seeds()
    assert starts[: len(alone)] == alone


def test_a_search_of_few_trials_starts_from_tiles_that_one_backend_alone_makes_too() -> None:
    starts = spaces.build(ops.matmul(3072, 1024, 8192, dtype="bfloat16", layout="nt"), H200).seeds()
    first = starts[:10]
    assert sum(s.backend == "triton" for s in first) == 5
    own = {s.values for s in starts if s.backend == "cuda"} - {s.values for s in starts if s.backend == "triton"}
    assert all(s.values in own for s in first if s.backend == "cuda")
    assert {s.backend for s in starts[len(starts) - 10 :]} == {"cuda"}


def test_drawing_changing_and_stepping_come_to_every_backend(space: SearchSpace) -> None:
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(40)]
    assert {s.backend for s in drawn} == BOTH
    small = next(s for s in drawn if s.backend == "interpreter")
    assert {space.mutate(small, rng).backend for _ in range(40)} == BOTH
    (same,) = (s for s in space.neighbours(small) if s.backend == "llvm")
    assert same.values == small.values
    assert all(space.why_illegal(s) is None for s in drawn)


def test_a_schedule_that_names_no_backend_gets_the_best(space: SearchSpace) -> None:
    schedule = dataclasses.replace(next(iter(space)), backend="")
    assert space.bind(schedule).backend == "llvm"


def test_a_schedule_of_a_backend_that_does_not_serve_is_refused(space: SearchSpace) -> None:
    schedule = dataclasses.replace(next(iter(space)), backend="triton")
    with pytest.raises(InputError, match=r"unknown backend of row_sum.* 'triton'.*allowed: interpreter, llvm"):
        space.bind(schedule)


# One search of several backends


@pytest.fixture
def result(second: None, tmp_path: Path) -> TuneResult:
    """Of a search in which both backends took part."""
    with LocalMeasurer(CPU, limits=TrialLimits(compile_workers=1), backend=interpreting_backend.LOCATION) as measurer:
        return autosched.tune(OP, CPU, 24, log=tmp_path / "log.jsonl", measurer=measurer)


@pytest.fixture
def searched(result: TuneResult) -> list[TuningRecord]:
    return list(TuningLog(result.log))


def test_the_result_says_which_backend_was_fastest(result: TuneResult) -> None:
    assert result.best is not None
    assert f" by {result.best.backend}, " in str(result)


def test_backends_compete_in_one_search_and_each_builds_its_own_kernels_again(searched: list[TuningRecord]) -> None:
    assert {r.measurement.status for r in searched} <= {"ok", "pruned"}
    assert {r.backend for r in searched} == BOTH
    assert all(map(Reproduction().is_exact, searched))
    x = torch.randn(32, 40)
    for name, opening in (("llvm", ";"), ("interpreter", "#")):
        kernel = load_kernel(next(r for r in searched if r.backend == name and r.measurement.ok))
        assert kernel.source.startswith(opening)
        torch.testing.assert_close(kernel(x), x.sum(1))
