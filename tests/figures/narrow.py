"""Products of narrow operands against what PyTorch has for them, all timed in turn with cold caches.

python tests/figures/narrow.py                                      int4, int8 and float8, m of 1, 16, 64 and 2048
python tests/figures/narrow.py --only "int4.* m=1 " --trials 100 --seconds 40
python tests/figures/narrow.py --small                              tiny sizes and few trials, on any device

Every kernel is tuned first, by so many trials or seconds. A row has medians of the rounds: ours; the part of it that
moving the product's bytes takes at the target's bandwidth, or at `--terabytes` a second; a copy that moves as many
bytes; PyTorch's product in bfloat16; its operator for the narrow one; and the dequantised product by torch.compile.
What failed, or computed something else, is said below the table.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched import ops
from autosched.backends.environment import environment
from autosched.baselines.baselines import baseline
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from search_spaces import Target, Workload
from tuning_logs.text import duration_text, table_lines

# n, k: of Llama's layers, and what is large enough for the caches not to matter.
SHAPES = ((4096, 4096), (8192, 8192), (14336, 4096), (4096, 11008))
ROWS = (1, 16, 64, 2048)
SMALL_SHAPES, SMALL_ROWS = ((128, 256),), (1, 32)
GROUP = 128
ROUNDS, SMALL_ROUNDS = 60, 3
WAYS = ("copy", "bfloat16", "PyTorch's", "compiled")
COMPARED = WAYS[:3]
HEAD = ("product", "ours", "bytes", *WAYS, *(f"{way} / ours" for way in COMPARED))
# Ways of which no result is compared.
OTHERS = ("copy", "bfloat16")
# Results may differ by so much of the largest one: operands are rounded to 8 bits at least.
APART = 0.05

# The inputs of a workload to a call.
Way = Callable[[Sequence[Tensor]], Run]


@dataclass(frozen=True)
class Kind:
    """A kind of narrow product: its workload by m, n and k, and PyTorch's operator for it, if there is one."""

    name: str
    workload: Callable[[int, int, int], Workload]
    operator: Way | None


def weights(b_dtype: str, group: int | None) -> Callable[[int, int, int], Workload]:
    return lambda m, n, k: ops.matmul(m, n, k, "bfloat16", layout="nt", b_dtype=b_dtype, group=group, constant="b")


def scaled(**options: Any) -> Callable[[int, int, int], Workload]:
    return lambda m, n, k: ops.matmul(m, n, k, "float8_e4m3fn", layout="nt", constant="b", **options)


def int8(inputs: Sequence[Tensor]) -> Run:
    return partial(torch._weight_int8pack_mm, *inputs)


def int4(inputs: Sequence[Tensor]) -> Run:
    """Without zero points, which are 0 in the form that PyTorch has: (q - 8) * scale + zero."""
    x, packed, scales = inputs
    both = torch.stack((scales.T, torch.zeros_like(scales.T)), 2).contiguous()
    first, second = packed & 15, packed >> 4
    if x.is_cuda:
        # Its packing takes the first of two neighbours from the upper bits.
        tiles = torch._convert_weight_to_int4pack(first << 4 | second, 8)
        return partial(torch._weight_int4pack_mm, x, tiles, GROUP, both)
    numbers = torch.stack((first, second), 2).flatten(1).to(torch.int32)
    tiles = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    return partial(torch.ops.aten._weight_int4pack_mm_for_cpu, x, tiles, GROUP, both)


def by_rows(inputs: Sequence[Tensor]) -> Run:
    a, b, rows, columns = inputs
    return partial(torch._scaled_mm, a, b.T, rows[:, None], columns[None], out_dtype=torch.bfloat16)


def by_blocks(inputs: Sequence[Tensor]) -> Run:
    """1 x 128 by 128 x 128. PyTorch takes scales with the rows next to each other, or along k, a multiple of four."""
    from torch.nn.functional import ScalingType

    a, of_a, b, of_b = inputs
    lines, squares = of_a.T.contiguous().T, F.pad(of_b, (0, -of_b.shape[1] % 4)).T
    recipes = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    return partial(F.scaled_mm, a, b.T, lines, recipes[0], squares, recipes[1])


KINDS = (
    Kind("int4 g128", weights("int4", GROUP), int4),
    Kind("int8", weights("int8", None), int8),
    Kind("int8 g128", weights("int8", GROUP), None),
    Kind("float8", weights("float8_e4m3fn", None), None),
    Kind("float8 rows", scaled(epilogue="rowscale_colscale", out_dtype="bfloat16"), by_rows),
    Kind("float8 blocks", scaled(group=GROUP, block=GROUP, out_dtype="bfloat16"), by_blocks),
)


def in_bfloat16(workload: Workload, inputs: Sequence[Tensor]) -> Run:
    """The product of matrices of the same shapes in bfloat16: none of the results is compared."""
    m, n, k = (int(dict(workload.arguments)[name] or 0) for name in "mnk")
    device = inputs[0].device
    a, b = (torch.randn(rows, k, device=device).to(torch.bfloat16) for rows in (m, n))
    out = torch.empty(m, n, dtype=torch.bfloat16, device=device)
    return partial(torch.mm, a, b.T, out=out)


