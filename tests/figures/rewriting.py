"""Functions whose algebra may be rewritten: as written and rewritten, next to PyTorch and torch.compile, timed in turn.

python tests/figures/rewriting.py [--trials 24] [--log FILE] [--only WORD …]
python tests/figures/rewriting.py --smoke        tiny functions and few trials, on any device

Every function is tuned twice, with numerics="eager" and with numerics="fold", by so many trials a kernel; the table has
a row for each, with the rewrites of the fastest cut. Weights are constants. `compiled`: torch.compile with
mode="max-autotune-no-cudagraphs"; for products of 16384 in its default mode, as the other tunes them for minutes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from search_spaces import Target
from tuning_logs.text import duration_text, table_lines

ROUNDS = 60
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Sizes:
    """`square`: of factored products; `chains`: of products with a vector; `rows`: of queries, keys and values."""

    square: int = 2048
    chains: tuple[int, ...] = (4096, 16384)
    rows: tuple[int, ...] = (1, 32, 4096)
    hidden: int = 1024
    blocks: int = 8
    vocabulary: int = 32000


SMOKE = Sizes(square=64, chains=(128,), rows=(1, 16), hidden=64, blocks=1, vocabulary=96)


@dataclass(frozen=True)
class Case:
    name: str
    function: Function
    inputs: tuple[Tensor, ...]
    mode: str | None = "max-autotune-no-cudagraphs"


def factored(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a @ b + a @ c


def chain(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return (a @ b) @ v


def blocks(weights: Sequence[Sequence[Tensor]], heads: int, x: Tensor) -> Tensor:
    """TASO's example: attention without softmax, its three products of one input and one of what it gives."""
    for query, key, value, out in weights:
        q, k, v = ((x @ w).view(len(x), heads, -1).transpose(0, 1) for w in (query, key, value))
        x = (q @ k.transpose(1, 2) @ v).transpose(0, 1).reshape(x.shape) @ out
    return x


def heads(weights: Sequence[Tensor], x: Tensor) -> tuple[Tensor, ...]:
    return tuple(F.linear(x, w) for w in weights)


def mean_of_linear(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """As in KernelBench's second level: a linear layer, a sum over its features, and more of one number."""
    return torch.logsumexp(F.linear(x, weight, bias).sum(1, keepdim=True), 1, keepdim=True)


def pooled_linear(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """As in KernelBench's second level: a linear layer, halved and scaled, then summed."""
    return (F.linear(x, weight, bias) / 2).sum(1, keepdim=True) * 1.5


def adapted(weight: Tensor, down: Tensor, up: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, weight) + 2 * F.linear(F.linear(x, down), up)


def last(weight: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, weight)[:, -1].float()


def cases(sizes: Sizes, device: str) -> Iterator[Case]:
    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return (torch.randn(shape, device=device) / shape[-1] ** 0.5).to(dtype)

    n, h = sizes.square, sizes.hidden
    yield Case(f"A·B + A·C, {n}", factored, (random(n, n), random(n, n), random(n, n)))
    for size in sizes.chains:
        for dtype in (torch.bfloat16, torch.float32):
            given = random(size, size, dtype=dtype), random(size, size, dtype=dtype), random(size, dtype=dtype)
            mode = None if size >= 16384 else Case.mode
            yield Case(f"(A·B)·v, {size} {str(dtype)[6:]}", chain, given, mode)
    taso = [[random(h, h) for _ in range(4)] for _ in range(sizes.blocks)]
    yield Case(f"{sizes.blocks} blocks, 64×{h}", partial(blocks, taso, 16), (random(64, h),))
    for rows in sizes.rows:
        qkv = [random(h, h), random(h // 4, h), random(h // 4, h)]
        yield Case(f"q, k, v of {rows}", partial(heads, qkv), (random(rows, h),))
    weight, bias = random(h, h), random(h)
    yield Case("sum of a linear layer", partial(mean_of_linear, weight, bias), (random(n, h),))
    yield Case("scaled sum of a linear layer", partial(pooled_linear, weight, bias), (random(n, h),))
    yield Case("linear layer and adapter", partial(adapted, weight, random(16, h), random(h, 16)), (random(n, h),))
    yield Case("head of the last position", partial(last, random(sizes.vocabulary, h)), (random(4, 256, h),))


def row(case: Case, target: Target, trials: int, log: Path) -> list[str]:
    runs: dict[str, Run] = {
        "eager": partial(case.function, *case.inputs),
        "compiled": partial(torch.compile(case.function, mode=case.mode), *case.inputs),
    }
    rewrites: tuple[str, ...] = ()
    for name, numerics in (("written", "eager"), ("rewritten", "fold")):
        traced = autosched.trace(case.function, *case.inputs, numerics=numerics)
        result = autosched.tune(traced, target, trials=trials, log=log)
        print(result, flush=True)
        runs[name] = partial(result.kernel, *case.inputs)
        rewrites = result.kernel.traced.rewrites
    with torch.no_grad():
        seconds = interleaved(runs, ROUNDS, timer_for(target, "cold"))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    ratio = medians["compiled"] / medians["rewritten"]
    return [case.name, *map(duration_text, medians.values()), f"{ratio:.2f}", "; ".join(rewrites) or "none"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--log", type=Path, default=Path("rewriting.jsonl"))
    parser.add_argument("--only", nargs="*", default=[""], help="words of the names of functions")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    target = devices.detect()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for case in cases(SMOKE if given.smoke else Sizes(), device):
        if any(word in case.name for word in given.only):
            rows.append(row(case, target, 2 if given.smoke else given.trials, given.log))
            print("row:", *rows[-1], sep=" | ", flush=True)
    heading = ["function", "eager", "compiled", "written", "rewritten", "compiled / rewritten", "rewrites"]
    print("\n".join(table_lines([heading, *rows])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
