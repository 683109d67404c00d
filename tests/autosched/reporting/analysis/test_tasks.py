"""Tasks of a log: what is one, which are selected, and what their best kernel is against the library."""

from __future__ import annotations

import gzip
import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from autosched.cli.commands import app
from autosched.reporting.analysis.certainty import certainty
from autosched.reporting.analysis.finals import finalists
from autosched.reporting.analysis.repeating import operator_arguments, repeating_lines
from autosched.reporting.analysis.tasks import Task, speedup, tasks_at
from autosched.reporting.analysis.trace import improvements, trace
from log_records import A100, SMALL, line_of, record
from search_spaces import InputError, Workload, ops
from search_spaces.devices.target import cpu
from searched_logs import finals, searched
from tuning_logs import TuningLog

OTHER = ops.softmax(64, 100)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A product on two devices and in two policies, and a softmax."""
    path = tmp_path / "tuning.jsonl"
    kinds = [record(1), record(2, target=A100), record(3, policy="hot"), record(4, workload=OTHER)]
    TuningLog(path).append(*kinds, record(5, latency_s=None))
    return path


def test_workload_target_and_policy_are_one_task(log: Path) -> None:
    found = [(t.subject.label, t.target.name, t.policy, len(t.records)) for t in tasks_at(log)]
    product, softmax = SMALL.label, OTHER.label
    assert found == [(product, "h200", "cold", 2), (product, "a100", "cold", 1), (product, "h200", "hot", 1),
                     (softmax, "h200", "cold", 1)]  # fmt: skip


def test_a_task_is_selected_by_part_of_its_name_by_its_key_and_by_its_device(log: Path) -> None:
    def chosen(*select: str) -> list[str]:
        return [task.subject.label.split()[0] for task in tasks_at(log, select)]

    assert chosen("softmax") == chosen(OTHER.key) == ["softmax"]
    assert chosen("softmax", "matmul m=64") == ["matmul"] * 3 + ["softmax"]
    assert chosen("A100") == chosen("hot") == ["matmul"]
    with pytest.raises(InputError, match="holds no 'conv'; it holds matmul m=64"):
        tasks_at(log, ["conv"])
    with pytest.raises(InputError, match="expected a list of texts"):
        tasks_at(log, "conv")


def test_a_log_without_a_record_is_refused_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="holds no tuning record"):
        tasks_at(tmp_path / "empty.jsonl")
    with pytest.raises(InputError, match="no such log"):
        tasks_at(tmp_path / "other.jsonl")


def test_logs_of_a_folder_are_one_and_a_task_in_two_of_them_has_each_measurement_once(tmp_path: Path) -> None:
    for name, tiles in (("a", (1, 2)), ("b", (2, 3))):
        lines = [line_of(record(tile, latency_s=1e-3 * tile)) + b"\n" for tile in tiles]
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines)))
    (task,) = tasks_at(tmp_path)
    assert sorted(r.provenance.trial for r in task.records) == [1, 2, 3]


def test_a_speedup_needs_rounds_of_both() -> None:
    found = speedup([2.0] * 6, [1.0] * 6)
    assert found is not None
    assert (found.ratio, found.interval is None) == (2.0, False)
    assert speedup([], []) is None
    # As a forged log may have it.
    assert speedup([1.0, 2.0], [1.0]) is None


def test_the_best_so_far_falls_with_every_improvement_and_failures_have_no_latency() -> None:
    latencies = iter([None, 3e-3, 4e-3, 2e-3, 2e-3])
    task = Task(Path("x"), tuple(searched(5, lambda _: next(latencies))))
    points = trace(task)
    assert [p.latency_s for p in points] == [None, 3e-3, 4e-3, 2e-3, 2e-3]
    assert [(p.number, p.latency_s) for p in improvements(points)] == [(2, 3e-3), (4, 2e-3)]
    assert [p.at_s for p in points][1:] == pytest.approx([points[0].at_s + n for n in range(1, 5)])


def test_finalists_are_compared_with_the_winner_in_the_rounds_that_both_have() -> None:
    trials = searched(3, lambda _: 1e-3)
    rounds = [[1e-3] * 12, [1.0001e-3, 0.9999e-3] * 6, [1.2e-3] * 6]
    task = Task(Path("x"), (*trials, *finals(trials, rounds)))
    found = finalists(task)
    assert [f.record.provenance.trial for f in found] == [0, 1, 2]
    assert [round(f.against.ratio, 3) for f in found] == [1.0, 1.0, 1.2]
    assert [f.is_slower for f in found] == [False, False, True]
    told = " ".join(certainty(task, found))
    assert "12 interleaved rounds against 2 others, 1 of them no slower beyond noise." in told
    assert finalists(Task(Path("x"), tuple(trials))) == []
    assert "No finals" in " ".join(certainty(Task(Path("x"), tuple(trials)), []))


@pytest.mark.parametrize(
    "op",
    [
        SMALL,
        ops.matmul(64, 48, 32, epilogue="bias_gelu", dtype="bfloat16", layout="nt"),
        ops.conv(2, 16, "14x14", 16, kernel="3x3", padding="1"),
    ],
    ids=lambda op: op.label,
)
def test_a_command_makes_the_same_workload(op: Workload) -> None:
    given = operator_arguments(op)
    assert given is not None
    name, *arguments = given
    assert ops.construct(name, dict(a.split("=") for a in arguments)).key == op.key
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for line in repeating_lines(Task(Path("a log"), (record(1, workload=op, policy="hot"),))):
        autosched, command, *rest = shlex.split(line)
        assert autosched == "autosched"
        group.commands[command].make_context(command, rest)


def test_what_no_operator_makes_is_repeated_by_its_key_and_a_name_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a b; rm -r .jsonl"
    TuningLog(path).append(record(1), record(2, workload=SMALL.renamed("softmax")))
    # Equal computations are one task, whatever they are called: the last name is no operator of these arguments.
    (task,) = tasks_at(path)
    assert operator_arguments(SMALL.renamed("softmax")) is None
    lines = repeating_lines(task)
    assert lines[0] == "import autosched"
    for line in lines:
        compile(line, "line", "exec")
    assert repr(str(path)) in lines[1]
    on_cpu = cpu("A CPU", lanes=8, threads=2, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
    threads = Task(path, (record(1, workload=SMALL.renamed("softmax"), target=on_cpu),))
    assert "replay(op, autosched.cpu_target(2), log=" in repeating_lines(threads)[2]
    (task,) = [Task(path, task.records[:1])]
    assert repeating_lines(task)[0].endswith(f"--log '{path}'")
