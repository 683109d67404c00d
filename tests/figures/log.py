"""How a large tuning log behaves: time to open it and ask for the best, memory, and writers that race, as one table.

python tests/figures/log.py                       a log of 1,000,000 records; about 2 GB under the temporary folder
python tests/figures/log.py --records 100000 --folder /var/tmp
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from search_spaces import Schedule, SearchSpace, ops, target_named
from tuning_logs import CompileFacts, Measurement, Provenance, TuningLog, TuningRecord

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from best_spaces import build
from log_records import WRITER, run_python

TARGETS = tuple(map(target_named, ("h200", "h100", "a100", "rtx4090")))
WORKLOADS = (
    *(ops.matmul(n, n, k, dtype="bfloat16") for n in (1024, 2048, 4096) for k in (1024, 4096)),
    ops.matmul(4096, 4096, 4096, dtype="bfloat16", epilogue="bias_gelu"),
    *(ops.softmax(rows, columns) for rows in (1024, 4096) for columns in (1024, 4096)),
    ops.layernorm(16384, 768, dtype="bfloat16"),
)
ASKED = WORKLOADS[4], TARGETS[0], "cold"
# A search writes so many trials, a twentieth of them failures, and then its finals.
SEARCH_TRIALS, FAILURES, FINALISTS = 1000, 0.05, 5
WRITERS, PER_WRITER = 8, 1000
VERSIONS = (("python", "3.12.3"), ("torch", "2.11.0+cu130"), ("triton", "3.6.0"), ("driver", "580.159.04"))


def searches(random_: random.Random) -> Iterator[list[TuningRecord]]:
    """Without end: the records of one search each, of every workload and target in turn."""
    spaces = [build(workload, target) for workload in WORKLOADS for target in TARGETS]
    for number in range(sys.maxsize):
        space = spaces[number % len(spaces)]
        generator = f"generator{number // len(spaces) % 2}"
        trials = [trial(space, generator, i, random_) for i in range(SEARCH_TRIALS)]
        ranked = sorted((r for r in trials if r.measurement.ok), key=lambda r: r.measurement.latency_s)
        yield trials + [final(r, 1 + number // len(spaces), random_) for r in ranked[:FINALISTS]]


def trial(space: SearchSpace, generator: str, number: int, random_: random.Random) -> TuningRecord:
    sketch = random_.choice(space.sketches)
    schedule = Schedule(sketch.name, tuple((k.name, random_.choice(k.values)) for k in sketch.knobs))
    facts = CompileFacts(0.5 + random_.random(), random_.randrange(255), 0, 1024 * random_.randrange(200))
    if random_.random() < FAILURES:
        measurement = Measurement("run_error", detail="too many resources requested for launch", facts=facts)
    else:
        measurement = Measurement("ok", latencies(random_), facts=facts, max_error=random_.random(), seconds=0.05)
    provenance = Provenance(generator, "cold", time.time(), 0, number, VERSIONS)
    return TuningRecord(space.workload, space.target, schedule, measurement, provenance)


def latencies(random_: random.Random) -> tuple[float, ...]:
    true = 1e-4 * random_.lognormvariate(0.5, 0.5)
    return tuple(true * random_.gauss(1, 0.01) for _ in range(12))


def final(record: TuningRecord, round_number: int, random_: random.Random) -> TuningRecord:
    origin = record.provenance
    provenance = Provenance(origin.generator, "cold", time.time(), 0, origin.trial, VERSIONS, round_number)
    return TuningRecord(
        record.workload, record.target, record.schedule, Measurement("ok", latencies(random_)), provenance
    )


def write(log: TuningLog, records: int) -> None:
    left = records
    for search in searches(random.Random(0)):
        log.append(*islice(search, left))
        left -= min(left, len(search))
        if not left:
            return


QUESTIONS = ("best", "records", "nearest", "iterate")


def ask(path: Path, question: str) -> None:
    """Print how long one question takes, the log opened for it, and the largest memory of this process in MB."""
    workload, target, policy = ASKED
    start = time.perf_counter()
    log = TuningLog(path)
    if question == "best":
        found = int(log.best(workload, target, policy) is not None)
    elif question == "records":
        found = len(log.records(workload, target, policy))
    elif question == "nearest":
        found = len(log.nearest(workload, target, 1000))
    else:
        found = sum(1 for _ in log)
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, found]))


def asked(path: Path, question: str) -> str:
    """What `ask` says in a fresh process."""
    command = [sys.executable, __file__, "--ask", question, "--log", str(path)]
    seconds, megabytes, found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return f"{seconds:8.2f} s   {megabytes:5.0f} MB peak   {found:,} found"


def stress(folder: Path) -> str:
    log = TuningLog(folder / "stress.jsonl")
    start = time.perf_counter()
    writers = [run_python(WRITER, str(log.path), f"writer {i}", str(PER_WRITER)) for i in range(WRITERS)]
    for writer in writers:
        writer.communicate()
    seconds = time.perf_counter() - start
    lines = log.path.read_bytes().count(b"\n")
    distinct = len({(r.provenance.generator, r.provenance.trial) for r in log})
    return f"{seconds:8.2f} s   {lines:,} lines, {distinct:,} distinct records of {WRITERS * PER_WRITER:,}"


def figures(records: int, folder: Path) -> None:
    log = TuningLog(folder / "tuning.jsonl")
    start = time.perf_counter()
    write(log, records)
    seconds, size = time.perf_counter() - start, log.path.stat().st_size
    print(f"log of {records:,} records:   {size:,} bytes, {size / records:.0f} a record, written in {seconds:.0f} s")
    print(f"first best (indexes)       {asked(log.path, 'best')}")
    print(f"index                      {Path(f'{log.path}.index').stat().st_size:,} bytes")
    for question in QUESTIONS:
        print(f"{question:<27}{asked(log.path, question)}")
    log.append(*next(searches(random.Random(1)))[:1000])
    print(f"best after 1,000 more      {asked(log.path, 'best')}")
    print(f"{WRITERS} writers x {PER_WRITER:,} appends  {stress(folder)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the log is made, and deleted again")
    parser.add_argument("--ask", choices=QUESTIONS, help="ask --log one question (used by this script itself)")
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    if arguments.ask:
        ask(arguments.log, arguments.ask)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        figures(arguments.records, Path(folder))


if __name__ == "__main__":
    main()
