"""Records outlive the version that made them while kernels stay the same; an exported log replays as its log does."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner, Result

import autosched
import search_spaces
from autosched import backends, ops
from autosched.backends import reproduction, spaces
from autosched.backends.build import build
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.reproduction import Reproduction
from autosched.cli.commands import app
from autosched.machine import devices
from autosched.replaying import replay
from autosched.replaying.log_export import export, folder_name
from autosched.replaying.replay import find_best
from autosched.strategies.evolution.transfer import transferred
from autosched.tuning.searching.sources import USUAL
from autosched.tuning.searching.warm_start import history
from log_records import H200, SMALL, record
from search_spaces import Schedule, TileProgram, Workload, target_named
from search_spaces.devices.target import cpu
from search_spaces.programs.grid import Grid
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine
from tuning_logs import CompileFacts, TuningLog, TuningRecord, shipped_logs
from tuning_logs.export import worth_shipping
from tuning_logs.packing import may_hold, write_packed
from tuning_logs.ranking import best_of, standing

OP = ops.matmul(48, 40, 56, epilogue="bias_relu")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[autosched.TuneResult, Path]:
    log = tmp_path_factory.mktemp("shipped") / "tuning.jsonl"
    return autosched.tune(OP, "cpu", 24, strategy="random", log=log), log


def changed(
    record: TuningRecord, source: str | None = "", schedule: Schedule | None = None, generator: str = "0ld"
) -> TuningRecord:
    """The record as another generator made it; with another fingerprint or schedule where one is given."""
    facts = record.measurement.facts
    if facts is not None and source != "":
        facts = dataclasses.replace(facts, source=source)
    return dataclasses.replace(
        record,
        schedule=schedule or record.schedule,
        measurement=dataclasses.replace(record.measurement, facts=facts),
        provenance=dataclasses.replace(record.provenance, generator=generator),
    )


def rewritten(log: Path, to: Path, change: Callable[[TuningRecord], TuningRecord]) -> TuningLog:
    found = TuningLog(to)
    found.append(*(change(r) for r in TuningLog(log)))
    return found


# Fingerprints


@pytest.mark.parametrize(
    ("op", "target"),
    [(ops.softmax(64, 128), target_named("h200")), (ops.matmul(64, 64, 64), autosched.cpu_target())],
    ids=["triton", "llvm"],
)
def test_a_fingerprint_depends_on_what_is_compiled_and_launched_and_not_on_the_comment(
    op: search_spaces.Workload, target: search_spaces.Target
) -> None:
    schedule = next(iter(spaces.build(op, target)))
    backend, program = backends.named(schedule.backend), schedule.program
    source = backend.render(program, "one comment", target)
    found = source_fingerprint(source, program)
    assert len(found) == 16
    assert source_fingerprint(backend.render(program, "another\n\nof three lines", target), program) == found
    assert source_fingerprint(source + " ", program) != found
    launch = dataclasses.replace(program.kernels[0].launch, num_warps=16)
    launched = dataclasses.replace(program.kernels[0], launch=launch)
    assert source_fingerprint(source, dataclasses.replace(program, kernels=(launched,))) != found
    assert source_fingerprint(source, dataclasses.replace(program, zeroed=(program.buffers[-1].name,))) != found


@pytest.mark.parametrize("code", ['"a"\n\\n\t\x7f', "'a'", "'a' and \"b\"", "é\n"])
def test_a_fingerprint_is_that_of_the_code_as_python_quotes_it(code: str) -> None:
    """As older records have it."""
    program = TileProgram("p", (), ())
    assert source_fingerprint(code, program) == hashlib.sha256(repr((code, [], [], ())).encode()).hexdigest()[:16]


def test_a_fingerprint_depends_on_the_tiles_of_tensor_descriptors_which_the_text_need_not_name() -> None:
    a_tile = Tile("a_tile", ("m", "k"), (64, 32), "bfloat16")
    row, column = Affine((("m.0", 64),)), Affine((("k.0", 32),))

    def program(via: Literal["pointer", "descriptor"], extent: int) -> TileProgram:
        load = Load(a_tile, "a", (Slice(row, extent, "m"), Slice(column, 32, "k")), via=via)
        return TileProgram("copy", (), (Kernel("copy", Grid(()), (load,)),))

    described = {source_fingerprint("code", program("descriptor", extent)) for extent in (64, 128)}
    pointed = {source_fingerprint("code", program("pointer", extent)) for extent in (64, 128)}
    assert (len(described), len(pointed)) == (2, 1)


def test_a_fingerprint_stays_when_launches_get_a_field_that_says_nothing() -> None:
    @dataclasses.dataclass(frozen=True)
    class Later(Launch):
        swizzle: int = 0

    schedule = next(iter(spaces.build(ops.softmax(64, 128), H200)))
    program, (kernel,) = schedule.program, schedule.program.kernels
    later, other = (
        dataclasses.replace(
            program, kernels=(dataclasses.replace(kernel, launch=Later(kernel.launch.num_warps, swizzle=s)),)
        )
        for s in (0, 1)
    )
    now = dataclasses.replace(program, kernels=(dataclasses.replace(kernel, launch=Launch(kernel.launch.num_warps)),))
    assert source_fingerprint("code", now) == source_fingerprint("code", later) != source_fingerprint("code", other)


def test_every_record_that_was_compiled_tells_the_fingerprint_of_what_replay_makes(
    tuned: tuple[autosched.TuneResult, Path],
) -> None:
    for found in TuningLog(tuned[1]):
        assert found.measurement.source is not None
        assert Reproduction().why_stale(found) is None
    target = devices.resolve("cpu")
    best = find_best(OP, target, [tuned[1]])
    schedule = spaces.build(OP, target).bind(best.schedule)
    assert (
        build(schedule.program, schedule.one_line, target, backends.named(schedule.backend)).facts.source
        == best.measurement.source
    )


def test_a_line_of_before_there_were_fingerprints_is_read() -> None:
    data = {"seconds": 0.5, "registers": 168}
    facts = CompileFacts.from_json(data)
    assert facts.source is None
    assert facts.to_json() == data
    assert CompileFacts.from_json({**data, "source": "0" * 16}).to_json()["source"] == "0" * 16


# Records of other generators


def test_a_record_of_another_generator_replays_while_its_source_is_the_same(
    tuned: tuple[autosched.TuneResult, Path], tmp_path: Path
) -> None:
    log = rewritten(tuned[1], tmp_path / "old.jsonl", changed)
    kernel = autosched.replay(OP, "cpu", log=log.path)
    assert kernel.schedule == tuned[0].kernel.schedule
    assert kernel.source == tuned[0].kernel.source


def test_the_next_best_replays_when_the_kernel_of_the_best_has_changed(
    tuned: tuple[autosched.TuneResult, Path], tmp_path: Path
) -> None:
    target = devices.resolve("cpu")
    tried = TuningLog(tuned[1])
    winner = tried.best(OP, target)
    assert winner is not None
    first = winner.schedule
    runner_up = tried.best(OP, target, is_good=lambda r: r.schedule != first)
    assert runner_up is not None
    second = runner_up.schedule
    log = rewritten(tuned[1], tmp_path / "old.jsonl", lambda r: changed(r, "0" * 16 if r.schedule == first else ""))
    assert find_best(OP, target, [log.path]).schedule == second


def test_of_two_other_generators_the_faster_kernel_that_can_be_made_wins(
    tuned: tuple[autosched.TuneResult, Path], tmp_path: Path
) -> None:
    target = devices.resolve("cpu")
    slow, fast, fastest = (
        dataclasses.replace(r, measurement=dataclasses.replace(r.measurement, latencies_s=(latency,)))
        for r, latency in zip(list(TuningLog(tuned[1]))[:3], (3e-3, 2e-3, 1e-3), strict=True)
    )
    log = TuningLog(tmp_path / "old.jsonl")
    log.append(changed(fast, generator="first"), changed(slow, generator="second"), changed(fastest, "0" * 16))
    assert find_best(OP, target, [log.path]).schedule == fast.schedule


def test_the_search_for_a_kernel_that_can_still_be_made_is_bounded(
    tuned: tuple[autosched.TuneResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_PRINTED", 16)
    log = TuningLog(tmp_path / "old.jsonl")
    for generator in ("first", "second", "third"):
        log.append(*(changed(r, "0" * 16, generator=generator) for r in TuningLog(tuned[1]) if r.measurement.ok))
    printed: list[str] = []
    original = reproduction.source_fingerprint
    monkeypatch.setattr(
        reproduction, "source_fingerprint", lambda source, program: printed.append(source) or original(source, program)
    )
    with pytest.warns(autosched.StaleRecordWarning, match="makes another kernel of its schedule"):
        find_best(OP, devices.resolve("cpu"), [log.path])
    assert len(printed) == 16


def test_why_a_record_is_not_reproduced_is_said(tuned: tuple[autosched.TuneResult, Path]) -> None:
    best = tuned[0].best
    assert best is not None
    gone = dataclasses.replace(best.schedule, sketch="gone", values=())
    unknown = dataclasses.replace(best.schedule, values=(*best.schedule.values, ("swizzle", 4)))
    assert Reproduction().why_stale(best) is None
    for candidate, reason in (
        (changed(best, None), "does not tell what was compiled"),
        (changed(best, "0" * 16), "makes another kernel of its schedule"),
        (changed(best, schedule=gone), "no longer in the search space: unknown sketch 'gone'"),
        (changed(best, schedule=unknown), "no longer in the search space: .*swizzle"),
    ):
        found = Reproduction().why_stale(candidate)
        assert found is not None
        assert pytest.raises(AssertionError, match=reason).matches(AssertionError(found))


# Exporting


def test_what_is_worth_shipping_has_the_winner_of_the_whole() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        records = []
        for _ in range(draw.randrange(1, 30)):
            latency = draw.choice([None, 1e-3, 1.01e-3, 2e-3, float(f"{draw.randrange(1000, 3000)}e-6")])
            records.append(record(draw.randrange(12), latency, finals=draw.choice([0, 0, 1, 2])))
        for best in (1, 3, 8):
            assert best_of(worth_shipping(records, best)) == best_of(records)


def test_the_fastest_ship_and_a_few_slower_ones_from_all_over() -> None:
    records = [record(i, float(f"{1000 + i}e-6")) for i in range(1, 101)] + [record(200, None)]
    random.Random(0).shuffle(records)
    kept = worth_shipping([*records, record(300, None)], 20)
    ranks = sorted(round(r.measurement.latency_s * 1e6) - 1000 for r in kept if r.measurement.ok)
    assert ranks == [*range(1, 21), 29, 45, 61, 77, 93]
    assert kept.pop().schedule == record(300).schedule
    assert kept == [r for r in records if r in kept]


def test_what_a_compiler_said_does_not_ship() -> None:
    failed = dataclasses.replace(
        record(1, None), measurement=dataclasses.replace(record(1, None).measurement, detail="/home/me/kernel.py:3")
    )
    shipped = worth_shipping([record(2), failed], 1)
    assert [r.measurement.status for r in shipped] == ["ok", "run_timeout"]
    assert not any(r.measurement.detail for r in shipped)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture
def exported(tuned: tuple[autosched.TuneResult, Path], tmp_path: Path) -> Path:
    """The one file of an export of the tuned log."""
    result = run("log", "export", "--log", str(tuned[1]), "--to", str(tmp_path / "records"), "--best", "4")
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "records").rglob("*.*")
    assert str(path) in result.output
    return path


def test_an_exported_log_replays_what_its_log_does(
    tuned: tuple[autosched.TuneResult, Path], exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(list(TuningLog(exported))) < len(list(TuningLog(tuned[1])))
    kernel = autosched.replay(OP, "cpu", log=exported)
    assert kernel.record == find_best(OP, kernel.target, [tuned[1]])
    assert kernel.source == tuned[0].kernel.source
    # As a log that ships: found without being named.
    monkeypatch.setattr(replay, "shipped_logs", lambda: (exported,))
    monkeypatch.setenv("XDG_DATA_HOME", str(exported.parent))
    assert autosched.replay(OP, "cpu").source == kernel.source


def test_only_the_file_of_the_workload_is_opened(tuned: tuple[autosched.TuneResult, Path], exported: Path) -> None:
    target = devices.resolve("cpu")
    others = [exported.with_name(f"{number:016x}_cold_other.jsonl.gz") for number in range(3)]
    for other in others:
        other.write_text("torn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_best(OP, target, [*others, exported]) == find_best(OP, target, [tuned[1]])


def test_exporting_twice_writes_the_same_bytes(tuned: tuple[autosched.TuneResult, Path], exported: Path) -> None:
    before = exported.read_bytes()
    folder = exported.parent.parent
    (again,) = export(TuningLog(tuned[1]), folder, 4)
    assert (again.path, again.changed) == (exported, False)
    exported.unlink()
    (again,) = export(TuningLog(tuned[1]), folder, 4)
    assert again.changed
    assert exported.read_bytes() == before
    shown = run("log", "export", "--log", str(tuned[1]), "--to", str(folder), "--best", "4").output
    assert "as before" in shown


def test_exporting_replaces_what_was_exported_of_the_same_workload_and_leaves_the_rest(
    tuned: tuple[autosched.TuneResult, Path], exported: Path
) -> None:
    old = exported.with_name(f"{OP.key}_cold_called-something-else.jsonl.gz")
    rest = [exported.with_name(f"{OP.key}_hot_x.jsonl.gz"), exported.with_name(f"{'0' * 16}_cold_x.jsonl.gz")]
    for path in (old, *rest):
        shutil.copy(exported, path)
    # All of them: of few more, those that are added may be among the finalists, which ship in any case.
    (now,) = export(TuningLog(tuned[1]), exported.parent.parent, 100)
    assert now.changed
    assert sorted(exported.parent.iterdir()) == sorted([exported, *rest])


def test_only_the_target_that_is_asked_for_is_exported(
    tuned: tuple[autosched.TuneResult, Path], tmp_path: Path
) -> None:
    assert list(export(TuningLog(tuned[1]), tmp_path / "none", target="h200")) == []
    assert not (tmp_path / "none").exists()
    assert len(list(export(TuningLog(tuned[1]), tmp_path / "cpu", target="CPU"))) == 1
    result = run("log", "export", "--log", str(tuned[1]), "--to", str(tmp_path), "--target", "h200")
    assert result.exit_code == 2
    assert "no successful record of 'h200' (its targets: cpu); nothing was written" in result.output


def test_what_has_no_successful_record_is_not_exported(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "tuning.jsonl")
    log.append(record(1, None), record(1, policy="hot"))
    (only,) = export(log, tmp_path / "records")
    assert only.path.name.startswith(f"{SMALL.key}_hot_")
    assert only.path.parent.name == "h200"


def test_a_folder_is_called_as_its_target_is() -> None:
    assert folder_name(target_named("h200")) == "h200"
    described = dataclasses.replace(target_named("h200"), device="NVIDIA H200 NVL")
    assert folder_name(described) == "nvidia-h200-nvl"
    assert folder_name(cpu("A CPU (zen)", 8, 2, 1, 1, 1.0)) == "a-cpu-zen-x2"


def test_an_export_tells_nothing_of_the_machine_but_its_device_and_versions(exported: Path) -> None:
    text = gzip.decompress(exported.read_bytes()).decode()
    assert str(Path.home()) + "/" not in text
    for line in text.splitlines():
        data = json.loads(line)
        assert "detail" not in data["measurement"]
        assert set(data["provenance"]) == {
            "generator", "policy", "unix_s", "seed", "trial", "versions", "finals", "propose_s"
        }  # fmt: skip
        assert set(data["provenance"]["versions"]) <= {
            "python", "torch", "triton", "cuda", "driver", "llvmlite", "device"
        }  # fmt: skip


def test_log_show_and_best_take_an_exported_file(exported: Path) -> None:
    shown = run("log", "show", "--log", str(exported)).output
    assert "matmul m=48 n=40 k=56" in shown
    assert "finals" in run("log", "best", "--log", str(exported)).output


def test_tuning_into_an_exported_file_is_refused(exported: Path) -> None:
    before = exported.read_bytes()
    result = run("tune", "matmul", "m=8", "n=8", "k=8", "--target", "cpu", "--log", str(exported))
    assert result.exit_code == 2
    assert "compressed logs are only read" in result.output
    assert exported.read_bytes() == before


# What ships


def test_every_log_that_ships_is_called_by_what_it_holds() -> None:
    for path in shipped_logs():
        records = list(TuningLog(path))
        # Of several versions, maybe: a record is good as long as this one prints the same kernel.
        tasks = {(*r.key, r.provenance.policy) for r in records}
        assert len(tasks) == 1
        assert path.parent.name == folder_name(records[0].target)
        assert may_hold(path, records[0].workload, records[0].provenance.policy)
        assert not may_hold(path, SMALL, "none")
        assert len(standing(records)) <= 300


@pytest.mark.parametrize(
    "path", shipped_logs()[::4], ids=lambda path: path.name.partition("_cold_")[2].partition(".")[0]
)
def test_what_ships_is_replayed_without_tuning(path: Path) -> None:
    """This version makes the kernels whose records it ships: of every fourth workload, the fastest and others."""
    records = [r for r in standing(TuningLog(path)) if r.measurement.ok]
    best = TuningLog(path).best(records[0].workload, records[0].target)
    assert best is not None
    assert Reproduction().why_stale(best) is None
    assert find_best(best.workload, target_named(path.parent.name), [path]) == best
    fastest = sorted(records, key=lambda r: r.measurement.latency_s)[:16]
    sampled = fastest[:: max(1, len(fastest) // 2)]
    assert sum(map(Reproduction().is_exact, sampled)) >= 0.9 * len(sampled)


def linear(rows: tuple[int, ...], columns: int, inner: int, dtype: torch.dtype) -> Workload:
    """What `F.linear` of tensors of these sizes computes, traced."""
    x, weight = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((*rows, inner), (columns, inner)))
    (op,) = autosched.trace(F.linear, x, weight).workloads
    return op


def test_a_traced_function_is_replayed_by_what_ships_for_its_shape() -> None:
    op = linear((8, 16), 4096, 4096, torch.bfloat16)
    found = find_best(op, target_named("h200"), shipped_logs())
    assert found.workload == ops.matmul(128, 4096, 4096, layout="nt", dtype="bfloat16")
    assert Reproduction().why_stale(found) is None


def test_a_traced_function_is_written_to_a_file_from_what_ships_without_a_device(tmp_path: Path) -> None:
    x, weight = (torch.empty(*n, 4096, dtype=torch.bfloat16, device="meta") for n in ((8, 16), (4096,)))
    text = autosched.export(autosched.trace(F.linear, x, weight), tmp_path / "linear.py", "h200").read_text()
    record = find_best(linear((8, 16), 4096, 4096, torch.bfloat16), target_named("h200"), shipped_logs())
    body = reproduction.printed(record, record.workload).partition("def matmul(")[2]
    assert body in text
    assert "linear_mm(_view(x0, (128, 4096), (4096, 1)), x1, empty)" in text


def test_the_order_of_a_functions_arguments_does_not_matter_to_what_ships() -> None:
    x, weight = (torch.empty(n, 768, dtype=torch.float16, device="meta") for n in (16384, 3072))
    (op,) = autosched.trace(lambda weight, x: F.linear(x, weight), weight, x).workloads
    found = find_best(op, target_named("h200"), shipped_logs())
    assert found.workload.label == "matmul m=16384 n=3072 k=768 layout=nt float16"
    assert [op.inputs[n].shape for n in op.input_order(found.workload)] == [t.shape for t in found.workload.inputs]


def test_a_traced_function_of_another_shape_starts_from_what_ships(tmp_path: Path) -> None:
    op = linear((136,), 4096, 4096, torch.bfloat16)
    found = history(TuningLog(tmp_path / "none.jsonl"), op, target_named("h200"), "cold", [], USUAL).records
    assert found[0].workload.label == "matmul m=128 n=4096 k=4096 layout=nt bfloat16"
    space = spaces.build(op, target_named("h200"))
    assert len(transferred(space, found, 24)) > 12


def test_what_ships_is_found_under_the_name_that_an_earlier_version_gave_it(tmp_path: Path) -> None:
    shipped = next(path for path in shipped_logs() if "m-128-n-4096-k-4096" in path.name)
    before = tmp_path / "b5707ebee44d7216-cold-matmul-m-128-n-4096-k-4096-layout-nt-bfloat16.jsonl.gz"
    shutil.copy(shipped, before)
    op, target = next(iter(TuningLog(shipped))).workload, target_named("h200")
    assert find_best(op, target, [before]) == find_best(op, target, [shipped])


def test_a_wheel_holds_the_records_and_the_suites(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    shutil.copy(root / "pyproject.toml", tmp_path)
    for name in ("README.md", "LICENSE"):
        (tmp_path / name).touch()
    for name in ("autosched", "cost_models", "search_spaces", "tuning_logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('__version__ = "0"')
    write_packed(tmp_path / "tuning_logs" / "records" / "h200" / "some.jsonl.gz", [record(1)])
    (tmp_path / "autosched/bench/suites").mkdir(parents=True)
    (tmp_path / "autosched/bench/suites/some.json").touch()
    command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "build_py", "--build-lib", "built"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "built/tuning_logs/records/h200/some.jsonl.gz").exists()
    assert (tmp_path / "built/autosched/bench/suites/some.json").exists()
