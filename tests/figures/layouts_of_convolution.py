"""What layouts cost: convolutions with channels first and last, weights that are prepared, images that are copied.

python tests/figures/layouts_of_convolution.py [--trials 96] [--log FILE] [--only NAME ...]

Each layer is tuned once for constant weights. A row is the fastest trial of each way to lay its operands out: as given;
with weights prepared; with images copied so that channels are innermost; with both. `layers_of_convolution.py` times
cuDNN on such layers. The last column has failures of trials by status.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import autosched
from autosched.backends import spaces
from autosched.backends.environment import environment
from autosched.machine import devices
from search_spaces import Workload
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.text import duration_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from convolutions import convolution

_LAYERS = {
    "64x56x56 3x3": {"size": (56, 56), "kernel": (3, 3), "channels": 64, "filters": 64, "padding": 1},
    "256x14x14 3x3": {"size": (14, 14), "kernel": (3, 3), "channels": 256, "filters": 256, "padding": 1},
    "128x56x56 3x3 / 2": {
        "size": (56, 56),
        "kernel": (3, 3),
        "channels": 128,
        "filters": 128,
        "padding": 1,
        "stride": 2,
    },
    "stem 3x224x224 7x7 / 2": {
        "size": (224, 224),
        "kernel": (7, 7),
        "channels": 3,
        "filters": 64,
        "padding": 3,
        "stride": 2,
    },
}
_WAYS = ("as given", "weights prepared", "images copied", "both")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--log", default="layouts.jsonl")
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    target, rows = devices.gpu_target(), []
    for name, layer in _LAYERS.items():
        for layout in ("nchw", "nhwc"):
            if given.only and name not in given.only:
                continue
            plain = convolution(**layer, batch=given.batch, layout=layout)  # type: ignore[arg-type]
            op = replace(plain, inputs=tuple(replace(t, constant=t.name == "w") for t in plain.inputs))
            result = autosched.tune(op, target, trials=given.trials, log=given.log)
            rows.append(
                (f"{name} {layout}", *_latencies(op, TuningLog(given.log).records(op)), str(dict(result.failures)))
            )
            print(rows[-1], flush=True)
    print(environment(target))
    print(*table_lines([("layer", *_WAYS, "failed"), *rows]), sep="\n")


def _latencies(op: Workload, records: Iterable[TuningRecord]) -> list[str]:
    """The fastest trial of each way."""
    best: dict[str, float] = {}
    for record in records:
        if record.measurement.ok:
            program = spaces.build(op, record.target).bind(record.schedule).program
            way = _WAYS[bool(program.prepared) + 2 * (record.schedule.sketch == "relaid_contraction")]
            best[way] = min(record.measurement.latency_s, best.get(way, record.measurement.latency_s))
    return [duration_text(best[way]) if way in best else "" for way in _WAYS]


if __name__ == "__main__":
    main()
