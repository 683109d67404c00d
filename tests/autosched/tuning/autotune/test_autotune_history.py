"""What others measured of a user's kernel, as history of its search."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

from autosched.strategies.bayesian import History
from autosched.tuning.autotune.kernel_records import tables_of_kernel, told_elsewhere
from log_records import record
from recorded_tables import small_table
from search_spaces import InputError, LogError, Schedule, target_named
from search_spaces.schedules.plain_space import PlainSpace
from tuning_logs import Measurement, OwnKernel, Provenance, TuningLog, TuningRecord
from tuning_logs.exchange.files import write_table

SPACE = PlainSpace({"BLOCK": (32, 64, 128), "num_warps": (4, 8)})


def triton_cache(folder: Path) -> Path:
    timings = [[{"kwargs": {"BLOCK": block}, "num_warps": 4, "num_ctas": 1}, [64 / block]] for block in (32, 64, 256)]
    path = folder / "scale.autotune.json"
    path.write_text(json.dumps({"key": [4096], "configs_timings": timings}))
    return path


def histories(paths: Sequence[Path], kernel: str = "scale") -> list[History]:
    return told_elsewhere(tables_of_kernel(paths, kernel), SPACE)


def test_what_triton_s_autotuner_keeps_is_history(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="history= scale 4096: 1 of 3 points with values that the space has not"):
        (found,) = histories([triton_cache(tmp_path)])
    assert (found.points, found.seconds) == (((32, 4), (64, 4)), (2e-3, 1e-3))


def test_of_a_tuning_log_the_kernels_of_the_same_name_count(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "colleague.jsonl")
    schedule = Schedule("own", (("BLOCK", 32), ("num_warps", 4)), backend="triton")
    measured, told = Measurement("ok", (1e-3,)), Provenance("g", "cold", 1.0, 0, 0)
    names = ("scale", "other")
    log.append(
        *(TuningRecord(OwnKernel(n, n), target_named("a100"), schedule, measured, told) for n in names), record()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = histories([log.path])
    assert (found.device, found.points) == ("NVIDIA A100-SXM4-80GB", ((32, 4),))


def test_a_table_that_lacks_a_knob_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "other.json", small_table(), "t4")
    with pytest.raises(InputError, match="history= scale on Imaginary GPU: expected a value of the knob BLOCK"):
        histories([tmp_path / "other.json"])


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("notes")
    with pytest.raises(LogError, match="expected a Kernel Tuner cache"):
        histories([tmp_path / "notes.json"])