def copied(workload: Workload, inputs: Sequence[Tensor]) -> Run:
    """A copy of half of the product's bytes, which are read and written: the bandwidth that is there for so many."""
    source, out = (torch.ones(int(workload.min_bytes) // 2, dtype=torch.uint8, device=inputs[0].device) for _ in "ab")
    return partial(out.copy_, source)


def dequantised(workload: Workload, inputs: Sequence[Tensor]) -> Run:
    known = baseline(workload)
    assert known is not None
    torch.compiler.reset()
    return partial(torch.compile(known.eager, fullgraph=True), *inputs)


@dataclass(frozen=True)
class Row:
    """Medians in seconds, by the names of columns, of what was `tried`, and what failed."""

    workload: Workload
    name: str
    tried: frozenset[str]
    seconds: Mapping[str, float]
    failures: tuple[str, ...]

    def cells(self, bytes_per_s: float) -> tuple[str, ...]:
        ours = self.seconds.get("ours")
        times = {name: duration_text(s) for name, s in self.seconds.items()}
        part = f"{self.workload.min_bytes / bytes_per_s / ours:.0%}" if ours else ""
        ratios = [f"{self.seconds[c] / ours:.2f}" if ours and c in self.seconds else "" for c in COMPARED]
        shown = [times.get(c, "failed" if c in self.tried else "") for c in WAYS]
        return (self.name, times.get("ours", "failed"), part, *shown, *ratios)


def measured(kind: Kind, shape: tuple[int, int, int], given: argparse.Namespace, target: Target) -> Row:
    m, n, k = shape
    workload, failures = kind.workload(m, n, k), list[str]()
    name = f"{kind.name} m={m} n={n} k={k}"
    inputs = random_inputs(workload, 0, "cuda" if target.kind == "gpu" else "cpu")
    runs: dict[str, Run] = {}

    def tuned() -> Run:
        result = autosched.tune(workload, target, trials=given.trials, seconds=given.seconds, log=given.log)
        print(f"  {result.best.schedule.one_line if result.best else 'no kernel'}", flush=True)
        out = torch.empty(workload.outputs[0].shape, dtype=torch.bfloat16, device=inputs[0].device)
        return partial(result.kernel, *inputs, out=out)

    ways: Mapping[str, Callable[[], Run]] = {
        "ours": tuned,
        "copy": partial(copied, workload, inputs),
        "bfloat16": partial(in_bfloat16, workload, inputs),
        "compiled": partial(dequantised, workload, inputs),
        **({"PyTorch's": partial(kind.operator, inputs)} if kind.operator else {}),
    }
    results: dict[str, Tensor] = {}
    for way, make in ways.items():
        try:
            run = make()
            # All of them return their result.
            results[way] = cast(Tensor, run())
            if target.kind == "gpu":
                torch.cuda.synchronize()
        except Exception as error:  # whatever a library raises: it is shown, and the others are timed
            failures.append(f"{name}: {way}: {type(error).__name__}: {str(error).splitlines()[0]}")
        else:
            runs[way] = run
    failures += [f"{name}: {line}" for line in disagreeing(results)]
    seconds = interleaved(runs, given.rounds, timer_for(target, "cold")) if runs else {}
    medians = {way: statistics.median(taken) for way, taken in seconds.items()}
    return Row(workload, name, frozenset(ways), medians, tuple(failures))


def disagreeing(results: Mapping[str, Tensor]) -> Iterator[str]:
    """A line for each that has the operands of ours and another result."""
    if "ours" not in results:
        return
    ours = results["ours"].double().flatten()
    for way, made in ((way, x) for way, x in results.items() if way not in OTHERS):
        apart = float((made.double().flatten() - ours).abs().max() / ours.abs().max())
        if not apart <= APART:
            yield f"{way} differs from ours by {apart:.2g} of the largest result"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of names that match, such as 'int4 g128 m=16 n=4096 k=4096'")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="of each search")
    parser.add_argument("--log", type=Path, default=Path("narrow.jsonl"))
    parser.add_argument("--terabytes", type=float, help="bandwidth that is reached, instead of the data sheet's")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    target = devices.detect()
    shapes, rows = (SMALL_SHAPES, SMALL_ROWS) if given.small else (SHAPES, ROWS)
    given.rounds = SMALL_ROUNDS if given.small else ROUNDS
    given.trials = min(given.trials, 4) if given.small else given.trials
    bytes_per_s = given.terabytes * 1e12 if given.terabytes else target.memory_bytes_per_s
    table, failures = [HEAD], list[str]()
    for kind in KINDS:
        for m, (n, k) in ((m, shape) for m in rows for shape in shapes):
            if not re.search(given.only, f"{kind.name} m={m} n={n} k={k}"):
                continue
            row = measured(kind, (m, n, k), given, target)
            table.append(row.cells(bytes_per_s))
            failures += row.failures
            print(
                "\n".join(["", *table_lines([HEAD, table[-1]], right=range(1, len(HEAD))), *row.failures]), flush=True
            )
    print("\n".join(["", *table_lines(table, right=range(1, len(HEAD)))]))
    print(f"medians of {given.rounds} rounds, cold caches, {bytes_per_s / 1e12:.2f} TB/s")
    print("\n".join(failures or ["nothing failed, and all results agree"]))
    print(", ".join(f"{name} {version}" for name, version in environment(target)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
