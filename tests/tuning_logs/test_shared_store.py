"""A shared store: a part for each writer, merged by whoever reads, and half-written ones left alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from log_records import record
from search_spaces import InputError
from tuning_logs import TuningLog
from tuning_logs.several.shared_store import SharedStore, part_name


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "store")
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'autosched[store]'")
    return f"memory://{tmp_path.name}"


def log_of(path: Path, *latencies: float) -> TuningLog:
    log = TuningLog(path)
    log.append(*(record(latency) for latency in latencies))
    return log


def latencies(log: TuningLog) -> list[float]:
    return sorted(r.measurement.latency_s for r in log)
