"""Convolutions by halos in shared memory, and by any other schedule, tuned alike and timed against the library.

python tests/figures/halos.py [--trials 200] [--only REGEX] [--dtype bfloat16]

A row for each layer and kind of schedule: the best latency, the library's in turn with it, and the schedule. Searches
are warm as users' are: records of other schedules ship, and none of halos.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import autosched
from autosched import backends, ops
from autosched.backends import spaces
from autosched.machine import devices
from autosched.strategies.evolutionary import Evolutionary
from cost_models import CostModel
from search_spaces import SearchSpace, Workload
from search_spaces.programs.halos import HALO
from tuning_logs.text import duration_text, table_lines

# Images, channels, rows and columns, filters, groups.
LAYERS = {
    "64x56": (32, 64, 56, 64, 1),
    "128x28": (32, 128, 28, 128, 1),
    "256x14": (32, 256, 14, 256, 1),
    "512x7": (32, 512, 7, 512, 1),
    "192x64-g12": (32, 192, 64, 192, 12),
    "256x28-g32": (32, 256, 28, 256, 32),
    "128x56-g32": (32, 128, 56, 128, 32),
}
HEAD = ("layer", "schedules", "best", "of the library", "schedule")


def layer(n: int, c: int, size: int, k: int, groups: int, dtype: str) -> Workload:
    return ops.conv(n, c, (size, size), k, (3, 3), padding=1, groups=groups, dtype=dtype)


def limited(halos: bool, space: SearchSpace, model: CostModel, rng: np.random.Generator) -> Evolutionary:
    """The default search among the schedules with halos, of the backend that has them, or without them."""
    if halos:
        space = spaces.build(space.workload, space.target, [backends.named("cuda")])
    knobs = {k.name: k.values for k in space.sketch("contraction").knobs}
    allowed = {x: [v for v in knobs[x] if (v == HALO) is halos] for x in ("a_load", "b_load") if HALO in knobs[x]}
    return Evolutionary(space.restricted("contraction", **allowed), model, rng)


def row(name: str, workload: Workload, halos: bool, trials: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "halos.jsonl")
        found = autosched.tune(workload, devices.detect(), trials, strategy=partial(limited, halos), log=log)
    kind = "halos" if halos else "others"
    if found.best is None or found.latency_s is None:
        return name, kind, "none", "", str(found.failures)
    ratio = f"{found.speedup:.2f}" if found.speedup else ""
    return name, kind, duration_text(found.latency_s), ratio, f"{found.best.backend} {found.best.schedule.one_line}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--only", default="", help="layers whose names match")
    parser.add_argument("--dtype", default="bfloat16")
    arguments = parser.parse_args()
    rows = [HEAD]
    for name, sizes in LAYERS.items():
        if re.search(arguments.only, name):
            workload = layer(*sizes, arguments.dtype)
            rows += [row(name, workload, halos, arguments.trials) for halos in (True, False)]
            print("\n".join(table_lines(rows[-2:], right=(2, 3))), flush=True)
    print("\n".join(table_lines(rows, right=(2, 3))))


if __name__ == "__main__":
    main()
