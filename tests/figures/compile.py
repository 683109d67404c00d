"""What NVRTC makes of CUDA kernels for every architecture, without a GPU: registers, spills, shared memory, dots.

python tests/figures/compile.py [--samples N] [--targets v100,a100,…] [--only PART]

A row for every operator, structure and element type and every sketch of it, a column for every architecture: the most
registers, then bytes of local memory and KiB of shared memory of a thread and a block, then by what dots are computed.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autosched import ops
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.cuda.backend import CudaBackend
from search_spaces import EmptySearchSpaceError, Schedule, Target, Workload, target_named
from search_spaces.ops.matmul import LAYOUTS
from tuning_logs.text import table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from chained_workloads import Scores, adapter, attention, gradients
from dependent_workloads import IN_ONE_WALK
from fused_workloads import gated, prepared, sum_of_products
from scanned_workloads import SCANS
from structured_workloads import POINTWISE, REDUCTIONS

CUDA = CudaBackend()
TARGETS = ("v100", "t4", "a100", "rtx3090", "l40s", "h200", "b200", "rtx5090")
FLOATS = ("float32", "float16", "bfloat16")
# What dots become, as PTX has it, and what the assembler makes of that.
_DOTS = {
    r"wgmma\.mma_async": "wgmma",
    r"wmma\.mma\.sync\.aligned|mma\.sync\.aligned\.m8n8k4": "HMMA.884",
    r"mma\.sync\.aligned\.\S*\.s32\.s8": "IMMA",
    r"mma\.sync\.aligned": "HMMA",
}

ROWS = [
    op
    for dtype in FLOATS
    for op in (
        ops.gelu_scale(100_003, dtype=dtype),
        ops.pointwise(100, 1536, "bias_silu_residual", dtype=dtype),
        ops.softmax(100, 3000, dtype=dtype),
        ops.layernorm(51, 2560, dtype=dtype),
        ops.rmsnorm(17, 8192, dtype=dtype),
        ops.row_sum(40, 100_000, dtype=dtype),
    )
]
PRODUCTS = [
    *(
        ops.matmul(512, 384, 1024, dtype=dtype, layout=layout)
        for dtype in (*FLOATS, "tf32", "int8", "float8_e4m3fn")
        for layout in LAYOUTS
    ),
    *(ops.matmul(512, 384, 256, dtype=dtype, epilogue="bias_gelu", batch=3) for dtype in FLOATS),
    *(ops.matmul(1, 4096, 4096, dtype=dtype) for dtype in FLOATS),
    ops.matmul(333, 777, 1000, dtype="float16"),
    gated(128, 256, 512),
    sum_of_products(128, 256, 512),
    prepared(128, 256, 512, prologue="normalised"),
    attention(4, 512, 512, 64),
    attention(4, 512, 512, 64, scores=Scores(causal=True)),
    gradients(2, 256, 256, 64),
    adapter(256, 512, 512, 16),
]
PARTS: dict[str, Sequence[Workload]] = {
    "pointwise": POINTWISE,
    "rows": [*ROWS, *REDUCTIONS, *IN_ONE_WALK],
    "scans": SCANS,
    "products": PRODUCTS,
}


@dataclass(frozen=True)
class Made:
    """What one kernel program became, or why it did not."""

    seconds: float = 0.0
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    dots: str = ""
    refused: str = ""

    def __str__(self) -> str:
        return (
            self.refused or f"{self.registers} {self.spill_bytes} {self.shared_bytes / 1024:.0f} {self.dots}".rstrip()
        )


def compiled(schedule: Schedule, target: Target) -> Made:
    try:
        source = CUDA.render(schedule.program, schedule.one_line, target)
        artefact = CUDA.compile(source, schedule.program, target)
    except CompileError as error:
        return Made(refused=f"refused: {error}")
    facts, ptx = artefact.facts, artefact.binaries[1].decode()
    found = next((name for pattern, name in _DOTS.items() if re.search(pattern, ptx)), "")
    return Made(facts.seconds, facts.registers or 0, facts.spill_bytes or 0, facts.shared_memory_bytes or 0, found)


def schedules(workload: Workload, target: Target, samples: int) -> Iterator[Schedule]:
    """So many of every sketch: the points to start from first, then others."""
    space, rng = spaces.build(workload, target, [CUDA]), np.random.default_rng(0)
    drawn = dict.fromkeys([*space.seeds(), *(space.sample(rng) for _ in range(4 * samples * len(space.sketches)))])
    counts: collections.Counter[str] = collections.Counter()
    for schedule in drawn:
        counts[schedule.sketch] += 1
        if counts[schedule.sketch] <= samples:
            yield schedule


_JOBS: list[tuple[Schedule, Target]] = []


def _compiled(number: int) -> Made:
    return compiled(*_JOBS[number])


def table(workloads: Iterable[Workload], targets: Sequence[Target], samples: int) -> Iterator[str]:
    """The rows of one part, and how many there are of what."""
    places: list[tuple[str, str]] = []
    unsupported: dict[tuple[str, str], str] = {}
    _JOBS.clear()
    for workload in workloads:
        for target in targets:
            try:
                found = list(schedules(workload, target, samples))
            except EmptySearchSpaceError as error:
                unsupported[workload.label, target.name] = str(error).partition("\n")[0]
                continue
            _JOBS.extend((s, target) for s in found)
            places += [(f"{workload.label} {s.sketch}", target.name) for s in found]
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        made = pool.map(_compiled, range(len(_JOBS)), chunksize=4)
    cells: dict[str, dict[str, list[Made]]] = {}
    for (row, column), one in zip(places, made, strict=True):
        cells.setdefault(row, {}).setdefault(column, []).append(one)
    yield from _lines(cells, targets)
    yield from sorted({f"not for {target}: {why}" for (_, target), why in unsupported.items()})
    yield _summary(made)


def _lines(cells: dict[str, dict[str, list[Made]]], targets: Sequence[Target]) -> Iterator[str]:
    rows = [("registers spilled KiB", *(f"sm_{t.capability}" for t in targets))]
    rows += [(row, *(_cell(found.get(t.name, [])) for t in targets)) for row, found in cells.items()]
    yield from table_lines(rows)
    refusals = {(row, made.refused) for row, found in cells.items() for each in found.values() for made in each}
    yield from (f"{row}: {why[:200]}" for row, why in sorted(refusals) if why)


def _cell(made: Sequence[Made]) -> str:
    good = [m for m in made if not m.refused]
    if not good:
        return "refused" if made else "-"
    most = Made(0.0, *(max(getattr(m, name) for m in good) for name in ("registers", "spill_bytes", "shared_bytes")))
    refused = f" ({len(made) - len(good)} refused)" if len(good) < len(made) else ""
    return f"{most} {' '.join(sorted({m.dots for m in good} - {''}))}".rstrip() + refused


def _summary(made: Sequence[Made]) -> str:
    good = [m for m in made if not m.refused]
    slow = sorted(m.seconds for m in good)
    spilled = sum(m.spill_bytes > 0 for m in good)
    middle = f"{slow[len(slow) // 2]:.2f} s in the middle and {slow[-1]:.2f} s at most" if slow else "none"
    return f"{len(good)} of {len(made)} compiled, {middle}; {spilled} with local memory"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", choices=sorted(PARTS))
    given = parser.parse_args(arguments)
    targets = [target_named(name) for name in given.targets.split(",")]
    for part in [given.only] if given.only else PARTS:
        began = time.perf_counter()
        for line in table(PARTS[part], targets, given.samples):
            print(line)
        print(f"{part}: {time.perf_counter() - began:.0f} s\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
