"""Small recorded tables for tests."""

from __future__ import annotations

import itertools

from tuning_logs.exchange.recorded_table import RecordedTable, RecordedTrial

KNOBS = {"block": (16, 32, 64, 128), "unroll": (1, 2, 4), "shared": (0, 1)}


def small_table(device: str = "Imaginary GPU", slower: float = 1.0) -> RecordedTable:
    """24 configurations: the fastest takes 1 ms, and the three with the most shared memory fail."""
    trials = []
    for place, point in enumerate(itertools.product(*KNOBS.values())):
        block, unroll, shared = point
        seconds = slower * 1e-3 * (1 + abs(block - 64) / 64 + abs(unroll - 2) + 0.5 * (1 - shared))
        fails = block == 128 and shared == 1
        trials.append(
            RecordedTrial(
                point=point,
                seconds=None if fails else seconds,
                status="run_error" if fails else "ok",
                repeats_s=() if fails else (seconds, 1.5 * seconds),
                compile_s=0.25,
                check_s=0.125,
                timing_s=0.5,
                search_s=0.0625,
                unix_s=1700000000.0 + place,
            )
        )
    return RecordedTable("scale", device, tuple(KNOBS), tuple(KNOBS.values()), tuple(trials), problem_size=(4096, 16))
