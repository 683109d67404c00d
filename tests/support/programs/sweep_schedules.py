"""Looks for schedules of random workloads that compute something else than they should:

python tests/support/programs/sweep_schedules.py --first 0 --count 1000 --samples 6 [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from pathlib import Path

sys.path.extend(map(str, Path(__file__).parents[1].glob("*")))
from autosched.machine import devices
from random_workloads import random_workload
from schedule_checks import HERE, faults
from search_spaces import EmptySearchSpaceError

# One thread, and several that share a grid.
ON_A_CPU = (HERE, dataclasses.replace(HERE, threads=3, num_sms=3))


def main() -> int:
    """Print what is wrong, one line each; how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 0), ("count", 100), ("samples", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    targets = ON_A_CPU if given.device == "cpu" else (devices.detect(),)
    seen: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        workload = random_workload(seed)
        seen[workload.name] += 1
        try:
            found = faults(workload, given.samples, seed, targets[seed % len(targets)])
        except EmptySearchSpaceError as error:
            seen["none"] += 1
            print(f"seed {seed}, {workload.name}: {str(error).splitlines()[0]}", flush=True)
            continue
        seen["faulty"] += bool(found)
        for fault in found[:2]:
            print(f"seed {seed}, {workload.name}: {len(found)} faulty; {fault}", flush=True)
    print(dict(seen))
    return seen["faulty"] + seen["none"]


if __name__ == "__main__":
    sys.exit(min(main(), 1))
