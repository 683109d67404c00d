"""How much two sessions differ by though nothing has changed: what a difference between logs must exceed to count.

python tests/figures/sessions.py [LOG…]

Of the records that ship, or of these logs: every kernel, source and all, that was timed in the finals of two sessions
or more.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

from tuning_logs import shipped_logs
from tuning_logs.several.merging import records_at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", type=Path)
    logs = parser.parse_args().logs or shipped_logs()
    sessions: dict[tuple[object, ...], dict[int, float]] = defaultdict(dict)
    for record in (record for log in logs for record in records_at(log)):
        measured = record.measurement
        if measured.ok and measured.source and record.provenance.finals:
            kernel = (*record.key, record.provenance.policy, record.schedule, measured.source)
            sessions[kernel][record.provenance.finals] = measured.latency_s
    apart = [max(a, b) / min(a, b) - 1 for took in sessions.values() for a, b in combinations(took.values(), 2)]
    if not apart:
        parser.error("no kernel was timed in the finals of two sessions")
    kernels = sum(len(took) > 1 for took in sessions.values())
    print(f"{kernels} kernels in the finals of several sessions, {len(apart)} pairs; they differ by")
    for part in (50, 75, 90, 95, 100):
        print(f"  {part:3} %: at most {np.percentile(apart, part):.1%}")


if __name__ == "__main__":
    main()
