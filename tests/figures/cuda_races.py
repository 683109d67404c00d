"""Schedules of which threads share most, where a missing barrier shows: for runs that look for races on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from autosched import ops
from search_spaces import Axis, EmptySearchSpaceError, Reduction, Schedule, Stage, Tensor, Workload
from search_spaces.schedules.knobs import KnobValue
from search_spaces.schedules.space import SearchSpace
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from chained_workloads import attention, folded_product, gradients
from fused_workloads import at, gated
from scanned_workloads import recurrence, running

VOLTA, AMPERE, HOPPER = 70, 80, 90
ALL = (VOLTA, AMPERE, HOPPER)
PRODUCT = "contraction"


@dataclass(frozen=True)
class Case:
    """Schedules of workloads in code of some compute capabilities: of one sketch and with such values where these are
    given, else of every sketch. `tile`: how many rows and columns a block makes."""

    what: str
    workloads: tuple[Workload, ...]
    capabilities: tuple[int, ...] = ALL
    sketch: str = ""
    tile: tuple[int, int] | None = None
    knobs: Mapping[str, Sequence[KnobValue]] = field(default_factory=dict)

    def drawn(self, space: SearchSpace, count: int) -> Iterator[Schedule]:
        """So many schedules of every sketch."""
        rng = np.random.default_rng(0)
        for sketch in space.sketches:
            if not self.sketch or sketch.name == self.sketch:
                part = space.restricted(sketch.name, **self._allowed(space))
                yield from dict.fromkeys(chain(*(_one(part, rng) for _ in range(count))))

    def _allowed(self, space: SearchSpace) -> dict[str, Sequence[KnobValue]]:
        allowed = dict(self.knobs)
        if self.tile is not None:
            for name, size in zip("mn", self.tile, strict=True):
                (knob,) = (k for k in space.sketch(self.sketch).knobs if k.name == name)
                allowed[name] = [v for v in knob.values if isinstance(v, tuple) and v[-1] == size]
        return allowed


def _one(space: SearchSpace, rng: np.random.Generator) -> Iterator[Schedule]:
    """A schedule, unless chance finds none."""
    try:
        yield space.sample(rng)
    except EmptySearchSpaceError:
        return


def over_two_axes(m: int, n: int, h: int, k: int, dtype: str = "float16") -> Workload:
    """out[m, n] = sum over h and k of x[h, m, k] * w[n, h, k]: a loop of dots within a loop."""
    product = ex.mul(Access("x", at("h", "m", "k")), Access("w", at("n", "h", "k")))
    fold = Reduction("sum", (Axis("h", h), Axis("k", k)))
    inputs = (Tensor("x", (h, m, k), dtype), Tensor("w", (n, h, k), dtype))
    return Workload("over_two_axes", inputs, (Stage("out", (Axis("m", m), Axis("n", n)), product, fold, dtype=dtype),))


# So many blocks that every multiprocessor has some.
_BOTH = tuple(ops.matmul(2048, 1024, 512, "float16", layout=layout) for layout in ("nn", "nt"))
# Of which one did write over what another still read.
_SWAPPED: Mapping[str, Sequence[KnobValue]] = {"swap": [True], "split": [1], "warps": [4], "stages": [2]}
_THIN = (ops.matmul(64, 64, 4096, "float16"), ops.matmul(60, 52, 3000, "float32"))
CASES = (
    Case("256 x 64, operands swapped", _BOTH, (VOLTA,), PRODUCT, (256, 64), _SWAPPED),
    Case("products", _BOTH, (VOLTA,), PRODUCT, None, {"stages": [2], "split": [1]}),
    Case("a contraction over two axes", (over_two_axes(192, 160, 3, 128),), ALL, PRODUCT, None, {"stages": [1, 2]}),
    Case("copies on their way", _BOTH, (AMPERE,), PRODUCT, None, {"stages": [3, 4, 5], "split": [1]}),
    Case("producer warps", _BOTH, (HOPPER,), PRODUCT, None, {"specialize": ["cooperative", "pingpong"]}),
    Case("sums of parts in a workspace", _THIN, ALL, PRODUCT, None, {"split": [2, 4, 8], "partials": ["workspace"]}),
    Case("sums of parts by atomics", _THIN, ALL, PRODUCT, None, {"split": [2, 4, 8], "partials": ["atomic"]}),
    Case("parts of tiles by several blocks", _BOTH[:1], ALL, PRODUCT, None, {"grid": ["stream_k"]}),
    Case("products side by side", (gated(130, 96, 200),)),
    Case("chains", (attention(2, 128, 192, 64), folded_product(100, 256, 96, "softmax"), gradients(2, 96, 80, 64))),
    Case("folds", (ops.row_sum(4, 50_000), ops.softmax(50, 3000, dtype="float16"), ops.layernorm(50, 768))),
    Case("scans", (running(2, 5000), recurrence(3, 1500, reverse=True), running(700, 40, along="r"))),
)
