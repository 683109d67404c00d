"""Parts of search spaces on an H200 that are recorded whole, and their records: searches can be compared on them.

The tables are compressed tuning logs, tests/data/<name>.jsonl.gz; `record_table.py` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from autosched import backends, ops
from autosched.backends import spaces
from search_spaces import SearchSpace, Sketch, Workload, target_named
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.words import plainly
from tuning_logs import TuningLog, TuningRecord

FOLDER = Path(__file__).parents[2] / "data"
MATMUL_4096 = "h200_matmul_4096"

Allowed = Mapping[str, Sequence[int | str | bool]]


@dataclass(frozen=True)
class RecordedPart:
    """Parts of the space of a workload: of the sketches named, the allowed values of knobs, a tile by its last level.

    `backends` are those that made the kernels.
    """

    workload: Workload
    allowed: tuple[tuple[str, Allowed], ...]
    backends: tuple[str, ...] = ("triton", "cuda")

    def space(self) -> SearchSpace:
        h200 = target_named("h200")
        makers = [b for b in backends.for_target(h200) if b.name in self.backends]
        whole = spaces.build(self.workload, h200, makers)
        names = dict.fromkeys(sketch for sketch, _ in self.allowed)
        parts = (_within(whole.sketch(x), [a for sketch, a in self.allowed if sketch == x]) for x in names)
        return replace(whole, sketches=tuple(parts))


def _within(sketch: Sketch, parts: Sequence[Allowed]) -> Sketch:
    """The sketch with rules that leave the values of one part or another, whatever is decided before them."""
    order = [knob.name for knob in sketch.decisions("").knobs]

    def rules(words: frozenset[str]) -> tuple[Rule, ...]:
        said = [{name: [plainly(Values({name: v}), words)[name] for v in x] for name, x in p.items()} for p in parts]
        return tuple(Rule(tuple(order[: n + 1]), partial(_why_in_no_part, said)) for n in range(len(order)))

    of_backends = {name: (*own, *rules(sketch.words_of[name])) for name, own in sketch.rules_of.items()}
    return replace(sketch, rules=(*sketch.rules, *rules(sketch.words)), rules_of=of_backends)


def _why_in_no_part(parts: Sequence[Allowed], values: Values) -> str | None:
    if any(all(_last(v) in part.get(name, (_last(v),)) for name, v in values.items()) for part in parts):
        return None
    return f"{dict(values)} is in no part that is recorded"


def _last(value: KnobValue) -> KnobValue:
    return value[-1] if isinstance(value, tuple) else value


def table_space(name: str = MATMUL_4096) -> SearchSpace:
    """The part of a search space that is recorded whole."""
    return PARTS[name].space()


@cache
def read_table(name: str = MATMUL_4096) -> tuple[TuningRecord, ...]:
    """The records of a table, with the schedules that the space has of them."""
    space = table_space(name)
    return tuple(replace(r, schedule=space.bind(r.schedule).unbound) for r in TuningLog(FOLDER / f"{name}.jsonl.gz"))


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
_FEW_ROWS: Allowed = {
    **_PLAIN_PRODUCT,
    "n": (64, 128, 256),
    "k": (64, 128),
    "split": (1, 2, 4, 8),
    "partials": ("workspace", "atomic"),
    "grid": ("tiles", "stream_k"),
    "per_sm": (1, 2),
    "a_load": ("descriptor",),
    "subtiles": (1,),
    "warps": (4, 8),
    "stages": (3, 4, 6),
}
_ONE_TILE: Allowed = {"order": ("row_major",), "group": (1,), "grid": ("tiles",), "per_sm": (1,)}
_WHOLE_ROWS: Allowed = {"columns": (8192,)}
PARTS = {
    MATMUL_4096: RecordedPart(
        ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt"),
        (
            (
                "contraction",
                {
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
                },
            ),
        ),
        backends=("triton",),
    ),
    "h200_few_rows": RecordedPart(
        ops.matmul(128, 4096, 4096, dtype="bfloat16", layout="nt"),
        # Groups of 8 hold the one or two rows of tiles.
        (
            ("contraction", {**_FEW_ROWS, "m": (64,), "group": (2,)}),
            ("contraction", {**_FEW_ROWS, "m": (128,), "group": (1,)}),
        ),
    ),
    "h200_softmax": RecordedPart(
        ops.softmax(4096, 8192, dtype="bfloat16"),
        (
            (
                "reduction",
                {
                    **_ONE_TILE,
                    "columns": (512, 1024, 2048, 4096),
                    "split": (1,),
                    "rows": (1, 2, 4),
                    "accumulate": ("row", "thread"),
                    "warps": (4, 8, 16),
                    "stages": (1, 3),
                    "streaming": (False,),
                },
            ),
            (
                "reduction",
                {
                    "columns": (512, 1024, 2048),
                    "split": (2, 4),
                    "rows": (1, 2),
                    "accumulate": ("thread",),
                    "warps": (4, 8, 16),
                    "stages": (1, 3),
                    "streaming": (False,),
                },
            ),
            ("reduction", {**_ONE_TILE, **_WHOLE_ROWS}),
            ("reduction", {**_ONE_TILE, **_WHOLE_ROWS, "grid": ("persistent",), "per_sm": (4,)}),
        ),
    ),
}
