"""A record is good while its schedule prints the code with its fingerprint, and nothing else makes it stale."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import autosched
import search_spaces
from autosched.backends import reproduction
from autosched.backends.backend import CompileError
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.reproduction import Reproduction
from autosched.cli.commands import app
from autosched.machine.policies import Policy
from autosched.replaying.log_export import export
from autosched.replaying.replay import find_best
from autosched.tuning.tuner import tune
from figures.resume import resume_s, write_known
from log_records import run_python
from search_spaces import Schedule, Target, TileProgram, Workload, ops, target_named
from search_spaces.code_hash import code_hash
from search_spaces.devices.target import cpu
from tuning_logs import CompileFacts, Measurement, Status, TuningLog, TuningRecord

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP = ops.matmul(64, 64, 64)
# So many records, and twice what they take on one core of a server that does nothing else.
RESUMED_RECORDS, RESUME_S = 250, 1.0


class Measurer:
    """Measures nothing: of every five schedules one fails to compile; the others are the faster, the later."""

    capacity = 64
    environment = (("python", "3.12"),)

    def __init__(self, failure: Status = "compile_error") -> None:
        self.measured: list[Schedule] = []
        self._failure: Status = failure

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            self.measured.append(schedule)
            count = len(self.measured)
            failed = Measurement(self._failure, detail="made up")
            future.set_result(failed if count % 5 == 0 else Measurement("ok", (1.0 / count,)))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [Measurement("ok", (1e-6 * (1 + i),) * rounds) for i, _ in enumerate(schedules)]

    def cancel(self) -> None:
        pass


def search(log: Path, trials: int, measurer: Measurer | None = None) -> autosched.TuneResult:
    return tune(
        OP, TARGET, trials, strategy="random", cost_model="random", log=log, measurer=measurer or Measurer(), seed=1
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def panelled(schedule: Schedule) -> bool:
    return schedule.knobs["pack_b"] == "panels"


@pytest.fixture
def change_panels(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on another kernel is printed of every schedule that packs b in panels."""
    original = LlvmBackend.render

    def render(self: LlvmBackend, program: TileProgram, comment: str, target: Target) -> str:
        source = original(self, program, comment, target)
        return f"{source}\n; changed" if "pack_b=panels" in comment else source

    return lambda: monkeypatch.setattr(LlvmBackend, "render", render)


def rewrite(log: Path, change: Callable[[TuningRecord], TuningRecord]) -> None:
    records = [change(r) for r in TuningLog(log)]
    log.unlink()
    TuningLog(log).append(*records)


def with_source(record: TuningRecord, source: str) -> TuningRecord:
    """As if another kernel had been made of its schedule."""
    return replace(record, measurement=replace(record.measurement, facts=CompileFacts(0.0, source=source)))


def without_source(record: TuningRecord) -> TuningRecord:
    """As earlier versions wrote it."""
    return replace(record, measurement=replace(record.measurement, facts=None))


# Resuming


RESUMED = """
import sys
from pathlib import Path
from autosched.backends.generator import generator_hash
import test_validity as tests
result = tests.search(Path(sys.argv[1]), 30)
print(result.trials_known, result.trials_done, generator_hash())
"""


def test_a_comment_that_is_changed_in_every_sketch_restarts_nothing(log: Path, tmp_path: Path) -> None:
    search(log, 30)
    package = Path(str(search_spaces.__file__)).parent
    edited = tmp_path / "search_spaces"
    shutil.copytree(package, edited)
    for module in edited.rglob("*.py"):
        module.write_text(module.read_text(encoding="utf-8") + "\n# A remark.\n", encoding="utf-8")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nsys.path.append({str(Path(__file__).parent)!r})\n{RESUMED}"
    )
    known, done, generator = run_python(script, str(log)).communicate()[0].split()
    assert (known, done) == ("30", "0")
    assert generator != next(iter(TuningLog(log))).provenance.generator


def test_a_changed_kernel_makes_exactly_its_records_stale(log: Path, change_panels: Callable[[], None]) -> None:
    search(log, 30)
    before = log.read_bytes()
    tried = {r.schedule for r in TuningLog(log)}
    changed = set(filter(panelled, tried))
    assert changed
    assert changed != tried
    change_panels()
    measurer = Measurer()
    result = search(log, 40, measurer)
    assert result.trials_known == len(tried - changed)
    assert result.trials_done == 40 - result.trials_known
    assert not set(measurer.measured) & (tried - changed)
    assert log.read_bytes().startswith(before)
    again = search(log, 40)
    assert (again.trials_known, again.trials_done) == (40, 0)


