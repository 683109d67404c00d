"""The fault table: every fault planted, the status it was recorded with, and the trials that were lost over it.

python tests/figures/faults.py          on the CPU with a backend that plants them, and in real kernels where a GPU is
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits
from search_spaces import Schedule, Target, Workload
from tuning_logs import Measurement, TuningLog
from tuning_logs.text import table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import fake_backend
import faulty_triton_backend
import planted_search


def fault_table(
    faults: dict[str, tuple[str, str]],
    schedule: Callable[[str], Schedule],
    workload: Workload,
    target: Target,
    backend: str,
    limits: TrialLimits,
) -> bool:
    """Measure every fault, each followed by a kernel that is right; whether all came out as they should."""
    pairs = [(schedule(fault), schedule(f"is fine:{number}")) for number, fault in enumerate(faults)]
    submitted = [s for pair in pairs for s in pair]
    with tempfile.TemporaryDirectory() as folder:
        log, started = TuningLog(Path(folder) / "tuning.jsonl"), time.perf_counter()
        with LocalMeasurer(target, limits=limits, backend=backend) as measurer:
            planted_search.planted_search(log, workload, target, submitted, measurer)
        seconds = time.perf_counter() - started
        logged = [r for r in log if not r.provenance.finals]
    times = Counter(r.schedule for r in logged)
    found = {r.schedule: r.measurement for r in logged}
    rows = [_row(fault, good, found) for fault, good in pairs]
    lost = [s for s in submitted if s not in times]
    print(f"{target.device}: {len(submitted)} trials in {seconds:.1f} s, half of them faults")
    print("\n".join(table_lines([("fault planted", "status recorded", "next trial", "trials lost"), *rows])))
    expected = all(
        found[f].status == faults[f.sketch][0] and found[g].ok for f, g in pairs if f in found and g in found
    )
    twice = [s for s, count in times.items() if count > 1]
    print(f"submitted {len(submitted)}, logged {len(logged)}, lost {len(lost)}, twice {len(twice)}\n")
    return expected and not lost and not twice


def _row(fault: Schedule, good: Schedule, found: dict[Schedule, Measurement]) -> tuple[str, ...]:
    lost = sum(s not in found for s in (fault, good))
    statuses = [found[s].status if s in found else "none" for s in (fault, good)]
    return fault.sketch, *statuses, str(lost)


def main(arguments: Sequence[str]) -> int:
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    cpu_limits = TrialLimits(compile_timeout_s=2.0, run_timeout_s=2.0, compile_workers=1)
    right = fault_table(
        planted_search.FAULTS,
        fake_backend.schedule,
        fake_backend.doubling(),
        devices.cpu_target(),
        fake_backend.LOCATION,
        cpu_limits,
    )
    if torch.cuda.is_available():
        right &= fault_table(
            faulty_triton_backend.FAULTS,
            faulty_triton_backend.schedule,
            faulty_triton_backend.doubling(),
            devices.gpu_target(),
            faulty_triton_backend.LOCATION,
            TrialLimits(compile_timeout_s=20.0, run_timeout_s=5.0, compile_workers=4),
        )
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
