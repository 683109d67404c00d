"""Tuning records for tests of the log, which tell them apart by their tile, and processes that use a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from search_spaces import Schedule, Target, Workload, ops, target_named
from tuning_logs import Measurement, Provenance, TuningRecord

H200, A100 = target_named("h200"), target_named("a100")
SMALL = ops.matmul(64, 64, 64)


def record(
    tile: int = 16,
    latency_s: float | None = 1e-3,
    workload: Workload = SMALL,
    target: Target = H200,
    generator: str = "g1",
    policy: str = "cold",
    finals: int = 0,
) -> TuningRecord:
    measurement = Measurement("ok", (latency_s,)) if latency_s else Measurement("run_timeout", detail="too slow")
    provenance = Provenance(generator, policy, 1.0, 0, tile, (("python", "3.11"),), finals)
    return TuningRecord(
        workload, target, Schedule("tiled", (("tile", (4, tile)), ("warps", 4))), measurement, provenance
    )


def tiles(records: Iterable[TuningRecord]) -> list[int]:
    """Which records these are, told by their inner tile."""
    return [tile[1] for r in records if isinstance(tile := r.schedule.knobs["tile"], tuple)]


def line_of(record: TuningRecord) -> bytes:
    """What a log holds of a record, without the line end."""
    return json.dumps(record.to_json()).encode()


def run_python(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs a script; what it prints can be read."""
    paths = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


# Appends records one by one and acknowledges each: arguments are the log, the writer's name, and how many.
WRITER = """
import sys
from log_records import record
from tuning_logs import TuningLog
path, name, count = sys.argv[1:]
log = TuningLog(path)
for i in range(int(count)):
    log.append(record(i + 1, generator=name))
    print(i + 1, flush=True)
"""