def test_what_a_version_measured_is_known_to_it_whatever_another_one_added(
    log: Path, change_panels: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(log, 30)
    own = {r.schedule for r in TuningLog(log)}
    change_panels()
    search(log, 40)
    monkeypatch.undo()
    alike = {r.schedule for r in TuningLog(log) if not panelled(r.schedule)}
    assert search(log, 1).trials_known == len(own | alike)


def test_the_best_is_that_of_the_kernels_that_are_still_made(log: Path, change_panels: Callable[[], None]) -> None:
    search(log, 30)
    winner = find_best(OP, TARGET, [log])
    rewrite(log, lambda r: replace(r, provenance=replace(r.provenance, generator="0ld")))
    assert find_best(OP, TARGET, [log]) == winner
    change_panels()
    best = find_best(OP, TARGET, [log])
    assert not panelled(best.schedule)
    assert best == search(log, 1).best


def test_a_log_is_exported_without_what_is_stale_and_replays_the_same(
    log: Path, tmp_path: Path, change_panels: Callable[[], None]
) -> None:
    search(log, 30)
    change_panels()
    (exported,) = export(TuningLog(log), tmp_path / "records")
    assert exported.best == find_best(OP, TARGET, [log]) == find_best(OP, TARGET, [exported.path])
    assert not any(panelled(r.schedule) for r in TuningLog(exported.path))


def test_the_fastest_of_a_log_are_those_that_are_still_made_and_else_are_called_stale(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> list[str]:
        arguments = ["log", "best", "--log", str(log), "--count", "3"]
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output.splitlines()[1:]

    search(log, 30)
    best = find_best(OP, TARGET, [log])
    rewrite(log, lambda r: with_source(r, "0" * 16) if r.schedule == best.schedule else r)
    assert len(shown()) == 3
    assert not any(best.schedule.one_line in line or "stale" in line for line in shown())
    rewrite(log, lambda r: with_source(r, "0" * 16))
    assert best.schedule.one_line in shown()[0]
    assert all("stale" in line for line in shown())


# Failed trials


def test_a_failed_trial_tells_what_was_printed_and_is_known_while_that_is_the_same(
    log: Path, change_panels: Callable[[], None]
) -> None:
    search(log, 30, Measurer("compile_timeout"))
    failed = [r for r in TuningLog(log) if not r.measurement.ok]
    assert failed
    assert all(r.measurement.source for r in TuningLog(log))
    rewrite(log, lambda r: replace(r, provenance=replace(r.provenance, generator="0ld")))
    assert all(map(Reproduction().is_exact, failed))
    change_panels()
    stale = [r for r in failed if not Reproduction().is_exact(r)]
    assert stale == [r for r in failed if panelled(r.schedule)]


def test_what_does_not_tell_what_was_compiled_is_known_to_the_very_code_that_measured_it(log: Path) -> None:
    search(log, 30, Measurer("compile_timeout"))
    rewrite(log, without_source)
    assert search(log, 30).trials_known == 30
    rewrite(log, lambda r: replace(r, provenance=replace(r.provenance, generator="0ld")))
    assert search(log, 1).trials_known == 0


def test_what_could_not_be_printed_is_known_while_it_cannot_be(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LlvmBackend.render

    def render(self: LlvmBackend, program: TileProgram, comment: str, target: Target) -> str:
        if "pack_b=panels" in comment:
            raise CompileError("no such statement")
        return original(self, program, comment, target)

    class Refused(Measurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            futures = super().submit(workload, schedules)
            refused: Future[Measurement] = Future()
            refused.set_result(Measurement("compile_error", detail="no such statement"))
            return [refused if panelled(s) else f for s, f in zip(schedules, futures, strict=True)]

    with monkeypatch.context() as patch:
        patch.setattr(LlvmBackend, "render", render)
        search(log, 30, Refused())
        rewrite(log, lambda r: replace(r, provenance=replace(r.provenance, generator="0ld")))
        assert search(log, 30).trials_known == 30
    panels = {r.schedule for r in TuningLog(log) if panelled(r.schedule)}
    assert panels
    assert search(log, 1).trials_known == 30 - len(panels)


# What it costs


@pytest.mark.parametrize(
    ("op", "target"),
    [(ops.matmul(4096, 4096, 4096, dtype="float16"), target_named("h200")), (ops.matmul(512, 512, 512), TARGET)],
    ids=["gpu", "cpu"],
)
def test_a_thousand_records_of_one_workload_would_be_known_again_within_seconds(
    op: Workload, target: Target, log: Path
) -> None:
    write_known(log, op, target, RESUMED_RECORDS)
    seconds, known = resume_s(log, op, target)
    assert known == RESUMED_RECORDS
    # Another process of the same tests may be at work next to it.
    assert seconds < 2 * RESUME_S


def test_every_schedule_is_printed_once_however_many_records_it_has(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(log, 20)
    records = list(TuningLog(log))
    printed: list[Schedule] = []
    original = reproduction.fingerprint_of
    monkeypatch.setattr(
        reproduction, "fingerprint_of", lambda schedule, target: printed.append(schedule) or original(schedule, target)
    )
    seen = Reproduction()
    assert all(map(seen.is_exact, [*records, *records]))
    assert len(printed) == len(set(printed)) == 20 < len(records)


# The hash of the code


def test_the_hash_of_code_depends_on_its_text_and_not_on_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"one/__init__.py": "", "one/a.py": "A = 1\n", "one/b.py": "B = 2\n"}
    layouts = {
        "flat": modules,
        "moved": {"one/__init__.py": "", "one/room/a.py": "A = 1\n", "one/renamed.py": "B = 2\r\n"},
        "changed": modules | {"one/a.py": "A = 3\n"},
    }
    found = {}
    for name, files in layouts.items():
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_bytes(text.encode())
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / name)
            patch.delitem(sys.modules, "one", raising=False)
            import one  # type: ignore[import-not-found]  # noqa: F401  # written above, and loaded for its path

            found[name] = code_hash("one")
    assert found["flat"] == found["moved"] != found["changed"]
