"""Records parts of search spaces whole, on the H200 that is here: each table as a compressed log, and one line printed.

python tests/support/records/record_table.py FOLDER [--tables h200_softmax,h200_few_rows] [--seconds 45]

A table that is not whole when its time has passed is not written. Of every trial the median is kept.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import recorded_spaces
from autosched.backends.generator import generator_hash
from autosched.machine import devices
from autosched.measuring import LocalMeasurer
from search_spaces import Schedule, SearchSpace
from tuning_logs import Measurement, Provenance, TuningLog, TuningRecord
from tuning_logs.text import duration_text


def measured(
    measurer: LocalMeasurer, space: SearchSpace, schedules: Sequence[Schedule], seconds: float
) -> list[Measurement | None]:
    """What the schedules took, in order; None for those that were not measured in time."""
    futures = measurer.submit(space.workload, schedules)
    wait(futures, seconds)
    measurer.cancel()
    wait([future for future in futures if not future.cancelled()])
    return [None if future.cancelled() else future.result() for future in futures]


def slim(measurement: Measurement) -> Measurement:
    """What searches look at."""
    latencies = (measurement.undisturbed_s,) if measurement.ok else ()
    return replace(measurement, latencies_s=latencies, slowdown=1.0, facts=None, device=None)


def record(name: str, folder: Path, measurer: LocalMeasurer, seconds: float) -> str:
    """Measure a whole table, write it, and tell of it."""
    begin, space = time.perf_counter(), recorded_spaces.table_space(name)
    # In an order of chance, so that a device that grows warm does not slow some values of knobs down.
    schedules = list(space)
    schedules = [schedules[i] for i in np.random.default_rng(0).permutation(len(schedules))]
    found = measured(measurer, space, schedules, seconds)
    provenance = Provenance(generator_hash(), "cold", time.time(), 0, 0, measurer.environment)
    records = [
        TuningRecord(space.workload, space.target, s, slim(m), provenance)
        for s, m in zip(schedules, found, strict=True)
        if m is not None
    ]
    took = f"{time.perf_counter() - begin:.0f} s"
    if len(records) < len(schedules):
        return f"{name}: only {len(records)} of {len(schedules)} in {took}; not written"
    with TemporaryDirectory() as scratch:
        log = TuningLog(Path(scratch) / "table.jsonl")
        log.append(*records)
        path = folder / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress(log.path.read_bytes(), mtime=0))
    latencies = np.array([r.measurement.latency_s for r in records if r.measurement.ok])
    best, median, worst = (duration_text(float(np.quantile(latencies, q))) for q in (0.0, 0.5, 1.0))
    near = int((latencies <= latencies.min() / 0.95).sum())
    statuses = dict(Counter(r.measurement.status for r in records))
    size = f"{path.stat().st_size / 1024:.0f} KiB"
    return f"{name}: {statuses}, {best} to {worst}, median {median}, {near} within 5 %, {took}, {size}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default=",".join(recorded_spaces.PARTS))
    parser.add_argument("--seconds", type=float, default=45.0, help="that each table may take at most")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with LocalMeasurer(devices.detect()) as measurer:
        for name in arguments.tables.split(","):
            print(record(name, arguments.folder, measurer, arguments.seconds), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
