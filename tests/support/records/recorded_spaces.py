"""Parts of search spaces on an H200 that are recorded whole, and their records: searches can be compared on them.

The tables are compressed tuning logs, tests/data/<name>.jsonl.gz; `record_table.py` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from autosched import backends, ops
from autosched.backends import spaces
from search_spaces import SearchSpace, Workload, target_named
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import TuningLog, TuningRecord

FOLDER = Path(__file__).parents[2] / "data"
MATMUL_4096 = "h200_matmul_4096"

Allowed = Mapping[str, Sequence[int | str | bool]]


@dataclass(frozen=True)
class RecordedPart:
    """A part of the space of a workload: of every sketch named, the allowed values of knobs, a tile by its last level.

    `backends` are those that made the kernels.
    """

    workload: Workload
    allowed: Mapping[str, Allowed]
    backends: tuple[str, ...] = ("triton", "cuda")

    def space(self) -> SearchSpace:
        h200 = target_named("h200")
        makers = [b for b in backends.for_target(h200) if b.name in self.backends]
        whole = spaces.build(self.workload, h200, makers)
        parts = [_part(whole, sketch, allowed) for sketch, allowed in self.allowed.items()]
        return replace(parts[0], sketches=tuple(sketch for part in parts for sketch in part.sketches))


def _part(whole: SearchSpace, sketch: str, allowed: Allowed) -> SearchSpace:
    knobs = {knob.name: knob.values for knob in whole.sketch(sketch).knobs}
    kept = {name: [v for v in knobs[name] if _last(v) in values] for name, values in allowed.items()}
    return whole.restricted(sketch, **kept)


def _last(value: KnobValue) -> KnobValue:
    return value[-1] if isinstance(value, tuple) else value


def table_space(name: str = MATMUL_4096) -> SearchSpace:
    """The part of a search space that is recorded whole."""
    return PARTS[name].space()


@cache
def read_table(name: str = MATMUL_4096) -> tuple[TuningRecord, ...]:
    """The records of a table."""
    return tuple(TuningLog(FOLDER / f"{name}.jsonl.gz"))


_PLAIN_PRODUCT: Allowed = {
    "tail": ("masked",),
    "swap": (False,),
    "order": ("row_major",),
    "b_load": ("descriptor",),
    "store": ("pointer",),
    "specialize": ("none",),
    "ctas": (1,),
    "max_registers": (0,),
}
PARTS = {
    MATMUL_4096: RecordedPart(
        ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt"),
        {
            "tiled_dot_gpu": {
                **_PLAIN_PRODUCT,
                "m": (64, 128, 256),
                "n": (64, 128, 256),
                "k": (32, 64, 128),
                "split": (1,),
                "partials": ("workspace",),
                "group": (1, 8),
                "grid": ("tiles", "persistent", "persistent_flat"),
                "per_sm": (1,),
                "subtiles": (1, 2),
                "warps": (4, 8),
                "stages": (2, 3, 4),
            }
        },
        backends=("triton",),
    ),
    "h200_few_rows": RecordedPart(
        ops.matmul(128, 4096, 4096, dtype="bfloat16", layout="nt"),
        {
            "tiled_dot_gpu": {
                **_PLAIN_PRODUCT,
                "m": (64, 128),
                "n": (64, 128, 256),
                "k": (64, 128),
                "split": (1, 2, 4, 8),
                "partials": ("workspace", "atomic"),
                "group": (8,),
                "grid": ("tiles", "stream_k"),
                "per_sm": (1, 2),
                "a_load": ("descriptor",),
                "subtiles": (1,),
                "warps": (4, 8),
                "stages": (3, 4, 6),
            }
        },
    ),
    "h200_softmax": RecordedPart(
        ops.softmax(4096, 8192, dtype="bfloat16"),
        {
            "row_looped": {
                "rows": (1, 2, 4),
                "columns": (512, 1024, 2048, 4096),
                "accumulate": ("row", "thread"),
                "warps": (4, 8, 16),
                "stages": (1, 3),
                "streaming": (False,),
            },
            "row_split": {
                "split": (2, 4),
                "rows": (1, 2),
                "columns": (512, 1024, 2048),
                "accumulate": ("thread",),
                "warps": (4, 8, 16),
                "stages": (1, 3),
                "streaming": (False,),
            },
            "row_whole": {},
        },
    ),
}
