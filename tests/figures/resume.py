"""What resuming a search costs: every schedule that the log knows is printed, to see whether its kernel is the same.

python tests/figures/resume.py                    1,000 records each of some workloads, for an H200 and for this CPU
python tests/figures/resume.py --records 10000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from autosched import cpu_target
from autosched.backends.reproduction import fingerprint_of
from autosched.tuning.searching.preparation import prepare
from search_spaces import Target, Workload, ops, target_named
from tuning_logs import CompileFacts, Measurement, Provenance, TuningLog, TuningRecord

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces

WORKLOADS = (
    ops.matmul(4096, 4096, 4096, dtype="float16"),
    ops.matmul(512, 512, 512),
    ops.matmul(512, 512, 512, epilogue="bias_gelu"),
    ops.softmax(4096, 1024),
    ops.layernorm(4096, 1024),
)


def write_known(path: Path, op: Workload, target: Target, count: int) -> None:
    """A log of so many distinct schedules, or of all that there are, as if this version had measured them."""
    space, rng = best_spaces.build(op, target), np.random.default_rng(0)
    schedules = dict.fromkeys(space.sample(rng) for _ in range(count + count // 4))
    TuningLog(path).append(
        *(
            TuningRecord(
                op,
                target,
                schedule,
                Measurement("ok", (1e-3,), facts=CompileFacts(0.5, source=fingerprint_of(schedule, target))),
                Provenance("another", "cold", 1.0, 0, number),
            )
            for number, schedule in enumerate(list(schedules)[:count])
        )
    )


def resume_s(path: Path, op: Workload, target: Target) -> tuple[float, int]:
    """Seconds of one core until the search can begin, and how many schedules it knows then."""
    begin = time.process_time()
    search = prepare(
        op,
        target,
        1,
        strategy="random",
        cost_model="random",
        seed=0,
        log=path,
        policy="cold",
        measured_elsewhere=True,
    )
    return time.process_time() - begin, search.known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        for target in (target_named("h200"), cpu_target()):
            for op in WORKLOADS:
                path = Path(folder) / f"{target.name}-{op.key}.jsonl"
                if op.outputs[0].dtype == "float16" and target.kind == "cpu":
                    continue
                write_known(path, op, target, records)
                seconds, known = resume_s(path, op, target)
                print(f"{target.name:5} {op.label:70} {known:6,} known in {seconds:5.2f} s", flush=True)


if __name__ == "__main__":
    main()
