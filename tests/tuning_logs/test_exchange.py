"""Recorded tables of other tuners and of our own logs: read, written, and refused with a line that says why."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from log_records import A100, record
from recorded_tables import KNOBS, small_table
from search_spaces import InputError, LogError
from search_spaces.schedules.plain_space import PlainSpace
from tuning_logs import STATUSES, TuningLog
from tuning_logs.exchange.files import Format, read_tables, write_table
from tuning_logs.exchange.fitting import fitted
from tuning_logs.exchange.own_logs import records_of, tables_of
from tuning_logs.exchange.recorded_table import RecordedTrial

every_format = pytest.mark.parametrize("format", get_args(Format))

# As Kernel Tuner writes it, and while it still writes.
CACHE: dict[str, Any] = {
    "device_name": "Imaginary GPU",
    "kernel_name": "scale",
    "problem_size": 4096,
    "tune_params_keys": ["block", "unroll"],
    "tune_params": {"block": [16, 32], "unroll": [1]},
    "objective": "time",
    "cache": {
        "16,1": {"block": 16, "unroll": 1, "time": 2.0, "times": [1.0, 3.0], "compile_time": 500, "GFLOP/s": 7.0},
        "32,1": {"block": 32, "unroll": 1, "time": "CompilationFailedConfig", "compile_time": 100},
    },
}
T4: dict[str, Any] = {
    "metadata": {"timeunit": "miliseconds"},
    "results": [
        {
            "configuration": {"block": 16, "unroll": 1},
            "times": {"compilation": 500, "runtimes": [1.0, 3.0]},
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": 2.0, "unit": ""}],
            "objectives": ["time"],
        },
        {
            "configuration": {"block": 32, "unroll": 1},
            "times": {"compilation": 100, "runtimes": []},
            "invalidity": "compile",
            "correctness": 0,
            "measurements": [{"name": "time", "value": "CompilationFailedConfig", "unit": ""}],
            "objectives": ["time"],
        },
    ],
    "schema_version": "1.0.0",
}
TRITON: dict[str, Any] = {
    "key": [4096, "torch.float16"],
    "configs_timings": [
        [{"kwargs": {"BLOCK": 64}, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None,
          "ir_override": None}, [0.5, 0.4, 0.6]],
        [{"kwargs": {"BLOCK": 128}, "num_warps": 8, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None,
          "ir_override": None}, [float("inf")] * 3],
    ],
}  # fmt: skip
HELION = """\
run_id,timestamp_s,config_id,generation,status,perf_ms,compile_time_s,config
r1,0.10,c1,0,started,,,"Config(block_sizes=[64, 32], indexing='pointer', num_warps=4)"
r1,0.90,c1,0,ok,0.500000,0.80,"Config(block_sizes=[64, 32], indexing='pointer', num_warps=4)"
r1,1.00,c2,0,error,,0.20,"Config(block_sizes=[16], indexing='pointer', loop_orders=[[1, 0]], num_warps=8)"
r2,1.00,c1,0,ok,0.250000,0.20,"helion.Config(block_sizes=[64, 32], num_warps=4)"
"""


def written(path: Path, data: dict[str, Any] | str) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def without(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != name}


@every_format
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_table_that_was_written_reads_as_it_was(tmp_path: Path, format: Format, suffix: str) -> None:
    table, path = small_table(), tmp_path / f"table{suffix}"
    write_table(path, table, format)
    (read,) = read_tables(path)
    # T4 has no place for the size of the problem.
    assert read == (table if format == "kernel-tuner" else dataclasses.replace(table, problem_size=()))


@pytest.mark.parametrize("data", [CACHE, T4], ids=["kernel-tuner", "t4"])
def test_what_other_tuners_write_is_read(tmp_path: Path, data: dict[str, Any]) -> None:
    (table,) = read_tables(written(tmp_path / "table.json", data))
    assert table.names == ("block", "unroll")
    assert table.values == ((16, 32), (1,))
    assert table.trials == (
        RecordedTrial((16, 1), 2e-3, repeats_s=(1e-3, 3e-3), compile_s=0.5),
        RecordedTrial((32, 1), None, "compile_error", compile_s=0.1),
    )


def test_a_cache_that_kernel_tuner_left_open_is_read(tmp_path: Path) -> None:
    whole = json.dumps(CACHE)
    assert whole.endswith("}}")
    (table,) = read_tables(written(tmp_path / "open.json", whole[:-2] + ","))
    assert len(table.trials) == 2


def test_published_caches_mark_failures_by_numbers_too(tmp_path: Path) -> None:
    entry = {"block": 16, "unroll": 1, "time": 1e20}
    (table,) = read_tables(written(tmp_path / "old.json", {**CACHE, "cache": {"16,1": entry}}))
    assert table.trials == (RecordedTrial((16, 1), None, "run_error"),)


def test_units_of_t4_are_read(tmp_path: Path) -> None:
    measured = [{"name": "time", "value": 2.0, "unit": "microseconds"}]
    data = {**T4, "results": [{**T4["results"][0], "measurements": measured}]}
    (table,) = read_tables(written(tmp_path / "table.json", data))
    assert table.trials[0].seconds == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (json.dumps(CACHE)[:-40], "torn: expected JSON to its end"),
        (json.dumps(T4)[:-40], "torn: expected JSON to its end"),
        ("", "expected a Kernel Tuner cache, a T4 results file"),
        ("[1, 2]", "expected a Kernel Tuner cache, a T4 results file"),
        ({"shapes": []}, "expected a Kernel Tuner cache, a T4 results file"),
        ({**CACHE, "schema_version": "2.0.0"}, "schema_version '2.0.0'; expected a Kernel Tuner cache of version 1.x"),
        ({**T4, "schema_version": "2.0.0"}, "schema_version '2.0.0'; expected a T4 file of version 1.x"),
        (without(CACHE, "tune_params"), "expected tune_params, a JSON object; got none"),
        ({**CACHE, "tune_params_keys": ["tile"]}, "expected tile, a JSON array; got none"),
        ({**CACHE, "cache": {"8,1": {"block": 8, "unroll": 1, "time": 1}}}, "block=8; allowed are [16, 32]"),
        ({**CACHE, "cache": {"16": {"block": 16, "time": 1}}}, "expected a value of unroll; got block, time"),
        ({**CACHE, "cache": {"16,1": {"block": 16, "unroll": 1}}}, "expected a time; got block, unroll"),
        ({**CACHE, "cache": {"x": {"block": 16, "unroll": 1, "time": "no"}}}, "expected milliseconds or one of Comp"),
        ({**CACHE, "tune_params": {"block": [10**400], "unroll": [1]}}, "expected a finite number, a text"),
        ({**T4, "results": [{**T4["results"][0], "invalidity": []}]}, "invalidity '[]'; expected one of correct"),
        ({**T4, "metadata": {"timeunit": "weeks"}}, "unit 'weeks' of times; expected one of seconds"),
        ({**T4, "results": [{**T4["results"][0], "invalidity": "odd"}]}, "invalidity 'odd'; expected one of correct"),
        ({**T4, "results": [{**T4["results"][0], "measurements": []}]}, "expected a measurement called time; got none"),
        (
            {**T4, "results": [*T4["results"], {**T4["results"][0], "configuration": {"block": 1}}]},
            "result 2: expected the knobs block, unroll; got block",
        ),
        ({**TRITON, "configs_timings": [1]}, "expected pairs of a configuration and timings, got '1'"),
        (HELION.replace("perf_ms", "perf"), "expected rows with the columns status, perf_ms, config"),
        (HELION.replace("[64, 32]", "[64, "), "line 3: expected Config(name=value, …)"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_these_is_refused_in_one_line(
    tmp_path: Path, data: dict[str, Any] | str, said: str
) -> None:
    path = written(tmp_path / "bad.json", data)
    with pytest.raises(LogError) as refused:
        read_tables(path)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


BYTES = {"torn": gzip.compress(b"x" * 1000)[:-9], "no gzip": b"\x1f\x8bxx", "no text": b"\xff\xfe{"}


# Names of tests come from no data: gzip keeps the time in its header.
@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"bad\.json"):
        read_tables(path)


def test_a_table_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="cannot write"):
        write_table(tmp_path / "file" / "table.json", small_table(), "t4")


def test_the_cache_of_triton_s_autotuner_is_read(tmp_path: Path) -> None:
    (table,) = read_tables(written(tmp_path / "add_kernel.autotune.json", TRITON))
    assert table.kernel == "add_kernel 4096 torch.float16"
    assert table.names == ("BLOCK", "num_warps", "num_stages", "num_ctas")
    assert [(t.point, t.seconds) for t in table.trials] == [((64, 4, 3, 1), 5e-4), ((128, 8, 3, 1), None)]


def test_the_log_of_helion_s_autotuner_is_a_table_for_each_run(tmp_path: Path) -> None:
    first, second = read_tables(written(tmp_path / "log.csv", HELION))
    assert first.names == ("block_sizes.0", "block_sizes.1", "indexing", "num_warps", "loop_orders.0")
    assert [(t.point, t.seconds) for t in first.trials] == [
        ((64, 32, "pointer", 4, None), 5e-4),
        ((16, None, "pointer", 8, "[1, 0]"), None),
    ]
    assert [(t.point, t.seconds, t.compile_s) for t in second.trials] == [((64, 32, 4), 2.5e-4, 0.2)]


def test_what_helion_writes_beside_its_log_names_kernel_and_device(tmp_path: Path) -> None:
    run = {"run_id": "r2", "kernel_name": "add", "input_shapes": "(4096,)", "hardware": "NVIDIA H100"}
    written(tmp_path / "log.meta.jsonl", json.dumps(run) + '\n{"run_id": "r1"')
    first, second = read_tables(written(tmp_path / "log.csv", HELION))
    assert (first.kernel, first.device) == ("Helion run r1", "")
    assert (second.kernel, second.device) == ("add (4096,)", "NVIDIA H100")


@every_format
def test_a_log_becomes_a_table_and_a_log_again(tmp_path: Path, format: Format) -> None:
    records = [record(16, 2e-3), record(32, None), record(64, 1e-3)]
    (table,) = tables_of(records)
    assert table.names == ("sketch", "backend", "tile.0", "tile.1", "warps")
    write_table(tmp_path / "table.json", table, format)
    back = records_of(*read_tables(tmp_path / "table.json"))
    assert [(r.key, r.schedule, r.measurement.status, r.measurement.latencies_s) for r in back] == [
        (r.key, r.schedule, r.measurement.status, r.measurement.latencies_s) for r in records
    ]
    assert [r.provenance for r in back] == [dataclasses.replace(records[-1].provenance, trial=n) for n in range(3)]


@every_format
def test_every_way_to_fail_survives_a_file(tmp_path: Path, format: Format) -> None:
    failed = [s for s in STATUSES if s != "ok"]
    trials = tuple(RecordedTrial((block,), None, status) for block, status in enumerate(failed))
    table = dataclasses.replace(
        small_table(), names=("block",), values=(tuple(range(len(failed))),), trials=trials, problem_size=()
    )
    write_table(tmp_path / "table.json", table, format)
    assert [t.status for t in read_tables(tmp_path / "table.json")[0].trials] == failed


def test_a_log_of_several_devices_is_several_tables(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "tuning.jsonl")
    log.append(record(16), record(16, target=A100), record(32))
    assert [(t.device, len(t.trials)) for t in read_tables(log.path)] == [("NVIDIA H200", 2), (A100.device, 1)]


def test_another_tuner_s_table_makes_no_records() -> None:
    with pytest.raises(ValueError, match="of another tuner's kernel no tuning record can be made"):
        records_of(small_table())


def test_points_of_another_space_are_fitted_to_this_one() -> None:
    space = PlainSpace({"unroll": (1, 2), "block": (16, 32), "mode": ("fast",)})
    names, points = ("block", "unroll", "shared"), [(16, 1, 0), (16, 1, 1), (64, 1, 0), (32, 2, 0)]
    found = fitted(names, points, [3.0, 2.0, 1.0, None], space)
    assert found.points == ((1, 16, "fast"), (2, 32, "fast"))
    assert found.seconds == (2.0, None)
    assert found.remarks == (
        "knobs that the space has not were left out: shared",
        "1 of 4 points with values that the space has not were left out",
    )


def test_a_knob_without_choice_is_left_out_without_a_remark() -> None:
    found = fitted(("block", "device"), [(16, 0), (32, 0)], [1.0, 2.0], PlainSpace({"block": (16, 32)}))
    assert found.remarks == ()


def test_points_that_lack_a_knob_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected a value of the knob vector \(\[1, 2\]\); got the knobs block"):
        small_table().fitted_to(PlainSpace({**KNOBS, "vector": (1, 2)}))
