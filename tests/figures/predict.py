"""How good predictions are: five shapes of which the model knows no record, each with 200 measured schedules to rank.

python tests/figures/predict.py measure LOG     measures the schedules on the GPU that is here, and shows the table
python tests/figures/predict.py show LOG        the table of what was measured before; needs no GPU
python tests/figures/predict.py devices LOG     schedules of this machine's CPU, ranked by what was learnt on an H200
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autosched import ops
from autosched.backends import spaces
from autosched.backends.environment import environment
from autosched.backends.generator import generator_hash
from autosched.machine import devices
from autosched.machine.cores import usable_cores
from autosched.measuring import LocalMeasurer
from autosched.tuning.learning import MOST_HELD_OUT, Errors, Lessons, lessons
from autosched.tuning.predict import makers, proposed, why_behind
from cost_models.corrected_estimate import CorrectedEstimate
from search_spaces import Schedule, Target, Workload
from tuning_logs import Provenance, TuningLog, TuningRecord, shipped_logs
from tuning_logs.ranking import standing
from tuning_logs.shape_distance import shape_distance
from tuning_logs.text import table_lines

SCHEDULES = 200
FIRST = 10
SEED = 0
_ON_CPU = (
    ops.matmul(512, 512, 512),
    ops.matmul(300, 700, 400, layout="nt", epilogue="bias_gelu"),
    ops.softmax(1024, 1024),
    ops.layernorm(2048, 768),
    ops.row_sum(4096, 512),
)
_ON_CPU_SCHEDULES = 80
_ATTENTION = "plain_bmm_1 64x2048x64"
_COLUMNS = (
    "workload",
    "taught",
    "new is its",
    "ran",
    "first",
    "best of ten",
    "random one",
    "correlation",
    "of random ones",
    "within interval",
)


def workloads() -> tuple[Workload, ...]:
    """Three products, attention, and an operator of which no record ships."""
    return (
        ops.matmul(4096, 4096, 4096, dtype="float16", layout="nn"),
        ops.matmul(2048, 4096, 14336, dtype="bfloat16", layout="nt"),
        ops.matmul(128, 4096, 4096, dtype="bfloat16", layout="nt"),
        next(w for w in _shipped() if w.label.startswith(_ATTENTION)),
        ops.softmax(4096, 4096),
    )


def _shipped() -> Iterator[Workload]:
    return (next(iter(TuningLog(path))).workload for path in shipped_logs())


def lessons_without(op: Workload, target: Target) -> Lessons:
    """What predictions learn from, but for every record of this shape, whatever its element types."""
    with tempfile.TemporaryDirectory() as folder:
        taught = lessons([Path(folder) / "none.jsonl", *shipped_logs()], op, target, "cold")
    others = tuple(r for r in taught.records if shape_distance(r.workload, op) > 0)
    return dataclasses.replace(taught, records=others)


def chosen(op: Workload, target: Target, count: int) -> list[Schedule]:
    """Half of them drawn at random, half what prediction would propose."""
    taught, model = lessons_without(op, target), CorrectedEstimate(SEED, spaces.build)
    space = spaces.build(op, target, makers(taught, target, None))
    found = proposed(space, model, taught.records, (), SEED)
    latencies = model.latencies_s(space, found)
    schedules = dict.fromkeys(found[n] for n in np.argsort(latencies, kind="stable")[: count // 2])
    rng = np.random.default_rng(SEED)
    for _ in range(100 * count):
        if len(schedules) == count:
            break
        schedules.setdefault(space.sample(rng))
    return list(schedules)


def measure(path: Path) -> None:
    """Measure the schedules of every workload, the next ones being chosen meanwhile."""
    target, log, begin = devices.detect(), TuningLog(path), time.perf_counter()
    origin = Provenance(generator_hash(), "cold", time.time(), SEED, 0, environment(target))
    with ThreadPoolExecutor(1) as thread, LocalMeasurer(target) as measurer:
        running = []
        for op in workloads():
            schedules = chosen(op, target, SCHEDULES)
            running.append((op, schedules, thread.submit(measurer.measure, op, schedules)))
        for op, schedules, future in running:
            results = future.result()
            log.append(*(TuningRecord(op, target, s, m, origin) for s, m in zip(schedules, results, strict=True)))
            ran = sum(m.ok for m in results)
            print(f"{op.label}: {ran} of {len(results)} ran, {time.perf_counter() - begin:.0f} s", flush=True)


def show(path: Path) -> None:
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in TuningLog(path):
        groups.setdefault(record.key, []).append(record)
    with ProcessPoolExecutor(min(len(groups), len(usable_cores()))) as processes:
        rows = list(processes.map(_row, [standing(g) for g in groups.values()]))
    for line in table_lines([_COLUMNS, *rows], right=range(1, len(_COLUMNS))):
        print(line)
    print(
        "first, best of ten: of the measured schedules, how many times the best's time the one predicted to be fastest "
        "takes, and the best of the first ten; random one: the median of those drawn at random"
    )


def _row(records: Sequence[TuningRecord]) -> tuple[str, ...]:
    op, target = records[0].workload, records[0].target
    taught = lessons_without(op, target)
    space, model = spaces.build(op, target), CorrectedEstimate(SEED, spaces.build)
    model.fit(space, taught.records)
    errors = Errors.of(model.held_out(space, taught.records, taught.resemble, MOST_HELD_OUT))
    ran = [r for r in records if r.measurement.ok]
    predicted = model.latencies_s(space, [space.bind(r.schedule) for r in ran])
    measured = np.array([r.measurement.latency_s for r in ran])
    behind = np.array([bool(r.measurement.facts and why_behind(r.measurement.facts, target)) for r in ran])
    order = np.lexsort((predicted, behind))
    ratios = (measured / predicted)[order[:FIRST]]
    drawn = np.array([n >= SCHEDULES // 2 for n, r in enumerate(records) if r.measurement.ok])
    return (
        op.label,
        str(len(taught.records)),
        taught.novelty,
        f"{len(ran)}/{len(records)}",
        f"{measured[order[0]] / measured.min():.3f}",
        f"{measured[order[:FIRST]].min() / measured.min():.3f}",
        f"{np.median(measured[drawn]) / measured.min():.2f}",
        f"{_rank_correlation(predicted, measured):.2f}",
        f"{_rank_correlation(predicted[drawn], measured[drawn]):.2f}",
        f"{sum((errors.low <= ratios) & (ratios <= errors.high))}/{len(ratios)} ({errors.low:.2f}–{errors.high:.2f})",
    )


def other_devices(path: Path) -> None:
    """Random schedules of this CPU, ranked by what was learnt on an H200 alone, and by what other shapes here teach."""
    target, log = devices.cpu_target(), TuningLog(path)
    origin = Provenance(generator_hash(), "cold", time.time(), SEED, 0, environment(target))
    with LocalMeasurer(target) as measurer:
        for op in _ON_CPU:
            if not log.records(op, target):
                space, rng = spaces.build(op, target), np.random.default_rng(SEED)
                drawn = list(dict.fromkeys(space.sample(rng) for _ in range(_ON_CPU_SCHEDULES)))
                measured = zip(drawn, measurer.measure(op, drawn), strict=True)
                log.append(*(TuningRecord(op, target, s, m, origin) for s, m in measured))
    h200 = [r for path in shipped_logs() for r in standing(TuningLog(path))]
    rows = [("workload", "learnt from", "ran", "first", "best of ten", "correlation")]
    for op in _ON_CPU:
        ran = [r for r in log.records(op, target) if r.measurement.ok]
        here = [r for r in log.records(None, target) if r.workload.key != op.key]
        for name, records in (
            ("nothing", []),
            ("an H200", h200),
            ("other shapes here", here),
            ("both", [*h200, *here]),
        ):
            rows.append((op.label, name, str(len(ran)), *_ranking(ran, records)))
    for line in table_lines(rows, right=range(2, 6)):
        print(line)


def _ranking(ran: Sequence[TuningRecord], records: Sequence[TuningRecord]) -> tuple[str, str, str]:
    """How a model of these records ranks what was measured."""
    op, target = ran[0].workload, ran[0].target
    space, model = spaces.build(op, target), CorrectedEstimate(SEED, spaces.build)
    model.fit(space, records)
    predicted = model.latencies_s(space, [space.bind(r.schedule) for r in ran])
    measured = np.array([r.measurement.latency_s for r in ran])
    first = measured[np.argsort(predicted, kind="stable")[:FIRST]] / measured.min()
    return f"{first[0]:.3f}", f"{first.min():.3f}", f"{_rank_correlation(predicted, measured):.2f}"


def _rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's."""
    ranks = [np.argsort(np.argsort(x, kind="stable"), kind="stable") for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show", "devices"])
    parser.add_argument("log", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "devices":
        other_devices(arguments.log)
        return 0
    if arguments.what == "measure":
        if devices.detect().kind != "gpu":
            print("expected a GPU, found none; `show` needs what was measured on one", file=sys.stderr)
            return 2
        measure(arguments.log)
    show(arguments.log)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
